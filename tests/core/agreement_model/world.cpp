// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <algorithm>
#include <cstring>

namespace tugline::core::model {
namespace {

/// Ends a call before its next access.
struct Paused {};

struct DecodedRecord {
  std::uint32_t agreement;
  std::uint32_t proposer;
  bool changed;
  std::uint8_t verdict;
};
// Read here independently of the protocol's own decoder, which may be a mutant's.
DecodedRecord decode_record(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word >> 16), static_cast<std::uint32_t>(word >> 8 & 0xff),
          (word & 4) != 0, static_cast<std::uint8_t>(word & 3)};
}

std::uint8_t bit(int rank) {
  return static_cast<std::uint8_t>(1U << rank);
}

[[noreturn]] void violated(const std::string& what, int rank, std::uint64_t agreement) {
  throw Violation(what + " (rank " + std::to_string(rank) + ", agreement " + std::to_string(agreement) + ")");
}

AgreementState unpack(const Member& member, int rank, const Options& options) {
  AgreementState state;
  state.rank = static_cast<std::uint32_t>(rank);
  state.size = static_cast<std::uint32_t>(options.ranks);
  state.records = static_cast<std::uint32_t>(options.records);
  state.seen = member.seen;
  state.any_failed = member.any_failed != 0;
  state.current = member.current;
  state.last.verdict = static_cast<Verdict>(member.verdict);
  state.last.agreement = member.agreement;
  state.last.epoch = member.epoch;
  state.last.lost.words[0] = member.lost;
  return state;
}

void pack(const AgreementState& state, Member& member) {
  member.seen = static_cast<std::uint8_t>(state.seen);
  member.any_failed = state.any_failed ? 1 : 0;
  member.current = static_cast<std::uint8_t>(state.current);
  member.verdict = static_cast<std::uint8_t>(state.last.verdict);
  member.agreement = static_cast<std::uint8_t>(state.last.agreement);
  member.epoch = static_cast<std::uint8_t>(state.last.epoch);
  member.lost = static_cast<std::uint8_t>(state.last.lost.words[0]);
}

}  // namespace

/// Replays the accesses that the call has made already from its log, makes the next ones for real, then
/// pauses the call before the one after.
class World::StepHook final : public Hook {
 public:
  StepHook(World& world, State& state, int rank, int accesses)
      : world_(world), state_(state), rank_(rank), fresh_(accesses) {}

  std::uint64_t load(const AgreementBoard::Word& word) override {
    // Only this member writes these, so when it looks at them makes no difference: not a step of its own.
    if (&word == &world_.board_->posts[rank_].word || slot_of_own_area(word) >= 0)
      return word.load(std::memory_order_relaxed);
    if (replaying(true)) return member().log[at_++];
    return record(word.load(std::memory_order_relaxed));
  }
  void store(AgreementBoard::Word& word, std::uint64_t value) override {
    // As long as nobody can come to read the area, when it is written makes no difference either.
    const int slot = slot_of_own_area(word);
    if (replaying(slot < 0 || may_be_read(slot))) {
      ++at_;
      return;
    }
    const auto before = word.load(std::memory_order_relaxed);
    word.store(value, std::memory_order_relaxed);
    record(0);
    if (is_decided(word)) world_.decided(state_, rank_, before, value);
  }
  bool swap(AgreementBoard::Word& word, std::uint64_t& expected, std::uint64_t desired) override {
    // The log keeps the value found; it tells success as well.
    std::uint64_t found;
    if (replaying(true)) {
      found = member().log[at_++];
    } else {
      found = word.load(std::memory_order_relaxed);
      record(found);
      if (found == expected) {
        word.store(desired, std::memory_order_relaxed);
        world_.decided(state_, rank_, found, desired);
      }
    }
    const bool success = found == expected;
    expected = found;
    return success;
  }

 private:
  Member& member() { return state_.members[rank_]; }
  bool replaying(bool is_a_step) {
    if (at_ < member().log_size) return true;
    if (!is_a_step) return false;
    if (fresh_ == 0) throw Paused{};
    --fresh_;
    return false;
  }
  int slot_of_own_area(const AgreementBoard::Word& word) const {
    const auto* areas = world_.board_->proposals[rank_];
    const auto* at = reinterpret_cast<const std::byte*>(&word);
    const auto* start = reinterpret_cast<const std::byte*>(areas);
    if (at < start || at >= start + sizeof world_.board_->proposals[rank_]) return -1;
    return static_cast<int>((at - start) / static_cast<std::ptrdiff_t>(sizeof *areas));
  }
  bool points_here(std::uint64_t word, int slot) const {
    const auto record = decode_record(word);
    return record.agreement != 0 && record.changed && record.proposer == static_cast<std::uint32_t>(rank_) &&
           static_cast<int>(record.agreement) % world_.options_.records == slot;
  }
  /// Somebody's way to this member's area leads through a record, in memory or in what somebody has read.
  bool may_be_read(int slot) const {
    if (points_here(world_.board_->decided[slot].load(std::memory_order_relaxed), slot)) return true;
    for (int other = 0; other < world_.options_.ranks; ++other) {
      const auto& reader = state_.members[other];
      if (other == rank_ || reader.phase != Phase::in_call) continue;
      for (int i = 0; i < reader.log_size; ++i)
        if (points_here(reader.log[i], slot)) return true;
    }
    return false;
  }
  std::uint64_t record(std::uint64_t value) {
    if (at_ >= kMaxLog) throw std::logic_error("a call makes more accesses than kMaxLog");
    member().log[at_++] = static_cast<std::uint32_t>(value);
    member().log_size = static_cast<std::uint8_t>(at_);
    return value;
  }
  bool is_decided(const AgreementBoard::Word& word) const {
    return &word >= world_.board_->decided && &word < world_.board_->decided + kAgreementRecords;
  }

  World& world_;
  State& state_;
  const int rank_;
  int fresh_;
  int at_ = 0;
};

World::World(const Protocol& protocol, const Options& options)
    : protocol_(protocol), options_(options), board_(std::make_unique<AgreementBoard>()) {
  for (int i = 0; i < options.records; ++i) words_.push_back(&board_->decided[i]);
  for (int rank = 0; rank < options.ranks; ++rank) {
    words_.push_back(&board_->posts[rank].word);
    for (int i = 0; i < options.records; ++i) {
      auto& area = board_->proposals[rank][i];
      words_.insert(words_.end(), {&area.agreement, &area.epoch, &area.lost[0]});
    }
  }
}

State World::initial() const {
  State state;
  state.crashes_left = static_cast<std::uint8_t>(options_.crashes);
  state.zombies_left = static_cast<std::uint8_t>(options_.zombies);
  state.truth[0].verdict = static_cast<std::uint8_t>(Verdict::committed);
  return state;
}

void World::actions(const State& state, std::vector<Action>& result) const {
  result.clear();
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const auto& member = state.members[rank];
    const auto r = static_cast<std::uint8_t>(rank);
    if (member.phase == Phase::in_call) {
      result.push_back({Action::Kind::step, r, member.call, member.known_gone});
    } else if (member.phase == Phase::computing) {
      result.push_back({Action::Kind::step, r, CallKind::post_complete, member.known_gone});
      if (options_.may_fail >> rank & 1)
        result.push_back({Action::Kind::step, r, CallKind::post_failed, member.known_gone});
    } else if (member.phase == Phase::waiting) {
      const auto news = static_cast<std::uint8_t>(state.marked & ~member.known_gone);
      for (std::uint8_t some = news;; some = static_cast<std::uint8_t>((some - 1) & news)) {
        const auto learns = static_cast<std::uint8_t>(member.known_gone | some);
        result.push_back({Action::Kind::step, r, CallKind::advance, learns});
        if (options_.may_abort >> rank & 1)
          result.push_back({Action::Kind::step, r, CallKind::give_up, learns});
        if (some == 0) break;
      }
    }
  }
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const auto phase = state.members[rank].phase;
    if (phase == Phase::done || phase == Phase::removed || phase == Phase::crashed) continue;
    const auto r = static_cast<std::uint8_t>(rank);
    if (state.crashes_left > 0) result.push_back({Action::Kind::crash, r, CallKind::none, 0});
    if (state.zombies_left > 0 && (state.marked & bit(rank)) == 0)
      result.push_back({Action::Kind::zombie, r, CallKind::none, 0});
  }
}

void World::apply(State& state, const Action& action, int accesses) {
  auto& member = state.members[action.rank];
  switch (action.kind) {
    case Action::Kind::crash:
      // What it knew is gone; only its words in shared memory count from now on.
      member = {};
      member.phase = Phase::crashed;
      state.crashed |= bit(action.rank);
      state.marked |= bit(action.rank);
      --state.crashes_left;
      return;
    case Action::Kind::zombie:
      state.marked |= bit(action.rank);
      --state.zombies_left;
      return;
    case Action::Kind::step:
      step(state, action, accesses);
      return;
  }
}

void World::step(State& state, const Action& action, int accesses) {
  auto& member = state.members[action.rank];
  if (member.phase != Phase::in_call) {
    member.phase = Phase::in_call;
    member.call = action.call;
    member.known_gone = action.learns;
    auto& truth = state.truth[member.agreement + 1];
    const bool open = truth.verdict == 0;
    if (open && action.call == CallKind::post_complete) truth.complete |= bit(action.rank);
    if (open && action.call == CallKind::post_failed) truth.failed |= bit(action.rank);
    if (open && action.call == CallKind::give_up) truth.given_up |= bit(action.rank);
  }
  load_board(state);
  auto self = unpack(member, action.rank, options_);
  RankSet gone;
  gone.words[0] = member.known_gone;
  StepHook hook(*this, state, action.rank, accesses);
  try {
    const auto decision = protocol_.run(*board_, self, member.call, gone, hook);
    save_board(state);
    complete(state, action.rank, self, decision);
  } catch (const Paused&) {
    save_board(state);
  }
}

void World::complete(State& state, int rank, const AgreementState& self, const Decision& decision) {
  auto& member = state.members[rank];
  const bool posted = member.call == CallKind::post_complete || member.call == CallKind::post_failed;
  const auto number = member.current;
  pack(self, member);
  member.call = CallKind::none;
  member.log_size = 0;
  std::memset(member.log, 0, sizeof member.log);
  if (posted || decision.verdict == Verdict::undecided) {
    member.phase = Phase::waiting;
    return;
  }
  if (self.removed) {
    if ((state.marked & bit(rank)) == 0)
      violated("a member that nobody took for dead was removed", rank, number);
    const auto known = member.known_gone;
    member = {};
    member.phase = Phase::removed;
    member.known_gone = known;
    return;
  }
  const auto& truth = state.truth[number];
  if (decision.agreement != number) violated("another agreement's decision was returned", rank, number);
  if (truth.verdict == 0) violated("a decision was read before there was one", rank, number);
  if (static_cast<std::uint8_t>(decision.verdict) != truth.verdict || decision.epoch != truth.epoch ||
      decision.lost.words[0] != truth.lost)
    violated("members read different decisions", rank, number);
  if (truth.lost & bit(rank)) violated("a removed member takes itself for a survivor", rank, number);
  member.phase = number == options_.agreements ? Phase::done : Phase::computing;
  forget(state);
}

/// Clears what no later step can ask for, so that states that differ in it only are one.
void World::forget(State& state) const {
  int oldest = options_.agreements;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const auto& member = state.members[rank];
    if (member.phase != Phase::crashed && member.phase != Phase::removed)
      oldest = std::min<int>(oldest, member.agreement);
  }
  for (int number = 0; number < oldest; ++number) state.truth[number] = {};
}

void World::decided(State& state, int rank, std::uint64_t before, std::uint64_t after) {
  const auto old = decode_record(before);
  const auto record = decode_record(after);
  const auto number = record.agreement;
  if (number == 0 || number > static_cast<std::uint32_t>(options_.agreements) || number <= old.agreement)
    violated("a record was overwritten by an older one or by the same number", rank, number);
  auto& truth = state.truth[number];
  if (truth.verdict != 0) violated("a number was decided twice", rank, number);
  const auto& former = state.truth[number - 1];
  if (former.verdict == 0) violated("a number was decided before the one before it", rank, number);
  truth.verdict = record.verdict;
  truth.epoch = former.epoch;
  truth.lost = former.lost;
  if (record.changed) {
    const auto& area = board_->proposals[record.proposer][number & (options_.records - 1)];
    truth.epoch = static_cast<std::uint8_t>(area.epoch.load());
    truth.lost = static_cast<std::uint8_t>(area.lost[0].load());
  }
  if (former.lost & bit(rank)) violated("a removed member decided", rank, number);
  if ((truth.lost & former.lost) != former.lost) violated("the set of the lost shrank", rank, number);
  if ((truth.lost & ~state.marked) != 0) violated("a member that nobody took for dead is lost", rank, number);
  if (truth.epoch != former.epoch + (truth.lost != former.lost ? 1 : 0))
    violated("the epoch does not follow the set of the lost", rank, number);
  const auto everybody = static_cast<std::uint8_t>((1U << options_.ranks) - 1);
  const auto survivors = static_cast<std::uint8_t>(everybody & ~truth.lost);
  if (record.verdict == static_cast<std::uint8_t>(Verdict::committed)) {
    if ((truth.complete & survivors) != survivors)
      violated("committed although a survivor has not posted complete", rank, number);
  } else if (record.verdict == static_cast<std::uint8_t>(Verdict::aborted)) {
    if (truth.lost == former.lost && (truth.failed & survivors) == 0 && truth.given_up == 0)
      violated("aborted although nobody failed, died or gave up", rank, number);
  } else {
    violated("a record without a verdict", rank, number);
  }
  // What only this decision needed must not tell later states apart.
  truth.complete = truth.failed = truth.given_up = 0;
  // Who has not read the record that is overwritten must have been removed.
  for (int other = 0; old.agreement != 0 && other < options_.ranks; ++other) {
    const auto& member = state.members[other];
    if (member.phase == Phase::crashed || member.phase == Phase::removed || (state.marked & bit(other)))
      continue;
    if (member.agreement < old.agreement)
      violated("a survivor's unread record was overwritten", other, old.agreement);
  }
}

void World::load_board(const State& state) {
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i]->store(state.words[i], std::memory_order_relaxed);
}

void World::save_board(State& state) const {
  for (std::size_t i = 0; i < words_.size(); ++i)
    state.words[i] = static_cast<std::uint32_t>(words_[i]->load(std::memory_order_relaxed));
}

bool World::finished(const State& state) const {
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const auto phase = state.members[rank].phase;
    if (phase != Phase::done && phase != Phase::removed && phase != Phase::crashed) return false;
  }
  return true;
}

std::uint64_t World::hash(const State& state, std::uint64_t seed) const {
  std::uint64_t value = seed;
  auto mix = [&value](std::uint64_t word) {
    value ^= word;
    value *= 0x9e3779b97f4a7c15;
    value ^= value >> 29;
  };
  auto mix_bytes = [&mix](const void* data, std::size_t bytes) {
    const auto* from = static_cast<const unsigned char*>(data);
    for (; bytes > 0;) {
      std::uint64_t word = 0;
      const auto part = bytes < 8 ? bytes : 8;
      std::memcpy(&word, from, part);
      mix(word);
      from += part;
      bytes -= part;
    }
  };
  mix_bytes(&state, offsetof(State, truth));
  mix_bytes(state.truth, sizeof(Truth) * static_cast<std::size_t>(options_.agreements + 1));
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const auto& member = state.members[rank];
    mix_bytes(&member, offsetof(Member, log));
    mix_bytes(member.log, member.log_size * sizeof member.log[0]);
  }
  mix_bytes(state.words, words_.size() * sizeof state.words[0]);
  return value;
}

std::string World::describe(const Action& action) {
  static constexpr const char* kCalls[] = {"?", "post complete", "post failed", "advance", "give up"};
  const auto rank = "rank " + std::to_string(action.rank);
  if (action.kind == Action::Kind::crash) return rank + " crashes";
  if (action.kind == Action::Kind::zombie) return rank + " is taken for dead";
  return rank + " steps: " + kCalls[static_cast<int>(action.call)] + ", gone mask " +
         std::to_string(action.learns);
}

}  // namespace tugline::core::model
