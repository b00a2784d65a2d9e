// SPDX-License-Identifier: Apache-2.0
#include "comm/plan_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/settings.h"
#include "comm/kernels_host/stream.h"
#include "comm/protocol.h"

namespace tugline::comm {
namespace {

bool reached(const std::atomic<std::uint64_t>& word, std::uint64_t value) noexcept {
  // Signed distance: right across the wrap of the 64-bit flag.
  return static_cast<std::int64_t>(word.load(std::memory_order_acquire) - value) >= 0;
}

}  // namespace

PlanRun::PlanRun(Epoch& epoch, Board& board, PlanSource source, const Call& call,
                 std::optional<DirectOption> direct)
    : Run(describe(call)),
      epoch_(epoch),
      board_(board),
      source_(std::move(source)),
      call_(call),
      element_bytes_(size_of(call.type)),
      direct_(std::move(direct)),
      stream_(call.output_bytes(epoch.rank, epoch.size) >= stream_from_bytes() ? stream_kernel() : nullptr) {
  if (call.reduces()) {
    reduce_ = reduce_kernel(call.type, call.op);
    average_ = average_kernel(call.type);
    scale_ = scale_kernel(call.type);
    if (call.factor) {
      multiply_ = multiply_kernel(call.type);
      factor_ = *factor_bits(call);
    }
  }
}

PlanRun::~PlanRun() {
  const bool has_begun = phase_ == Phase::opening || phase_ == Phase::running;
  if (!has_begun || !direct_ || !direct_->offers()) return;
  end_visits();
  withdraw_buffers(epoch_, sequence_, buffers_of(call_), direct_->may_store);
}

void PlanRun::start() {
  if (source_.plan) take_plan(source_.plan);
  trusted_.assign(epoch_.size, 0);
  trusted_[static_cast<std::size_t>(own_rank())] = 1;
  sequence_ = begin_call(epoch_, descriptor_);
  fingerprint_ = fingerprint_of(epoch_, sequence_);
  half_ = (sequence_ % kHalves) * (epoch_.bank.layout().scratch_bytes / kHalves);
  base_ = sequence_ << kFlagShift;
  phase_ = Phase::entering;
}

void PlanRun::take_plan(std::shared_ptr<const core::Plan> plan) {
  plan_ = std::move(plan);
  next_.assign(plan_->programs[static_cast<std::size_t>(own_rank())].size(), 0);
}

bool PlanRun::has_plan() {
  if (!plan_)
    if (auto plan = source_.later(call_)) take_plan(std::move(plan));
  return plan_ != nullptr;
}

// A rank may write packets, descriptors and scratch of operation s only when nobody reads those of the
// operations whose places it takes: all must have finished s - kHalves (scratch), which is the stricter one.
// Operations in which everyone hears from everyone leave that knowledge behind (finish()), so the usual case
// reads nothing.
bool PlanRun::may_enter() {
  static_assert(kHalves <= kHistory);
  if (sequence_ == 1 && !whoever_needs_it_is_present()) return false;
  if (sequence_ > kHalves && !all_have_finished(sequence_ - kHalves)) return false;
  if (!all_have_called(epoch_, needed_for(sequence_), difference_)) return false;
  if (call_.counts) publish_counts(epoch_, sequence_, *call_.counts);
  if (direct_) publish_offer(epoch_, sequence_, call_, direct_->offer, direct_->process, direct_->limits);
  announce(epoch_, sequence_, descriptor_);
  // Those who offer wait for this one before their first step, and those who have run ahead until it has
  // come.
  if ((direct_ || call_.has_root()) && anybody_sleeps(epoch_.bank.header().sleepers))
    for (std::uint32_t rank = 0; rank < epoch_.size; ++rank)
      if (rank != epoch_.rank) ring(board_.doorbells[epoch_.originals[rank]]);
  return true;
}

bool PlanRun::all_have_finished(std::uint64_t sequence) const noexcept {
  if (epoch_.known_called > sequence) return true;
  for (std::uint32_t rank = 0; rank < epoch_.size; ++rank)
    if (rank != epoch_.rank && !reached(epoch_.bank.progress(rank).finished, sequence)) return false;
  return true;
}

// Everybody has come, which the choice of a plan may depend on; and where this rank offers its buffers,
// everybody's call has been seen: the direct plan is taken if all can be reached.
bool PlanRun::has_opened() {
  if (!has_plan()) return false;
  if (!direct_ || !direct_->offers()) return true;
  for (; opened_ < epoch_.size; ++opened_) {
    if (opened_ == epoch_.rank) continue;
    const auto& line = epoch_.bank.descriptor(opened_, sequence_);
    if (line.sequence.load(std::memory_order_acquire) != sequence_) return false;
    if (!trusts(static_cast<std::int32_t>(opened_))) return false;
  }
  const auto reach = common_reach(epoch_, sequence_);
  if (reach == Offer::Reach::none) return true;
  auto plan = direct_->plan ? direct_->plan : direct_->later(call_, sequence_);
  try {
    peers_.emplace(epoch_, sequence_, call_, reach, *plan, *direct_->imports);
  } catch (const Error& error) {
    // A segment goes with its owner, who is in this operation: the wait will be told of the death, which is
    // what there is to say. The same for the broker's end.
    owner_gone_ = error.code() == ErrorCode::not_found || error.code() == ErrorCode::broker_lost;
    if (!owner_gone_) mapping_error_ = error;
    return false;
  }
  visits_.emplace(epoch_, sequence_, peers_->all());
  take_plan(std::move(plan));
  return true;
}

// A bank goes with its last reference: nobody leaves something in it for a rank that has not mapped it yet,
// and leaves. Where everybody hears from everybody, a collective's end makes sure of that.
bool PlanRun::whoever_needs_it_is_present() const noexcept {
  if (epoch_.check && !call_.has_root()) return true;
  for (std::uint32_t rank = 0; rank < epoch_.size; ++rank)
    if (epoch_.bank.progress(rank).present.load(std::memory_order_acquire) == 0) return false;
  return true;
}

Poll PlanRun::advance() {
  bool progressed = false;
  if (phase_ == Phase::fresh) start();
  if (phase_ == Phase::entering) {
    if (!may_enter()) {
      blocked_ = nullptr;
      return Poll::blocked;
    }
    phase_ = !plan_ || (direct_ && direct_->offers()) ? Phase::opening : Phase::running;
    progressed = true;
  }
  if (phase_ == Phase::opening) {
    if (owner_gone_ || mapping_error_ || difference_ || !has_opened()) return Poll::blocked;
    phase_ = Phase::running;
    progressed = true;
  }
  if (phase_ == Phase::finished) return Poll::done;
  bool all_done = true;
  for (std::size_t channel = 0; channel < next_.size(); ++channel) {
    switch (run_channel(channel)) {
      case Poll::done:
        break;
      case Poll::progressed:
        progressed = true;
        all_done = false;
        break;
      case Poll::blocked:
        all_done = false;
        break;
    }
  }
  end_visits();
  if (difference_) return Poll::blocked;
  // Where everybody hears from everybody a rank leaves only when it has seen that all make the same call.
  if (all_done && epoch_.check && !call_.has_root()) {
    look_for_mismatch();
    if (difference_) return Poll::blocked;
    all_done = has_heard_from_all();
    if (all_done && call_.counts && call_.counts->of_pairs()) all_done = all_pairs_fit();
  }
  if (all_done) {
    finish();
    return Poll::done;
  }
  return progressed ? Poll::progressed : Poll::blocked;
}

Poll PlanRun::run_channel(std::size_t channel) {
  const auto& program = plan_->programs[static_cast<std::size_t>(own_rank())][channel];
  auto& next = next_[channel];
  const auto first = next;
  for (; next < program.size(); ++next) {
    const core::Step& step = program[next];
    if (!step_ready(step)) {
      blocked_ = &step;
      return next == first ? Poll::blocked : Poll::progressed;
    }
    averages_ = plan_->average && next + 1 < program.size() && makes_average(step, program[next + 1]);
    execute(step);
    if (averages_) ++next;
  }
  return Poll::done;
}

bool PlanRun::step_ready(const core::Step& step) {
  switch (step.kind) {
    case core::StepKind::wait:
      return reached(flag_here(step.peer, step.flag), base_ + step.value) && trusts(step.peer);
    case core::StepKind::copy_packet:
    case core::StepKind::reduce_packet: {
      if (step.peer != core::kEveryone) return packet_is_here(step.peer);
      for (std::int32_t peer = 0; peer < plan_->ranks; ++peer)
        if (!packet_is_here(peer)) return false;
      return true;
    }
    case core::StepKind::copy:
    case core::StepKind::put:
    case core::StepKind::reduce:
      return !visits_ || visits_->begin();
    default:
      return true;
  }
}

bool PlanRun::packet_is_here(std::int32_t rank) {
  const auto expected = packet_flag(sequence_, fingerprint_);
  const auto flag =
      epoch_.bank.packet(static_cast<std::uint32_t>(rank), sequence_).flag.load(std::memory_order_acquire);
  if (flag == expected) return true;
  if (flag >> 32 == (sequence_ & 0xffffffffu)) look_for_mismatch();
  return false;
}

bool PlanRun::trust(std::size_t rank) noexcept {
  trusted_[rank] = 1;
  return true;
}

// Data of a peer is used only after its descriptor of this very operation, or that one's fingerprint beside a
// flag, was seen to be equal. The descriptor cannot be gone: the peer needs our finishing this operation
// before it reuses the line.
bool PlanRun::trusts(std::int32_t rank) {
  const auto peer = static_cast<std::uint32_t>(rank);
  if (trusted_[peer] != 0 || !epoch_.check) return true;
  if (difference_) return false;  // one is enough, and descriptor_ may tell of it already
  const auto raised_in = epoch_.bank.flags(epoch_.rank, peer).call.load(std::memory_order_relaxed);
  if (!call_.counts && raised_in == packet_flag(sequence_, fingerprint_)) return trust(peer);
  switch (look_at_call(epoch_, peer, sequence_)) {
    case Announced::not_yet:
      return false;
    case Announced::same:
      return call_.counts ? counts_fit(peer) && trust(peer) : trust(peer);
    case Announced::different:
      difference_ = find_difference(epoch_, peer, sequence_);
      if (call_.counts && difference_->sequence == sequence_) (void)counts_fit(peer);
      return false;
  }
  return false;
}

// Compares the counts of two calls that are equal otherwise, and names the first one that differs.
bool PlanRun::counts_fit(std::uint32_t peer) {
  const auto& line = epoch_.bank.descriptor(peer, sequence_);
  const Descriptor theirs{line.kind.load(std::memory_order_relaxed),
                          line.count.load(std::memory_order_relaxed)};
  if (theirs.kind != descriptor_.kind) return true;  // a difference of another kind
  const Counts& mine = *call_.counts;
  const auto* row = epoch_.bank.counts(peer, sequence_);
  const auto differ = [&](CountOf here, std::uint32_t here_of, std::uint64_t own, CountOf there,
                          std::uint32_t there_of, std::uint64_t other) {
    difference_ = CallDifference{static_cast<std::int32_t>(peer), sequence_,
                                 with_count(descriptor_, here, here_of, own),
                                 with_count(theirs, there, there_of, other)};
    return false;
  };
  if (mine.of_pairs()) {
    const auto sent = row[epoch_.rank].load(std::memory_order_relaxed);
    if (sent != mine.recv[peer])
      return differ(CountOf::expected, peer, mine.recv[peer], CountOf::sent, epoch_.rank, sent);
    const auto expected = row[epoch_.size + epoch_.rank].load(std::memory_order_relaxed);
    if (expected != mine.send[peer])
      return differ(CountOf::sent, peer, mine.send[peer], CountOf::expected, epoch_.rank, expected);
    return true;
  }
  for (std::uint32_t block = 0; theirs.count != descriptor_.count && block < epoch_.size; ++block) {
    const auto other = row[block].load(std::memory_order_relaxed);
    if (other != mine.send[block])
      return differ(CountOf::block, block, mine.send[block], CountOf::block, block, other);
  }
  return true;
}

// What pairs of others exchange: a rank that has its own data leaves only when all of them fit. Where they do
// not, one of the pair finds out and tells everybody.
bool PlanRun::all_pairs_fit() const noexcept {
  std::uint64_t difference = 0;
  for (std::uint32_t rank = 0; rank < epoch_.size; ++rank) {
    const auto& line = epoch_.bank.descriptor(rank, sequence_);
    difference += line.sends.load(std::memory_order_relaxed) - line.expects.load(std::memory_order_relaxed);
  }
  return difference == 0;
}

bool PlanRun::has_heard_from_all() const noexcept {
  return std::all_of(trusted_.begin(), trusted_.end(), [](std::uint8_t seen) { return seen != 0; });
}

void PlanRun::look_for_mismatch() {
  if (phase_ != Phase::running && phase_ != Phase::opening) return;
  for (std::size_t rank = 0; rank < trusted_.size() && !difference_; ++rank)
    (void)trusts(static_cast<std::int32_t>(rank));
}

void PlanRun::finish() {
  phase_ = Phase::finished;
  fence_streamed();
  if (visits_) visits_->finish();
  // Whoever has heard from everyone in operation s knows that everyone has finished s - 1.
  if (has_heard_from_all()) epoch_.known_called = sequence_;
  if (plan_->trades_scratch) epoch_.traded[sequence_ % kHalves] = !epoch_.traded[sequence_ % kHalves];
  epoch_.bank.progress(epoch_.rank).finished.store(sequence_, std::memory_order_release);
}

}  // namespace tugline::comm
