// SPDX-License-Identifier: Apache-2.0
#include "soak/lane.h"

#include <fmt/format.h>

#include <utility>

namespace tugline::soak {
namespace {

constexpr std::size_t kMostSplit = 3;

}  // namespace

Lane::Lane(Job& job, Communicator comm, const LaneSettings& settings)
    : job_(job),
      settings_(settings),
      comm_(std::move(comm)),
      own_(sequence_of(settings.seed, {settings.round, static_cast<std::uint64_t>(settings.number),
                                       1000 + static_cast<std::uint64_t>(comm_.rank())})),
      first_(job.device()),
      second_(job.device()),
      shelf_(job, first_) {}

std::string Lane::where() const {
  return fmt::format("round {}, lane {}, step {} ({}) of seed {}", settings_.round, settings_.number, step_,
                     doing_, settings_.seed);
}

void Lane::run() {
  for (step_ = 0; step_ < settings_.steps; ++step_) step();
}

// Every step draws from a sequence of its own, so that ranks stay in step whatever they skip. A rank that is
// not in the communicator still takes its part in what goes beside it in the lane's own.
void Lane::step() {
  auto shared = sequence_of(settings_.seed, {settings_.round, static_cast<std::uint64_t>(settings_.number),
                                             2000, static_cast<std::uint64_t>(step_)});
  const auto what = shared.below(100);
  Communicator* comm = choose(shared);
  const bool with_lane = comm != &comm_ && shared.below(2) == 0;
  auto beside = sequence_of(shared.next(), {});
  if (what < 18) return requests(shared, comm, with_lane ? &beside : nullptr);
  if (what < 35) return group(shared, comm, with_lane ? &beside : nullptr);
  if (what < 40) {
    if (!split_.empty()) split_.erase(split_.begin());
    return;
  }
  if (comm == nullptr) return;
  if (what < 65) return blocking(shared, *comm);
  if (what < 82) return streams(shared, *comm);
  if (what < 90) return graph(shared, *comm);
  if (what < 97) return split(shared, *comm);
  agree(*comm);
}

Communicator* Lane::choose(Sequence& shared) {
  const auto number = shared.below(2 * (split_.size() + 1));
  if (number >= split_.size()) return &comm_;
  return split_[number].valid() ? &split_[number] : nullptr;
}

Lane::Operations Lane::draw_batch(Sequence& shared, const Communicator& comm, std::uint64_t most) {
  Operations batch;
  for (auto left = 1 + shared.below(most); left != 0; --left) {
    const auto draw = draw_operation(shared, comm.size(), settings_.most_bytes);
    batch.emplace_back(draw, comm.rank(), comm.size(), own_, shelf_);
    batch.back().fill();
  }
  return batch;
}

void Lane::finish(Operations& batch) {
  for (auto& operation : batch) {
    if (settings_.spoil && operation.spoil()) settings_.spoil = false;
    operation.check();
    ++operations_;
  }
}

void Lane::blocking(Sequence& shared, Communicator& comm) {
  doing_ = "blocking calls";
  auto batch = draw_batch(shared, comm, 4);
  for (auto& operation : batch) operation.begin(comm, {});
  finish(batch);
}

void Lane::streams(Sequence& shared, Communicator& comm) {
  doing_ = "streams";
  auto batch = draw_batch(shared, comm, 4);
  StreamRef last = first_;
  for (auto& operation : batch) {
    const StreamRef next = shared.below(2) == 0 ? first_ : second_;
    if (next != last) {
      // A communicator's operations come one after the other.
      const Event event(job_.device());
      last.record(event);
      next.wait(event);
      last = next;
    }
    operation.begin(comm, next);
  }
  last.sync();
  finish(batch);
}

void Lane::graph(Sequence& shared, Communicator& comm) {
  doing_ = "a graph";
  auto batch = draw_batch(shared, comm, 3);
  first_.begin_capture();
  for (auto& operation : batch) operation.begin(comm, first_);
  const Graph graph = first_.end_capture();
  for (auto left = 1 + shared.below(3); left != 0; --left) {
    for (auto& operation : batch) operation.fill();
    graph.launch(left % 2 == 0 ? second_ : first_);
    (left % 2 == 0 ? second_ : first_).sync();
    finish(batch);
  }
}

void Lane::requests(Sequence& shared, Communicator* comm, Sequence* beside) {
  doing_ = "requests";
  Operations batch;
  if (comm != nullptr) batch = draw_batch(shared, *comm, 4);
  Operations others;
  if (beside != nullptr) others = draw_batch(*beside, comm_, 2);
  std::vector<Request> requests(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) batch[i].begin(*comm, requests[i]);
  for (auto& operation : others) operation.begin(comm_, {});
  const bool backwards = own_.below(2) == 0;
  for (std::size_t i = 0; i < batch.size(); ++i) requests[backwards ? batch.size() - 1 - i : i].wait();
  finish(others);
  finish(batch);
}

void Lane::group(Sequence& shared, Communicator* comm, Sequence* beside) {
  doing_ = "a group";
  Operations batch;
  Group group;
  const auto add = [&](Communicator& to, const Draw& draw) {
    batch.emplace_back(draw, to.rank(), to.size(), own_, shelf_);
    batch.back().fill();
    batch.back().begin(to, group);
  };
  if (comm != nullptr) {
    for (auto left = 1 + shared.below(4); left != 0; --left)
      add(*comm, draw_shift(shared, comm->size(), settings_.most_bytes));
    if (shared.below(2) == 0) add(*comm, draw_operation(shared, comm->size(), settings_.most_bytes));
  }
  // Two communicators in one group.
  if (beside != nullptr) add(comm_, draw_operation(*beside, comm_.size(), settings_.most_bytes));
  const auto way = own_.below(3);
  if (way == 0) {
    group.run();
  } else if (way == 1 && beside == nullptr) {
    Request request;
    group.run(request);
    request.wait();
  } else {
    group.run(second_);
    second_.sync();
  }
  finish(batch);
}

void Lane::split(Sequence& shared, Communicator& comm) {
  doing_ = "a split";
  // Any partition, in any order; some ranks may stay out.
  auto at_rank = sequence_of(shared.next(), {static_cast<std::uint64_t>(comm.rank())});
  const int color = static_cast<int>(at_rank.below(3)) - (shared.below(4) == 0 ? 1 : 0);
  const int key = static_cast<int>(at_rank.below(100));
  // Only the lane's own: all ranks of the lane keep a list of equal length.
  if (&comm == &comm_) {
    if (split_.size() == kMostSplit) split_.erase(split_.begin());
    split_.push_back(comm.split(color, key));
    return;
  }
  const auto passing = comm.split(color, key);
  if (!passing.valid()) return;
  auto inner = passing;
  blocking(shared, inner);
}

void Lane::agree(Communicator& comm) {
  doing_ = "an agreement";
  const auto outcome = comm.agree();
  if (!outcome.committed() || outcome.membership_changed())
    throw Wrong(fmt::format("agree() on {}: committed {}, membership changed {}, though nothing went wrong",
                            comm.name(), outcome.committed(), outcome.membership_changed()));
}

}  // namespace tugline::soak
