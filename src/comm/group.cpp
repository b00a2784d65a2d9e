// SPDX-License-Identifier: Apache-2.0
#include "comm/group.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/clock.h"
#include "base/settings.h"
#include "comm/state.h"

namespace tugline::comm {
namespace {

// Calls of one lane run one after the other; lanes run together. A communicator's collectives are one lane,
// the messages to each peer and from each peer are lanes of their own.
using Lane = std::tuple<const CommunicatorState*, int, std::int32_t>;

Lane lane_of(const GroupCall& entry) {
  const Call& call = entry.call;
  const int kind = !call.is_message() ? 0 : call.is_send() ? 1 : 2;
  return {entry.communicator.get(), kind, call.is_message() ? call.root : 0};
}

struct Item {
  GroupCall entry;
  std::unique_ptr<PlanRun> run;
  bool started = false;
  bool ended = false;
};

// A rank's messages to itself are copies from the n-th send to the n-th receive.
void copy_messages_to_self(std::vector<Item>& items) {
  std::map<const CommunicatorState*, std::pair<std::vector<Item*>, std::vector<Item*>>> messages;
  for (auto& item : items) {
    const auto& [communicator, call] = item.entry;
    if (!call.is_message() || call.root != communicator->rank()) continue;
    auto& [sends, receives] = messages[communicator.get()];
    (call.is_send() ? sends : receives).push_back(&item);
  }
  for (auto& [communicator, both] : messages) {
    auto& [sends, receives] = both;
    for (std::size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
      const bool paired = i < sends.size() && i < receives.size();
      if (!paired || describe(sends[i]->entry.call) != describe(receives[i]->entry.call)) {
        const Call& one = (i < sends.size() ? sends : receives)[i]->entry.call;
        throw Error(ErrorCode::mismatch,
                    "a message of rank " + std::to_string(communicator->rank()) + " to itself, " +
                        to_text(describe(one)) + ", has no partner of the same count and type in the group",
                    "put the matching send and recv into the same Group");
      }
      if (const auto bytes = sends[i]->entry.call.bytes(); bytes != 0)
        std::memmove(receives[i]->entry.call.recv, sends[i]->entry.call.send, bytes);
      sends[i]->started = sends[i]->ended = receives[i]->started = receives[i]->ended = true;
    }
  }
}

// The busy words of all communicators of the group.
class Hold {
 public:
  explicit Hold(const std::vector<Item>& items) {
    try {
      for (const auto& item : items) {
        if (!held_.insert(item.entry.communicator.get()).second) continue;
        try {
          item.entry.communicator->begin_exclusive(item.entry.call);
        } catch (...) {
          held_.erase(item.entry.communicator.get());
          throw;
        }
      }
    } catch (...) {
      release();
      throw;
    }
  }
  ~Hold() { release(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  const std::set<CommunicatorState*>& communicators() const noexcept { return held_; }

 private:
  void release() noexcept {
    for (auto* communicator : held_) communicator->end_exclusive();
    held_.clear();
  }
  std::set<CommunicatorState*> held_;
};

class Drive {
 public:
  Drive(std::vector<Item>& items, const std::set<CommunicatorState*>& communicators) : items_(items) {
    for (auto* communicator : communicators) states_.push_back(communicator);
  }

  // One round over all calls; true when some of them moved.
  bool advance() {
    bool moved = false;
    std::set<Lane> taken;
    for (auto& item : items_) {
      if (item.ended) continue;
      if (!taken.insert(lane_of(item.entry)).second) continue;  // an earlier call of its lane is not done
      auto& communicator = *item.entry.communicator;
      if (!item.started) {
        item.run = communicator.make_run(item.entry.call);
        item.started = true;
      }
      const Poll result = item.run ? item.run->advance() : Poll::done;
      if (item.run && item.run->mismatch_peer() >= 0) {
        fail(item, {});
      } else if (result == Poll::done) {
        item.ended = true;
      }
      moved = moved || result != Poll::blocked || item.ended;
    }
    return moved;
  }

  bool all_ended() const {
    return std::all_of(items_.begin(), items_.end(), [](const Item& item) { return item.ended; });
  }

  // Ends the calls of communicators that cannot go on.
  void look_at_alarms() {
    for (auto& item : items_) {
      if (item.ended || !item.run) continue;
      const Status status = item.entry.communicator->look_at_alarm(item.run->pending());
      if (status.ok()) continue;
      // What a rank wrote before it went may lie there unread: it counts.
      Poll result = Poll::progressed;
      while (result == Poll::progressed) result = item.run->advance();
      item.ended = result == Poll::done;
      if (!item.ended) fail(item, status);
    }
  }

  void look_for_mismatches() {
    for (auto& item : items_)
      if (!item.ended && item.run) {
        item.run->look_for_mismatch();
        if (item.run->mismatch_peer() >= 0) fail(item, {});
      }
  }

  void nap() {
    // Asleep at every communicator's doorbell, but the futex is the first one's: the others are seen when
    // time is up.
    std::vector<std::unique_ptr<Nap>> naps;
    for (auto* state : states_) naps.push_back(std::make_unique<Nap>(state->wait_place()));
    if (!advance() && !naps.empty()) naps.front()->sleep(states_.size() == 1 ? kAlone : kShared);
  }

  void rethrow() const {
    if (first_) throw *first_;
  }

 private:
  static constexpr std::uint64_t kAlone = 1'000'000;
  static constexpr std::uint64_t kShared = 100'000;

  void fail(Item& item, Status status) {
    item.ended = true;
    auto& communicator = *item.entry.communicator;
    if (item.run) {
      status = communicator.settle(*item.run, status);
    }
    if (!first_) first_ = communicator.to_error(status, item.entry.call);
  }

  std::vector<Item>& items_;
  std::vector<CommunicatorState*> states_;
  std::optional<Error> first_;
};

}  // namespace

void add_to_group(GroupState& group, std::shared_ptr<CommunicatorState> communicator, const Call& call) {
  group.calls.push_back({std::move(communicator), call});
}

void run_group(std::vector<GroupCall> calls) {
  std::vector<Item> items(calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) items[i].entry = std::move(calls[i]);
  Hold hold(items);
  copy_messages_to_self(items);
  Drive drive(items, hold.communicators());

  const std::uint64_t spin_ns = std::uint64_t{base::settings().spin_us} * 1000;
  constexpr std::uint64_t kLookEvery = 1'000'000;
  std::uint64_t idle_since = 0;
  std::uint64_t next_look = 0;
  while (!drive.all_ended()) {
    if (drive.advance()) {
      idle_since = 0;
      continue;
    }
    const std::uint64_t now = base::monotonic_ns();
    if (idle_since == 0) idle_since = now;
    if (now >= next_look) {
      next_look = now + kLookEvery;
      drive.look_for_mismatches();
      drive.look_at_alarms();
      if (drive.all_ended()) break;
    }
    if (now - idle_since < spin_ns) {
      sched_yield();
    } else {
      drive.nap();
    }
  }
  drive.rethrow();
}

}  // namespace tugline::comm
