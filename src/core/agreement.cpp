// SPDX-License-Identifier: Apache-2.0
#include "core/agreement.h"

#include "core/agreement_protocol.h"

namespace tugline::core {
namespace {

/// Production's access: the atomics as they are, sequentially consistent.
struct DirectAccess {
  static std::uint64_t load(const AgreementBoard::Word& word) noexcept { return word.load(); }
  static void store(AgreementBoard::Word& word, std::uint64_t value) noexcept { word.store(value); }
  static bool swap(AgreementBoard::Word& word, std::uint64_t& expected, std::uint64_t desired) noexcept {
    return word.compare_exchange_strong(expected, desired);
  }
};
constinit DirectAccess direct;

}  // namespace

Agreement::Agreement(AgreementBoard& board, std::uint32_t rank, std::uint32_t size) noexcept : board_(board) {
  state_.rank = rank;
  state_.size = size;
}

void Agreement::post(bool complete) noexcept {
  agreement::post(board_, state_, complete, direct);
}

Decision Agreement::advance(const RankSet& gone) noexcept {
  return agreement::advance(board_, state_, gone, agreement::Patience::until_a_death, direct);
}

Decision Agreement::abort(const RankSet& gone) noexcept {
  return agreement::advance(board_, state_, gone, agreement::Patience::none, direct);
}

Agreement::Ahead Agreement::ahead(std::uint32_t rank) const noexcept {
  const auto word = board_.posts[rank].word.load();
  if (agreement::posted_agreement(word) <= state_.current) return Ahead::no;
  return agreement::posted_failed(word) ? Ahead::failed : Ahead::complete;
}

RankSet Agreement::missing() const noexcept {
  RankSet result;
  for (std::uint32_t rank = 0; rank < state_.size; ++rank) {
    if (state_.last.lost.has(rank)) continue;
    if (agreement::posted_agreement(board_.posts[rank].word.load()) < state_.current) result.add(rank);
  }
  return result;
}

}  // namespace tugline::core
