// SPDX-License-Identifier: Apache-2.0
#include "trainer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "tugline/error.h"

namespace train_fashion {
namespace {

constexpr std::uint64_t kFirstVersion = 1;

std::vector<GradientExchange::Bucket> buckets_of(const Network<float>& network, std::size_t score_elements) {
  std::vector<GradientExchange::Bucket> buckets;
  for (int layer = Network<float>::kLayers - 1; layer >= 0; --layer) {
    const auto [offset, count] = network.layer(layer);
    const bool last = layer == Network<float>::kLayers - 1;
    buckets.push_back({offset, count + (last ? score_elements : 0)});
  }
  return buckets;
}

std::uint64_t epoch_steps(const Options& options, const Sampler& sampler) noexcept {
  return sampler.steps_per_epoch() * static_cast<std::uint64_t>(options.epochs);
}

bool contains(const std::vector<RankAtStep>& list, int rank, std::uint64_t step) noexcept {
  return std::any_of(list.begin(), list.end(),
                     [&](const auto& entry) { return entry.rank == rank && entry.step == step; });
}

}  // namespace

Trainer::Trainer(tugline::Job& job, const Options& options, const FashionData& train)
    : job_(job),
      options_(options),
      train_(train),
      first_rank_(job.rank()),
      first_size_(job.size()),
      membership_(job.communicator()),
      device_(job.device()),
      network_(NetworkShape{}, std::min(options.batch, options.micro_batch)),
      sampler_(options.seed, train.size(), options.batch),
      total_steps_(options.steps.value_or(epoch_steps(options, sampler_))),
      rate_(options.learning_rate, std::max(total_steps_, epoch_steps(options, sampler_))),
      sgd_(network_.parameter_count(), {}),
      model_(job.named_buffer<float>(fmt::format("{}/{}", options.model, first_rank_),
                                     network_.parameter_count())),
      gradient_(job.allocate<float>(network_.parameter_count() + kScoreElements)),
      exchange_(device_, membership_.communicator(), gradient_.span(), buckets_of(network_, kScoreElements)),
      compute_(device_.stream()),
      labels_(static_cast<std::size_t>(network_.max_images())) {
  check_against_job(options, first_size_, total_steps_);
  if (model_.version() != 0) {
    throw tugline::Error(tugline::ErrorCode::already_exists,
                         fmt::format("the job already holds \"{}/{}\", version {}", options.model,
                                     first_rank_, model_.version()),
                         "give another name by --model, or another job");
  }
  for (int layer = 0; layer <= kLastLayer; ++layer) ready_.emplace_back(device_);
  network_.initialise(model_.next(), options.seed);
  model_.publish(kFirstVersion);
}

bool Trainer::leaves_before(std::uint64_t step) const noexcept {
  return contains(options_.losses, first_rank_, step);
}

bool Trainer::killed_in(std::uint64_t step) const noexcept {
  return contains(options_.kills, first_rank_, step);
}

RunEnd Trainer::run() {
  membership_.settle(0, [&] { membership_.communicator().barrier(); });  // so that start-up is not training
  start_ns_ = last_progress_ns_ = now_ns();
  for (std::uint64_t step = 0; step < total_steps_; ++step) {
    if (leaves_before(step)) return RunEnd::left;
    membership_.settle(step, [&] { attempt(step); });
    finish(step);
  }
  end_ns_ = now_ns();
  return RunEnd::done;
}

void Trainer::attempt(std::uint64_t step) {
  try {
    enqueue(step);
    const auto current = model_.current();
    const auto next = model_.next();
    for (std::size_t i = 0; i < exchange_.bucket_count(); ++i) {
      exchange_.wait(i);
      membership_.operation_done();
      const auto [offset, count] = network_.layer(kLastLayer - static_cast<int>(i));
      // Into the copy that nobody reads before it is published: whether the step counts is not known yet.
      sgd_.update(offset, count, current, gradient_.span(), rate_.at(step), next);
    }
    waiting_ns_ += exchange_.take_waiting_after(backward_end_ns_);
  } catch (const tugline::Error&) {
    membership_.loss_noticed();
    compute_.sync();  // it reads and writes what the next attempt does
    exchange_.drain();
    waiting_ns_ += exchange_.take_waiting_after(backward_end_ns_);
    throw;
  }
}

void Trainer::enqueue(std::uint64_t step) {
  const auto& communicator = membership_.communicator();
  const int rank = communicator.rank();
  const int size = communicator.size();
  const auto batch = sampler_.batch(step);
  const int images = static_cast<int>(batch.size());
  if (options_.batch_trace) trace(step, batch, share_of(images, rank, size));
  // From the full batch, also for the smaller last one of an epoch: every number of ranks is to cut it alike.
  const int micro_batches = micro_batches_per_rank(options_.batch, options_.micro_batch, size);
  for (int i = 0; i < micro_batches; ++i) {
    const Share share = micro_batch_of(images, rank, size, micro_batches, i);
    const GradientSum sum = i == 0 ? GradientSum::start : GradientSum::add;
    enqueue_forward(
        batch.subspan(static_cast<std::size_t>(share.begin), static_cast<std::size_t>(share.count())),
        1.0F / static_cast<float>(images), sum);
    const bool last = i + 1 == micro_batches;
    for (int layer = kLastLayer; layer >= 0; --layer) {
      enqueue_backward(layer, sum);
      if (!last) continue;  // the sum of the rank's micro-batches is reduced, once
      const auto bucket = static_cast<std::size_t>(kLastLayer - layer);
      compute_.record(ready_[static_cast<std::size_t>(layer)]);
      exchange_.reduce(bucket, ready_[static_cast<std::size_t>(layer)]);
      if (bucket == 0 && killed_in(step)) enqueue_kill();
    }
  }
}

void Trainer::enqueue_forward(std::span<const std::uint32_t> images, float scale, GradientSum sum) {
  compute_.launch([this, images, scale, sum, current = model_.current()] {
    train_.gather(images, network_.input(), labels_);
    network_.forward(current, static_cast<int>(images.size()));
    const BatchScore score = network_.score(labels_, scale);
    float* sums = gradient_.data() + network_.parameter_count();
    const float own[kScoreElements] = {static_cast<float>(score.loss), static_cast<float>(score.correct)};
    for (std::size_t i = 0; i < kScoreElements; ++i)
      sums[i] = sum == GradientSum::add ? sums[i] + own[i] : own[i];
    return tugline::Status::success();
  });
}

void Trainer::enqueue_backward(int layer, GradientSum sum) {
  compute_.launch([this, layer, sum, current = model_.current()] {
    network_.backward(layer, current, gradient_.span(), sum);
    if (layer == 0) backward_end_ns_ = now_ns();
    return tugline::Status::success();
  });
}

void Trainer::enqueue_kill() {
  compute_.launch([this]() -> tugline::Status {
    // The survivors measure from here. Writing it down is part of what they measure.
    job_.put(fmt::format("killed/{}", first_rank_), std::to_string(now_ns()));
    std::raise(SIGKILL);
    return tugline::Status::success();
  });
}

void Trainer::trace(std::uint64_t step, std::span<const std::uint32_t> batch, Share share) const {
  std::string images;
  for (int i = share.begin; i < share.end; ++i)
    images += fmt::format(" {}", batch[static_cast<std::size_t>(i)]);
  fmt::print("trace: step {} rank {} images{}\n", step, first_rank_, images);
}

void Trainer::finish(std::uint64_t step) {
  sgd_.commit();
  model_.publish(kFirstVersion + step + 1);
  const auto batch = sampler_.batch(step);
  auto& communicator = membership_.communicator();
  images_ += static_cast<std::uint64_t>(
      share_of(static_cast<int>(batch.size()), communicator.rank(), communicator.size()).count());
  const float* sums = gradient_.data() + network_.parameter_count();
  losses_.push_back(static_cast<double>(sums[0]) / static_cast<double>(batch.size()));
  correct_.push_back(static_cast<double>(sums[1]));
  seen_.push_back(static_cast<double>(batch.size()));
  if (exchange_.first_start_ns() < backward_end_ns_) ++overlapped_steps_;
  if (communicator.rank() == 0) show_progress(step);
}

void Trainer::show_progress(std::uint64_t step) {
  const bool last = step + 1 == total_steps_;
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  const std::uint64_t done = step + 1;
  if (!last && done % (terminal ? 1 : options_.progress_steps) != 0) return;
  const std::int64_t now = now_ns();
  if (terminal && !last && now - last_progress_ns_ < 100'000'000) return;
  last_progress_ns_ = now;
  const std::size_t from = losses_.size() - std::min<std::size_t>(losses_.size(), options_.progress_steps);
  double images = 0;
  double correct = 0;
  for (std::size_t i = from; i < losses_.size(); ++i) {
    images += seen_[i];
    correct += correct_[i];
  }
  double all_images = 0;
  for (double seen : seen_) all_images += seen;
  const double elapsed = static_cast<double>(now - start_ns_);
  fmt::print("{}step {}/{}  loss {:.4f}  accuracy {:.3f}  {:.0f} images/s  {} ranks  waiting {:.1f}%{}",
             terminal ? "\r" : "", done, total_steps_, losses_.back(), correct / images,
             all_images / (elapsed * 1e-9), membership_.communicator().size(),
             100 * static_cast<double>(waiting_ns_ + membership_.agreeing_ns()) / elapsed,
             terminal && !last ? "  " : "\n");
  std::fflush(stdout);  // a line of progress is not worth the run: what failed is told at its end
}

}  // namespace train_fashion
