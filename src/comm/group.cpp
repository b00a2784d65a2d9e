// SPDX-License-Identifier: Apache-2.0
#include "comm/group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <map>
#include <memory_resource>
#include <optional>
#include <tuple>

#include "base/clock.h"
#include "base/settings.h"
#include "comm/late.h"
#include "comm/patience.h"
#include "comm/state.h"
#include "comm/wait_note.h"

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
  const GroupCall* entry = nullptr;
  const Item* before = nullptr;  ///< of its lane
  AnyRun room;
  Run* run = nullptr;
  bool started = false;
  bool ended = false;
};
using Items = std::span<Item>;

/// Groups of so many calls need no memory of the heap.
constexpr std::size_t kFewItems = 2;

void find_lanes(Items items) {
  std::vector<std::pair<Lane, Item*>> lanes;
  lanes.reserve(items.size());
  for (auto& item : items) lanes.emplace_back(lane_of(*item.entry), &item);
  std::sort(lanes.begin(), lanes.end());  // of one lane, in the order of the calls
  for (std::size_t i = 1; i < lanes.size(); ++i)
    if (lanes[i].first == lanes[i - 1].first) lanes[i].second->before = lanes[i - 1].second;
}

// A send and a receive among two ranks or three: the commonest group, with nothing to sort out.
bool is_exchange(Items items) {
  if (items.size() != kFewItems) return false;
  const auto& [one, other] = std::tie(*items[0].entry, *items[1].entry);
  const auto leaves = [](const GroupCall& entry) {
    return entry.call.is_message() && entry.call.root != entry.communicator->rank();
  };
  return one.communicator == other.communicator && leaves(one) && leaves(other) &&
         one.call.direction != other.call.direction;
}

// A rank's messages to itself are copies from the n-th send to the n-th receive.
void copy_messages_to_self(Items items) {
  std::map<const CommunicatorState*, std::pair<std::vector<Item*>, std::vector<Item*>>> messages;
  for (auto& item : items) {
    const auto& [communicator, call] = *item.entry;
    if (!call.is_message() || call.root != communicator->rank()) continue;
    auto& [sends, receives] = messages[communicator.get()];
    (call.is_send() ? sends : receives).push_back(&item);
  }
  for (auto& [communicator, both] : messages) {
    auto& [sends, receives] = both;
    for (std::size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
      const bool paired = i < sends.size() && i < receives.size();
      if (!paired || describe(sends[i]->entry->call) != describe(receives[i]->entry->call)) {
        const Call& one = (i < sends.size() ? sends : receives)[i]->entry->call;
        throw Error(ErrorCode::mismatch,
                    "a message of rank " + std::to_string(communicator->rank()) + " to itself, " +
                        to_text(describe(one), one.direction) +
                        ", has no partner of the same count and type in the group",
                    "put the matching send and recv into the same Group",
                    {.operation = to_text(describe(one), one.direction),
                     .communicator = communicator->name(),
                     .rank = communicator->rank(),
                     .peer = communicator->rank()});
      }
      if (const auto bytes = sends[i]->entry->call.bytes(); bytes != 0)
        std::memmove(receives[i]->entry->call.recv, sends[i]->entry->call.send, bytes);
      sends[i]->started = sends[i]->ended = receives[i]->started = receives[i]->ended = true;
    }
  }
}

using Communicators = std::pmr::vector<CommunicatorState*>;

// The busy words of all communicators of the group.
class Hold {
 public:
  explicit Hold(Items items) {
    held_.reserve(kFewItems);
    try {
      for (const auto& item : items) {
        auto* communicator = item.entry->communicator.get();
        if (std::find(held_.begin(), held_.end(), communicator) != held_.end()) continue;
        held_.push_back(communicator);
        try {
          communicator->begin_exclusive(item.entry->call);
        } catch (...) {
          held_.pop_back();
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
  const Communicators& communicators() const noexcept { return held_; }

 private:
  void release() noexcept {
    for (auto* communicator : held_) communicator->end_exclusive();
    held_.clear();
  }
  std::byte few_[kFewItems * sizeof(void*)];
  std::pmr::monotonic_buffer_resource memory_{few_, sizeof few_};
  Communicators held_{&memory_};
};

class Drive {
 public:
  Drive(Items items, const Communicators& communicators) : items_(items), states_(communicators) {}

  // One round over all calls; true when some of them moved.
  bool advance() {
    bool moved = false;
    for (auto& item : items_) {
      if (item.ended || (item.before != nullptr && !item.before->ended)) continue;
      auto& communicator = *item.entry->communicator;
      if (!item.started) {
        item.run = communicator.make_run(item.entry->call, item.room);
        item.started = true;
      }
      const Poll result = item.run != nullptr ? item.run->advance() : Poll::done;
      if (item.run != nullptr && item.run->has_failed()) {
        fail(item, {});
      } else if (result == Poll::done) {
        item.ended = true;
      }
      moved = moved || result != Poll::blocked || item.ended;
    }
    return moved;
  }

  // Rounds before the clock is read for the first time: most small groups are done then. A rank that waits
  // for this core needs it now.
  bool ends_soon() {
    constexpr int kEagerRounds = 2000;
    for (int i = 0, rounds = own_cores() ? kEagerRounds : 1; i < rounds; ++i) {
      if (advance()) i = 0;
      if (all_ended()) return true;
      if (alarm_has_moved()) return false;
    }
    return false;
  }

  bool own_cores() const {
    return std::all_of(states_.begin(), states_.end(),
                       [](CommunicatorState* state) { return state->wait_place().own_core; });
  }

  bool all_ended() const {
    return std::all_of(items_.begin(), items_.end(), [](const Item& item) { return item.ended; });
  }

  // Ends the calls of communicators that cannot go on.
  void look_at_alarms() {
    for (auto* state : states_) {
      auto& place = state->wait_place();
      place.alarm_seen = place.control->alarm.load(std::memory_order_acquire);
    }
    for (auto& item : items_) {
      if (item.ended || !item.run) continue;
      const Status status = item.entry->communicator->look_at_alarm(item.run->pending());
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
        if (item.run->has_failed()) fail(item, {});
      }
  }

  // True when some call moved instead.
  bool nap(std::uint64_t nanoseconds) {
    std::vector<std::unique_ptr<Nap>> naps;
    for (auto* state : states_) naps.push_back(std::make_unique<Nap>(state->wait_place()));
    // Blocked still, now that whoever raises a flag sees that this rank sleeps.
    if (advance()) return true;
    Nap::sleep_any(naps, nanoseconds);
    return false;
  }

  bool alarm_has_moved() const {
    return std::any_of(states_.begin(), states_.end(), [](CommunicatorState* state) {
      const auto& place = state->wait_place();
      return place.control->alarm.load(std::memory_order_acquire) != place.alarm_seen;
    });
  }

  /// The first call that is not done stands for the group.
  void report(std::uint64_t waited_ns) const {
    if (const auto* item = first_open())
      report_wait(item->entry->communicator->wait_place(), item->run->subject(), waited_ns);
  }

  void publish(PublishedWait& published, std::uint64_t since_ns) const {
    if (const auto* item = first_open())
      published.publish(item->entry->communicator->wait_place(), item->run->subject(), since_ns);
  }

  // Ends the calls that have begun; those behind them in their lanes never begin.
  void time_out() {
    for (auto& item : items_) {
      if (!item.ended && item.run) {
        const WaitSubject about = item.run->subject();
        fail(item, {ErrorCode::timed_out, about.peer, 0, about.sequence});
      }
      item.ended = true;
    }
  }

  void rethrow() const {
    if (first_) throw *first_;
  }

 private:
  const Item* first_open() const noexcept {
    for (const auto& item : items_)
      if (!item.ended && item.run) return &item;
    return nullptr;
  }

  void fail(Item& item, Status status) {
    item.ended = true;
    auto& communicator = *item.entry->communicator;
    if (item.run) {
      status = communicator.settle(*item.run, status);
    }
    if (!first_) first_ = communicator.to_error(status, item.entry->call);
  }

  Items items_;
  const Communicators& states_;
  std::optional<Error> first_;
};

}  // namespace

void add_to_group(GroupState& group, std::shared_ptr<CommunicatorState> communicator, Call call) {
  group.calls.emplace_back(std::move(communicator), std::move(call));
}

void run_group(std::span<const GroupCall> calls) {
  std::array<Item, kFewItems> few;
  std::vector<Item> many(calls.size() > kFewItems ? calls.size() : 0);
  const Items items = many.empty() ? Items(few).first(calls.size()) : Items(many);
  for (std::size_t i = 0; i < calls.size(); ++i) items[i].entry = &calls[i];
  const Hold hold(items);
  if (!is_exchange(items)) {
    copy_messages_to_self(items);
    find_lanes(items);
  }
  Drive drive(items, hold.communicators());
  if (drive.ends_soon()) return drive.rethrow();

  constexpr std::uint64_t kLookEvery = 1'000'000;
  base::RunningClock clock;
  const bool own_cores = drive.own_cores();
  Patience patience(base::settings(), own_cores, clock.read(base::monotonic_ns()));
  PublishedWait published;
  std::uint64_t next_look = 0;
  while (!drive.all_ended()) {
    const bool moved = drive.advance();
    const std::uint64_t moment = base::monotonic_ns();
    const std::uint64_t now = clock.read(moment);
    if (moved) {
      patience.moved(now);
      published.withdraw();
      continue;
    }
    if (now >= next_look || drive.alarm_has_moved()) {
      next_look = now + kLookEvery;
      if (patience.is_long(now)) drive.publish(published, moment - patience.waited(now));
      drive.look_for_mismatches();
      drive.look_at_alarms();
      if (drive.all_ended()) break;
    }
    if (patience.report_is_due(now)) drive.report(patience.waited(now));
    if (patience.is_over(now)) {
      drive.time_out();
      published.time_out(moment);
    } else if (patience.may_spin(now)) {
      give_way(own_cores);
    } else if (drive.nap(patience.nap(now))) {
      patience.moved(now);
      published.withdraw();
    }
  }
  drive.rethrow();
}

}  // namespace tugline::comm
