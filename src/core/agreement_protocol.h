// SPDX-License-Identifier: Apache-2.0
// The steps of the decided record; agreement.h says what they do and why they are right. Every access to
// shared memory goes through an Access, so that the exhaustive model can interleave them one by one:
//   std::uint64_t load(const AgreementBoard::Word&);
//   void store(AgreementBoard::Word&, std::uint64_t);
//   bool swap(AgreementBoard::Word&, std::uint64_t& expected, std::uint64_t desired);  // strong
#pragma once

#include "core/agreement.h"

namespace tugline::core::agreement {

constexpr std::uint64_t post_word(std::uint64_t agreement, bool failed) noexcept {
  return agreement << 1 | (failed ? 1 : 0);
}
constexpr std::uint64_t posted_agreement(std::uint64_t word) noexcept {
  return word >> 1;
}
constexpr bool posted_failed(std::uint64_t word) noexcept {
  return (word & 1) != 0;
}

struct Record {
  std::uint64_t agreement = 0;
  std::uint32_t proposer = 0;
  bool changed = false;  ///< the proposer's area holds the new epoch and the lost
  Verdict verdict = Verdict::undecided;
};
constexpr std::uint64_t encode(const Record& record) noexcept {
  return record.agreement << 16 | std::uint64_t{record.proposer} << 8 | (record.changed ? 4U : 0U) |
         static_cast<std::uint64_t>(record.verdict);
}
constexpr Record decode(std::uint64_t word) noexcept {
  return {word >> 16, static_cast<std::uint32_t>(word >> 8 & 0xff), (word & 4) != 0,
          static_cast<Verdict>(word & 3)};
}

constexpr std::uint32_t words_of(std::uint32_t size) noexcept {
  return (size + 63) / 64;
}

/// When a member may propose although not everybody has posted.
enum class Patience : std::uint8_t { until_a_death, none };

/// What a look at the posts tells.
enum class Look : std::uint8_t { wait, propose_committed, propose_aborted, already_decided };

template <class Access>
void post(AgreementBoard& board, AgreementState& self, bool complete, Access& access) {
  if (self.removed) return;
  self.current = self.last.agreement + 1;
  self.seen = 0;
  self.any_failed = false;
  access.store(board.posts[self.rank].word, post_word(self.current, !complete));
}

/// Rule 2: everybody lives. Remembers how far it has looked, as posts only grow.
template <class Access>
Look look_for_all(const AgreementBoard& board, AgreementState& self, Access& access) {
  for (; self.seen < self.size; ++self.seen) {
    if (self.last.lost.has(self.seen)) continue;
    const auto word = access.load(board.posts[self.seen].word);
    if (posted_agreement(word) < self.current) return Look::wait;
    if (posted_agreement(word) > self.current) return Look::already_decided;
    if (posted_failed(word)) self.any_failed = true;
  }
  return self.any_failed ? Look::propose_aborted : Look::propose_committed;
}

/// Rule 3: somebody is gone, or the caller gives up.
template <class Access>
Look look_for_survivors(const AgreementBoard& board, const AgreementState& self, const RankSet& lost,
                        Access& access) {
  auto result = Look::propose_committed;
  for (std::uint32_t rank = 0; rank < self.size; ++rank) {
    if (lost.has(rank)) continue;
    const auto word = access.load(board.posts[rank].word);
    if (posted_agreement(word) > self.current) return Look::already_decided;
    // Has not read record current - records, which the proposal would overwrite.
    if (posted_agreement(word) + self.records <= self.current) return Look::wait;
    if (posted_agreement(word) < self.current || posted_failed(word)) result = Look::propose_aborted;
  }
  return result;
}

/// The number goes first: who reads the old one after the rest has read nothing of the new.
template <class Access>
void write_proposal(AgreementBoard::Proposal& area, const AgreementState& self, const RankSet& lost,
                    Access& access) {
  access.store(area.agreement, self.current);
  access.store(area.epoch, self.last.epoch + 1);
  for (std::uint32_t i = 0; i < words_of(self.size); ++i) access.store(area.lost[i], lost.words[i]);
}

/// False when the area has been used again since: only a removed member comes that late.
template <class Access>
bool read_proposal(const AgreementBoard::Proposal& area, const AgreementState& self, Decision& decision,
                   Access& access) {
  decision.epoch = access.load(area.epoch);
  for (std::uint32_t i = 0; i < words_of(self.size); ++i) decision.lost.words[i] = access.load(area.lost[i]);
  return access.load(area.agreement) == self.current;
}

inline Decision obey_removal(AgreementState& self) {
  self.removed = true;
  self.last.agreement = self.current;
  self.last.verdict = Verdict::aborted;
  self.last.lost.add(self.rank);
  return self.last;
}

template <class Access>
Decision obey(const AgreementBoard& board, AgreementState& self, std::uint64_t word, Access& access) {
  const Record record = decode(word);
  if (record.agreement != self.current) return obey_removal(self);
  Decision decision = self.last;
  decision.agreement = record.agreement;
  decision.verdict = record.verdict;
  if (record.changed) {
    const auto& area = board.proposals[record.proposer][record.agreement & (self.records - 1)];
    if (!read_proposal(area, self, decision, access)) return obey_removal(self);
    if (decision.lost.has(self.rank)) return obey_removal(self);
  }
  self.last = decision;
  return decision;
}

template <class Access>
Decision advance(AgreementBoard& board, AgreementState& self, const RankSet& gone, Patience patience,
                 Access& access) {
  if (self.removed || self.current == self.last.agreement) return self.last;
  const auto slot = self.current & (self.records - 1);
  auto& decided = board.decided[slot];
  auto word = access.load(decided);
  if (decode(word).agreement >= self.current) return obey(board, self, word, access);
  if (gone.has(self.rank)) return obey_removal(self);

  const RankSet lost = self.last.lost | gone;
  const bool changed = lost != self.last.lost;
  const auto look = changed || patience == Patience::none ? look_for_survivors(board, self, lost, access)
                                                          : look_for_all(board, self, access);
  if (look == Look::wait) return {};
  if (look == Look::already_decided) return obey(board, self, access.load(decided), access);
  if (changed) write_proposal(board.proposals[self.rank][slot], self, lost, access);
  const auto verdict = look == Look::propose_committed ? Verdict::committed : Verdict::aborted;
  const auto proposal = encode({self.current, self.rank, changed, verdict});
  // On failure `word` becomes the record that won.
  if (access.swap(decided, word, proposal)) word = proposal;
  return obey(board, self, word, access);
}

}  // namespace tugline::core::agreement
