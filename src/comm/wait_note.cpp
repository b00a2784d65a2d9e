// SPDX-License-Identifier: Apache-2.0
#include "comm/wait_note.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/clock.h"
#include "comm/call.h"
#include "comm/wait.h"

namespace tugline::comm {
namespace {

// Words of a note.
enum Word : std::uint32_t {
  word_since,
  word_ended,
  word_who,
  word_ranks,
  word_kind,
  word_count,
  word_sequence,
  word_name
};
constexpr std::size_t kNameBytes = (core::WaitNote::kWords - word_name) * sizeof(std::uint64_t);
// Ranks that wait for each other time out at about the same time.
constexpr std::uint64_t kShownAfterTimeOut = 2'000'000'000;

using Words = std::array<std::uint64_t, core::WaitNote::kWords>;

constexpr std::uint64_t pack(std::uint32_t low, std::uint32_t high) noexcept {
  return low | std::uint64_t{high} << 32;
}
constexpr std::uint32_t low(std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(word & 0xffffffffu);
}
constexpr std::uint32_t high(std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(word >> 32);
}

/// Only the thread that holds the note writes it.
template <class Fill>
void write(core::WaitNote& note, const Fill& fill) noexcept {
  // Odd already when its former owner was killed at this place.
  const auto begun = note.version.load(std::memory_order_relaxed) | 1;
  note.version.exchange(begun, std::memory_order_acq_rel);
  fill();
  note.version.store(begun + 1, std::memory_order_release);
}

bool read(const core::WaitNote& note, Words& words) noexcept {
  const auto before = note.version.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = note.words[i].load(std::memory_order_acquire);
  return before % 2 == 0 && note.version.load(std::memory_order_relaxed) == before;
}

std::uint64_t owner_word(const core::MemberSlot& slot) noexcept {
  return std::uint64_t{core::incarnation_of(slot)} + 1;
}

core::WaitNote* take_note(core::ControlSegment& control, std::uint32_t member) noexcept {
  const auto owner = owner_word(control.members[member]);
  for (auto& note : control.waits[member]) {
    auto taken = note.taken.load(std::memory_order_acquire);
    // One of an earlier member of this slot is nobody's.
    if (taken != owner && note.taken.compare_exchange_strong(taken, owner, std::memory_order_acq_rel))
      return &note;
  }
  return nullptr;
}

std::uint32_t rank_of(const core::ControlSegment& control, std::uint32_t member) noexcept {
  return control.members[member].rank.load(std::memory_order_relaxed);
}

std::string edge_text(const core::ControlSegment& control, std::uint32_t member, const ShownWait& wait) {
  return fmt::format("rank {} waits in {} for rank {}", rank_of(control, member), wait.communicator,
                     rank_of(control, static_cast<std::uint32_t>(wait.peer_member)));
}

/// Depth first, from `at` to `target`; the path's text, without the first step's.
bool lead_back(const core::ControlSegment& control, std::uint32_t at, std::uint32_t target,
               std::vector<bool>& seen, std::string& text) {
  if (at == target) return true;
  if (seen[at]) return false;
  seen[at] = true;
  for (const auto& wait : waits_of(control, at)) {
    if (wait.peer_member < 0) continue;
    std::string rest;
    if (!lead_back(control, static_cast<std::uint32_t>(wait.peer_member), target, seen, rest)) continue;
    text = ", " + edge_text(control, at, wait) + rest;
    return true;
  }
  return false;
}

}  // namespace

ShownWait shown(const WaitPlace& place, const WaitSubject& subject, std::uint64_t since_ns) {
  ShownWait wait;
  wait.since_ns = since_ns;
  wait.rank = place.epoch->rank;
  wait.peer = subject.peer;
  wait.peer_member = subject.peer >= 0 && place.member_of ? place.member_of(subject.peer) : -1;
  wait.message = subject.message;
  wait.sequence = subject.sequence;
  wait.call = subject.call;
  wait.communicator = place.communicator;
  return wait;
}

void PublishedWait::publish(const WaitPlace& place, const WaitSubject& subject,
                            std::uint64_t since_ns) noexcept {
  if (note_ == nullptr) note_ = take_note(*place.control, place.member);
  if (note_ == nullptr) return;
  const auto peer = subject.peer >= 0 && place.member_of ? place.member_of(subject.peer) : -1;
  Words words{};
  words[word_since] = since_ns;
  words[word_who] = pack(core::incarnation_of(place.control->members[place.member]) |
                             static_cast<std::uint32_t>(static_cast<std::uint8_t>(subject.message)) << 16,
                         static_cast<std::uint32_t>(peer + 1));
  words[word_ranks] = pack(place.epoch->rank, static_cast<std::uint32_t>(subject.peer + 1));
  words[word_kind] = subject.call.kind;
  words[word_count] = subject.call.count;
  words[word_sequence] = subject.sequence;
  std::memcpy(&words[word_name], place.communicator.data(),
              std::min(place.communicator.size(), kNameBytes - 1));
  write(*note_, [&] {
    for (std::size_t i = 0; i < words.size(); ++i) note_->words[i].store(words[i], std::memory_order_release);
  });
}

void PublishedWait::end(std::uint64_t now_ns) noexcept {
  write(*note_, [&] {
    if (now_ns == 0) note_->words[word_since].store(0, std::memory_order_release);
    note_->words[word_ended].store(now_ns, std::memory_order_release);
  });
  note_->taken.store(0, std::memory_order_release);
  note_ = nullptr;
}

std::vector<ShownWait> waits_of(const core::ControlSegment& control, std::uint32_t member) {
  std::vector<ShownWait> waits;
  const auto& slot = control.members[member];
  if (core::is_gone(slot)) return waits;
  const auto now = base::monotonic_ns();
  for (const auto& note : control.waits[member]) {
    Words words;
    if (!read(note, words) || words[word_since] == 0) continue;
    if ((low(words[word_who]) & 0xffff) != core::incarnation_of(slot)) continue;
    if (words[word_ended] != 0 && now - words[word_ended] > kShownAfterTimeOut) continue;
    ShownWait wait;
    wait.since_ns = words[word_since];
    wait.ended_ns = words[word_ended];
    wait.rank = low(words[word_ranks]);
    wait.peer = static_cast<std::int32_t>(high(words[word_ranks])) - 1;
    wait.peer_member = static_cast<std::int32_t>(high(words[word_who])) - 1;
    // Another process wrote it.
    if (wait.peer_member >= static_cast<std::int32_t>(core::kMaxMembers)) continue;
    wait.message = static_cast<std::int8_t>(low(words[word_who]) >> 16 & 0xff);
    wait.sequence = words[word_sequence];
    wait.call = {words[word_kind], words[word_count]};
    char name[kNameBytes];
    std::memcpy(name, &words[word_name], kNameBytes);
    name[kNameBytes - 1] = '\0';
    wait.communicator = name;
    waits.push_back(std::move(wait));
  }
  return waits;
}

std::string call_text(const Descriptor& call, std::int8_t message) {
  if (call == Descriptor{}) return {};
  auto text = to_text(call);
  // A message's two ends are one collective to the plans.
  if (message != 0)
    text = (message > 0 ? "send" : "recv") + text.substr(std::min(text.find('('), text.size()));
  return text;
}

std::string describe_member(const core::ControlSegment& control, std::uint32_t member) {
  std::string text;
  const auto now = base::monotonic_ns();
  for (const auto& wait : waits_of(control, member)) {
    const auto until = wait.ended_ns != 0 ? wait.ended_ns : now;
    text += fmt::format(
        "{}rank {} {} in communicator {} for {}{}{}, for {:.1f} s", text.empty() ? "" : ", and ",
        rank_of(control, member), wait.ended_ns != 0 ? "waited until it timed out" : "waits",
        wait.communicator,
        wait.peer_member < 0
            ? std::string("several ranks")
            : fmt::format("rank {}", rank_of(control, static_cast<std::uint32_t>(wait.peer_member))),
        wait.call == Descriptor{} ? "" : " in ", call_text(wait.call, wait.message),
        static_cast<double>(until > wait.since_ns ? until - wait.since_ns : 0) / 1e9);
  }
  if (!text.empty()) return text;
  return fmt::format("rank {} (pid {}) is in no long wait of this library: it computes, or is late elsewhere",
                     rank_of(control, member), control.members[member].pid.load(std::memory_order_acquire));
}

std::string find_cycle(const core::ControlSegment& control, std::uint32_t member, const ShownWait& wait) {
  if (wait.peer_member < 0) return {};
  std::vector<bool> seen(core::kMaxMembers);
  std::string text;
  if (!lead_back(control, static_cast<std::uint32_t>(wait.peer_member), member, seen, text)) return {};
  return edge_text(control, member, wait) + text;
}

}  // namespace tugline::comm
