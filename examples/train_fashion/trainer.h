// SPDX-License-Identifier: Apache-2.0
// One rank's training: each step is a transaction that all survivors commit, or do again.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exchange.h"
#include "fashion_data.h"
#include "membership.h"
#include "network.h"
#include "options.h"
#include "report.h"
#include "sampler.h"
#include "sgd.h"
#include "tugline/job.h"

namespace train_fashion {

/// What Trainer::run() came to.
enum class RunEnd { done, left };

/// Not thread-safe.
class Trainer {
 public:
  /// The first weights are published as version 1. Throws Error{already_exists} when the job holds weights of
  /// an earlier run under this name.
  Trainer(tugline::Job& job, const Options& options, const FashionData& train);

  std::uint64_t total_steps() const noexcept { return total_steps_; }
  /// Trains to the end, or until this rank leaves by --lose or --replay.
  RunEnd run();
  /// Correct answers on all of `test`, which is shared out among the ranks.
  std::int64_t count_correct(const FashionData& test);
  /// Gathers every rank's figures; complete at every rank but for the test's.
  RunReport report();

 private:
  static constexpr std::size_t kScoreElements =
      2;  ///< loss and correct answers, behind the last layer's gradient
  static constexpr int kLastLayer = Network<float>::kLayers - 1;

  bool leaves_before(std::uint64_t step) const noexcept;
  bool killed_in(std::uint64_t step) const noexcept;
  void attempt(std::uint64_t step);
  void enqueue(std::uint64_t step);
  void enqueue_forward(std::span<const std::uint32_t> images, float scale, GradientSum sum);
  void enqueue_backward(int layer, GradientSum sum);
  void enqueue_kill();
  void trace(std::uint64_t step, std::span<const std::uint32_t> batch, Share share) const;
  void finish(std::uint64_t step);
  void show_progress(std::uint64_t step);
  RankReport rank_report();
  double since_kill_us(std::int64_t time_ns);

  tugline::Job& job_;
  const Options& options_;
  const FashionData& train_;
  const int first_rank_;  ///< at the start of the job
  const int first_size_;
  Membership membership_;
  tugline::Device& device_;
  Network<float> network_;
  Sampler sampler_;
  std::uint64_t total_steps_;
  LearningRate rate_;
  Sgd sgd_;
  tugline::NamedBuffer<float> model_;
  tugline::Buffer<float> gradient_;
  GradientExchange exchange_;
  tugline::Stream compute_;
  std::vector<tugline::Event> ready_;  ///< by layer: its gradient is complete
  std::vector<std::uint8_t> labels_;

  std::int64_t backward_end_ns_ =
      0;  ///< of the last micro-batch; written on the compute stream, read behind ready_[0]
  std::int64_t start_ns_ = 0;
  std::int64_t end_ns_ = 0;
  std::int64_t last_progress_ns_ = 0;
  std::int64_t waiting_ns_ = 0;  ///< for reductions, while nothing was computed
  std::uint64_t images_ = 0;
  std::uint64_t overlapped_steps_ = 0;
  std::vector<double> losses_;
  std::vector<double> correct_;  ///< correct answers by step, and
  std::vector<double> seen_;     ///< images by step, over all ranks
};

}  // namespace train_fashion
