// SPDX-License-Identifier: Apache-2.0
// The host executor: carries out one rank's programs of a plan. It contains no algorithm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <vector>

#include "comm/call.h"
#include "comm/direct.h"
#include "comm/epoch.h"
#include "comm/kernels_host/reduce.h"
#include "comm/protocol.h"
#include "comm/run.h"
#include "comm/same_calls.h"
#include "core/plan/plan.h"

namespace tugline::comm {

/// Where a run gets its plan from.
struct PlanSource {
  std::shared_ptr<const core::Plan> plan;  ///< null: `later` gives it
  /// The plan of that call, once all ranks have come whom the choice depends on; null until then.
  std::function<std::shared_ptr<const core::Plan>(const Call& call)> later = {};
};

class PlanRun final : public Run {
 public:
  /// A collective operation: takes the epoch's next sequence number and publishes its descriptor when it
  /// starts.
  /// With `direct`, the offer it holds is published, and its plan runs when everybody offers.
  PlanRun(Epoch& epoch, Board& board, PlanSource source, const Call& call,
          std::optional<DirectOption> direct = std::nullopt);

  /// Waits after an error, until nobody touches the caller's buffers.
  ~PlanRun() override;

  Poll advance() override;
  void look_for_mismatch() override;
  WaitSubject subject() const override;
  Pending pending() const noexcept override;
  bool is_direct() const noexcept override { return plan_ && plan_->direct; }

 private:
  enum class Phase : std::uint8_t { fresh, entering, opening, running, finished };

  void start();
  bool may_enter();
  bool all_have_finished(std::uint64_t sequence) const noexcept;
  bool has_opened();
  bool has_plan();
  void take_plan(std::shared_ptr<const core::Plan> plan);
  bool whoever_needs_it_is_present() const noexcept;
  Poll run_channel(std::size_t channel);
  bool step_ready(const core::Step& step);
  void execute(const core::Step& step);
  /// True where `next` divides what `step` has combined: both are one then.
  static bool makes_average(const core::Step& step, const core::Step& next) noexcept;
  void finish();

  void copy(const core::Step& step);
  void reduce(const core::Step& step);
  void combine_operands(void* to, std::uint64_t bytes) noexcept;
  /// True for a result that goes past the caches.
  bool is_streamed(const core::Place& destination) const noexcept {
    return stream_ != nullptr && destination.space == core::Space::output;
  }
  void store_streamed(const core::Place& destination, const void* source, std::uint64_t bytes) noexcept;
  void fence_streamed() noexcept;
  void end_visits() noexcept;

  std::byte* resolve(const core::Place& place) const noexcept;
  /// As resolve(), for what is read: this rank's input is multiplied first in a pre-multiplied sum, and a
  /// streamed result is still in the cache at another place.
  const std::byte* resolve_operand(const core::Place& place, std::uint64_t bytes);
  std::atomic<std::uint64_t>& flag_here(std::int32_t peer, std::uint8_t flag) const noexcept;
  void raise(std::int32_t peer, std::uint8_t flag, std::uint32_t value, bool last) const noexcept;
  void put_packet(const core::Step& step);
  void take_packet(const core::Step& step);
  bool packet_is_here(std::int32_t rank);
  std::int32_t peer_waited_for() const noexcept;
  bool trusts(std::int32_t rank);
  bool trust(std::size_t rank) noexcept;
  bool has_heard_from_all() const noexcept;
  bool counts_fit(std::uint32_t peer);
  bool all_pairs_fit() const noexcept;
  void wake(std::int32_t rank) const noexcept;

  std::int32_t own_rank() const noexcept { return static_cast<std::int32_t>(epoch_.rank); }

  Epoch& epoch_;
  Board& board_;
  PlanSource source_;
  std::shared_ptr<const core::Plan> plan_;
  Call call_;
  std::uint32_t fingerprint_ = 0;
  ReduceKernel reduce_ = nullptr;
  AverageKernel average_ = nullptr;
  ScaleKernel scale_ = nullptr;
  bool averages_ = false;              ///< the step at hand does, so that the next one is done with it
  MultiplyKernel multiply_ = nullptr;  ///< of a pre-multiplied sum
  std::uint64_t factor_ = 0;
  std::vector<std::byte> multiplied_;  ///< input of the step at hand
  std::size_t element_bytes_ = 1;
  Phase phase_ = Phase::fresh;
  std::uint64_t base_ = 0;  ///< flag value of this operation's 0
  std::uint64_t half_ = 0;  ///< scratch offset of this operation's half
  std::optional<DirectOption> direct_;
  std::uint32_t opened_ = 0;          ///< opening: descriptors of ranks below it have been seen
  std::optional<PeerBuffers> peers_;  ///< of a direct plan
  std::optional<Visits> visits_;      ///< of a direct plan
  bool owner_gone_ = false;           ///< a peer's buffer is no longer there
  /// Small operations need no memory of the heap.
  std::byte small_[512];
  std::pmr::monotonic_buffer_resource memory_{small_, sizeof small_};
  std::pmr::vector<std::uint32_t> next_{&memory_};    ///< next step by channel
  std::pmr::vector<std::uint8_t> trusted_{&memory_};  ///< by rank, 1: descriptor seen and equal
  StreamKernel stream_ = nullptr;                     ///< for results that are too large for the caches
  bool unfenced_ = false;                             ///< something was streamed since the last fence
  std::vector<std::byte> staged_;  ///< the last combination that was streamed, where it may be read again
  core::Place staged_for_;
  std::uint64_t staged_bytes_ = 0;
  // Of the step at hand; kept for their memory.
  std::pmr::vector<const void*> operands_{&memory_};
  const core::Step* blocked_ = nullptr;  ///< the step that waits, for reports
};

}  // namespace tugline::comm
