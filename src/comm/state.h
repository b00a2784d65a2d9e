// SPDX-License-Identifier: Apache-2.0
// A communicator's state at one rank: identity, current epoch, plan cache, failure, agreement. The public
// Communicator and Group forward here.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "broker/client.h"
#include "comm/call.h"
#include "comm/epoch.h"
#include "comm/group.h"
#include "comm/message_run.h"
#include "comm/one_shot_packet.h"
#include "comm/plan_run.h"
#include "comm/request.h"
#include "comm/wait.h"
#include "core/agreement.h"
#include "memory/member_memory.h"
#include "topology/locality.h"
#include "tugline/communicator.h"

namespace tugline::comm {

/// Room for a run of either kind.
using AnyRun = std::variant<std::monostate, MessageRun, PlanRun>;

class CommunicatorState : public std::enable_shared_from_this<CommunicatorState> {
 public:
  struct Identity {
    std::string name;           ///< unique among the job's communicators
    std::uint32_t rank = 0;     ///< original rank
    std::uint32_t size = 1;     ///< original size
    std::uint64_t process = 0;  ///< where addresses of it mean something; 0: this process's own
    /// Where it runs; none: as the topology says of the cores that it may use.
    std::optional<topology::Locality> locality;
    bool own_core = false;                        ///< known already from the communicator it was split from
    std::shared_ptr<CommunicatorState> parent;    ///< that communicator; null for the first one
    std::vector<std::uint32_t> parent_originals;  ///< original rank there, by original rank here
    std::vector<broker::MemberId>
        members;  ///< by original rank; empty: they register on the board as they come
  };

  static std::shared_ptr<CommunicatorState> create(std::shared_ptr<broker::Client> client, Device& device,
                                                   Identity identity);
  ~CommunicatorState();

  int rank() const noexcept { return static_cast<int>(position().rank); }
  int size() const noexcept { return static_cast<int>(position().size); }
  std::uint64_t generation() const noexcept { return position().generation; }
  const std::string& name() const noexcept { return identity_.name; }

  /// Checks the call and runs, enqueues or collects it.
  void submit(Call call, const Target& target);
  /// Begins `operation`, which is of this communicator, beside the caller.
  void begin_request(Request& request, std::function<void()> operation);
  /// Requests so far end before what the caller does next.
  void drain_requests() { requests_.drain(); }
  void hold_back(StreamRef stream) { requests_.hold_back(stream); }
  Outcome agree();
  std::shared_ptr<CommunicatorState> split(int color, int key);
  void abort(std::string_view reason);
  Status status() const noexcept;
  void check() const;

  /// Uses this plan for every call that it fits; for `bench --plan`. Null: back to the selection.
  void force_plan(std::shared_ptr<const core::Plan> plan) { forced_plan_ = std::move(plan); }

  // For groups, which drive several communicators at once. The busy word is held from begin() to end().
  void begin_exclusive(const Call& call);
  void end_exclusive() noexcept { busy_.store(false, std::memory_order_release); }
  /// A run of the call in the current epoch, in `room`; null when the call needs none (one rank; then it is
  /// done already).
  Run* make_run(const Call& call, AnyRun& room);
  /// The state of waiting: ok while it makes sense to go on.
  Status look_at_alarm(const Pending& pending) const noexcept;
  WaitPlace& wait_place() noexcept { return place_; }
  /// Records a failed operation (for agree() and later calls); publishes a mismatch to all ranks.
  Status settle(const Run& run, Status status);
  /// `operation`: what is not a call of `call`'s kind.
  Error to_error(const Status& status, const Call& call, std::string_view operation = {}) const;
  std::shared_ptr<Epoch> current() const noexcept {
    std::lock_guard lock(epoch_mutex_);
    return epoch_;
  }
  Device& device() const noexcept { return device_; }
  /// Operations of this rank that ran a direct plan, for tests.
  std::uint64_t direct_operations() const noexcept {
    return direct_operations_.load(std::memory_order_relaxed);
  }

 private:
  CommunicatorState(std::shared_ptr<broker::Client> client, Device& device, Identity identity);

  std::shared_ptr<const MappedBoard> open_board(const std::string& name);
  std::shared_ptr<Epoch> make_epoch(std::shared_ptr<const MappedBoard> board, EpochId id,
                                    std::vector<std::uint32_t> originals);
  void enter_epoch(std::shared_ptr<Epoch> next);
  /// By a decision of this communicator.
  void enter_next_epoch(std::vector<std::uint32_t> originals);
  /// By a decision of an ancestor, or the very first one.
  void enter_first_epoch(std::vector<std::uint32_t> originals);
  enum class Reach : bool { own_buffers, all_buffers };
  /// Null while the choice asks where ranks run that have not come yet.
  std::shared_ptr<const core::Plan> plan_for(const Call& call, Epoch& epoch,
                                             Reach reach = Reach::own_buffers);
  /// Of an all_to_all_v that all have published.
  std::shared_ptr<const core::Plan> direct_pairs_plan(const Call& call, const Epoch& epoch,
                                                      std::uint64_t sequence) const;
  PlanSource plan_source(const Call& call, Epoch& epoch);
  /// None for calls that never go direct.
  std::optional<DirectOption> direct_option(const Call& call, Epoch& epoch);
  MessageReach message_reach(const Call& call, Epoch& epoch);
  /// What direct plans and messages need to withdraw a buffer, by rank of the epoch.
  std::function<bool(std::uint32_t)> who_may_store(Epoch& epoch) {
    return [this, &epoch](std::uint32_t rank) { return may_store(epoch.originals[rank]); };
  }
  Status execute(const Call& call);
  Status execute_exclusively(const Call& call);
  Status run_alone(const Call& call) noexcept;
  void publish_cores(Board& board);
  /// Where the ranks of the epoch run; null while some have not come.
  const core::CostModel* machine(Epoch& epoch) const;
  /// Whether all ranks are threads of this process; false too while some have not come.
  bool all_in_one_process(Epoch& epoch) const noexcept;
  Board& board() const noexcept { return epoch_->board->get(); }
  void decide_how_to_wait() noexcept;

  Status failure_of(const Epoch& epoch, const Pending& pending) const noexcept;
  /// Mismatch where the settings of two ranks of the epoch differ.
  Status settings_status(const Epoch& epoch) const noexcept;
  // Of the family: this communicator, those it was split from, those split from it (family.cpp).
  Status passed_over(const Epoch& epoch, const Pending& pending) const noexcept;
  Status agreement_passed_over(const Epoch& epoch) const noexcept;
  void raise_passed_over(std::uint64_t sequence, const Status& status, const Descriptor& mine) noexcept;
  CommunicatorState& ancestor(std::uint64_t generations_up) noexcept;
  std::uint32_t original_above(std::uint32_t original, std::uint64_t generations_up) noexcept;
  using Family = std::vector<std::shared_ptr<CommunicatorState>>;
  Family descendants() const;
  bool family_failed() const noexcept;
  void absorb(const core::RankSet& lost_members, bool aborted);
  core::Agreement::Ahead ahead_of_this_rank(std::uint32_t original,
                                            std::uint64_t& generations_up) const noexcept;

  /// Holds the busy words of this communicator and of all its descendants, so that no operation of them runs
  /// beside an agreement. Throws invalid_usage when an operation of this communicator runs; waits for those
  /// of the descendants.
  class HeldFamily {
   public:
    /// `below`: the descendants; outlives this.
    HeldFamily(CommunicatorState& state, const Family& below, std::string_view operation);
    ~HeldFamily();
    HeldFamily(const HeldFamily&) = delete;
    HeldFamily& operator=(const HeldFamily&) = delete;

   private:
    void release() noexcept;
    CommunicatorState& state_;
    const Family& below_;
    std::size_t held_ = 0;
  };

  bool agreement_is_mismatched(const Epoch& epoch) const noexcept;
  core::MemberState standing(std::uint32_t original) const noexcept;
  /// False once the rank's process can run its code no more, which is known later than its death. Without a
  /// broker it may never be known: then the dead count as ended.
  bool may_store(std::uint32_t original) const noexcept;
  const core::MemberSlot* absence_of(std::uint32_t original) const noexcept;
  std::string not_yet_joined(std::int32_t rank) const;
  int member_of(std::uint32_t original) const noexcept;
  /// What two ranks of this communicator called, and in which communicator if not in this one.
  struct Difference {
    std::int32_t other = -1;  ///< rank; the first one is this rank
    Descriptor calls[2];
    std::string_view communicators[2] = {};
  };
  void raise_mismatch(FailureKind kind, std::uint64_t sequence, const Difference& difference) noexcept;
  void raise_mismatch(FailureKind kind, const CallDifference& difference) noexcept;
  template <class Fill>
  void raise_failure(FailureKind kind, const Fill& fill) noexcept;
  void raise_alarm() noexcept;
  void remember(const Status& status) noexcept;
  void compare_calls(const Family& below, const core::Decision& decision);
  core::Decision decide(const Family& below, bool complete, core::RankSet& gone_set, Status& broker);
  void ring_everyone(const Epoch& epoch) noexcept;

  std::shared_ptr<broker::Client> client_;
  std::shared_ptr<memory::MemberMemory> memory_;
  Device& device_;
  Identity identity_;
  core::ControlSegment* control_ = nullptr;
  std::uint64_t scratch_bytes_ = 0;
  bool waiting_decided_ = false;

  mutable std::mutex epoch_mutex_;
  std::shared_ptr<Epoch> epoch_;
  /// What every call asks of the current epoch. Old ones are kept, a few bytes per epoch, so that no reader
  /// needs the lock: it would cost an eighth of an 8-byte operation.
  struct Position {
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
    std::uint64_t generation = 0;
  };
  const Position& position() const noexcept { return *position_.load(std::memory_order_acquire); }
  std::deque<Position> positions_;
  std::atomic<const Position*> position_{nullptr};
  WaitPlace place_;
  std::atomic<bool> busy_{false};
  std::optional<core::Agreement> agreement_;  ///< on the epoch's board
  /// Read by a call of agree() that ended in a mismatch; the next call returns it.
  std::optional<core::Decision> held_decision_;

  mutable std::mutex status_mutex_;
  Status status_;
  std::atomic<bool> failed_{false};

  std::uint64_t settlements_ = 0;    ///< by agreements, on the present board
  std::uint64_t splits_ = 0;         ///< in this epoch
  std::uint64_t own_decisions_ = 0;  ///< that ended epochs since the last one of an ancestor
  std::vector<std::weak_ptr<CommunicatorState>> children_;

  std::atomic<std::uint64_t> direct_operations_{0};
  std::shared_ptr<const core::Plan> forced_plan_;
  struct PlanKey {
    std::uint64_t kind, count, variant;  // with counts, CachedPlan::counts decides
    friend bool operator==(const PlanKey&, const PlanKey&) = default;
  };
  struct PlanKeyHash {
    std::size_t operator()(const PlanKey& key) const noexcept {
      return key.kind * 0x9e3779b97f4a7c15u ^ key.count * 0xd6e8feb86659fd93u ^ key.variant << 56;
    }
  };
  struct CachedPlan {
    std::shared_ptr<const core::Plan> plan;
    std::shared_ptr<const Counts> counts;
  };
  std::unordered_map<PlanKey, CachedPlan, PlanKeyHash> plans_;
  RequestStream requests_;  // the last member: its thread uses the others
};

}  // namespace tugline::comm
