// SPDX-License-Identifier: Apache-2.0
// The decided record by example; agreement_explorer_test.cpp covers every interleaving.
#include "core/agreement.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

namespace tugline::core {
namespace {

RankSet set_of(std::initializer_list<std::uint32_t> ranks) {
  RankSet result;
  for (auto rank : ranks) result.add(rank);
  return result;
}

const RankSet kNobody;

class AgreementTest : public testing::Test {
 protected:
  std::vector<Agreement> members(std::uint32_t size) {
    std::vector<Agreement> result;
    for (std::uint32_t rank = 0; rank < size; ++rank) result.emplace_back(*board_, rank, size);
    return result;
  }
  std::unique_ptr<AgreementBoard> board_ = std::make_unique<AgreementBoard>();
};

TEST_F(AgreementTest, AloneCommits) {
  auto m = members(1);
  EXPECT_FALSE(m[0].open());
  m[0].post(true);
  EXPECT_TRUE(m[0].open());
  const auto decision = m[0].advance(kNobody);
  EXPECT_EQ(decision, (Decision{Verdict::committed, 1, 0, {}}));
  EXPECT_EQ(m[0].last(), decision);
  EXPECT_FALSE(m[0].open());
}

TEST_F(AgreementTest, TheLastToPostDecidesAtOnceAndAllReadTheSame) {
  auto m = members(3);
  for (std::uint64_t a = 1; a <= 20; ++a) {
    m[1].post(true);
    EXPECT_EQ(m[1].advance(kNobody).verdict, Verdict::undecided);
    EXPECT_EQ(m[1].missing(), set_of({0, 2}));
    m[2].post(true);
    EXPECT_EQ(m[2].advance(kNobody).verdict, Verdict::undecided);
    m[0].post(a % 3 != 0);
    const auto decision = m[0].advance(kNobody);
    EXPECT_EQ(decision.verdict, a % 3 != 0 ? Verdict::committed : Verdict::aborted);
    EXPECT_EQ(decision.agreement, a);
    EXPECT_EQ(decision.epoch, 0u);
    EXPECT_EQ(m[1].advance(kNobody), decision);
    EXPECT_EQ(m[2].advance(kNobody), decision);
  }
}

TEST_F(AgreementTest, ADeathAfterAllSurvivorsCompletedCommitsWithoutTheDead) {
  auto m = members(3);
  m[0].post(true);
  m[2].post(true);
  EXPECT_EQ(m[0].advance(kNobody).verdict, Verdict::undecided);
  const auto decision = m[0].advance(set_of({1}));
  EXPECT_EQ(decision, (Decision{Verdict::committed, 1, 1, set_of({1})}));
  EXPECT_EQ(m[2].advance(kNobody), decision) << "who has not seen the death obeys the record";
}

TEST_F(AgreementTest, ADeathBeforeASurvivorHasPostedAbortsAtOnce) {
  auto m = members(3);
  m[0].post(true);
  const auto decision = m[0].advance(set_of({1}));
  EXPECT_EQ(decision, (Decision{Verdict::aborted, 1, 1, set_of({1})}));
  m[2].post(true);
  EXPECT_EQ(m[2].advance(kNobody), decision);
}

TEST_F(AgreementTest, AnOldDeathChangesNothing) {
  auto m = members(3);
  m[0].post(true);
  m[0].advance(set_of({1}));
  m[2].post(true);
  m[2].advance(kNobody);
  for (std::uint64_t a = 2; a < 12; ++a) {
    m[0].post(true);
    EXPECT_EQ(m[0].advance(set_of({1})).verdict, Verdict::undecided);
    m[2].post(true);
    EXPECT_EQ(m[2].advance(set_of({1})), (Decision{Verdict::committed, a, 1, set_of({1})}));
    EXPECT_EQ(m[0].advance(set_of({1})), m[2].last());
  }
}

TEST_F(AgreementTest, LossesAccumulate) {
  auto m = members(4);
  m[0].post(true);
  m[3].post(true);
  m[0].advance(set_of({1}));
  EXPECT_EQ(m[3].advance(kNobody).lost, set_of({1}));
  m[0].post(true);
  m[3].post(true);
  // Rank 3's view has only the second death; the set it decides has both.
  const auto decision = m[3].advance(set_of({2}));
  EXPECT_EQ(decision, (Decision{Verdict::committed, 2, 2, set_of({1, 2})}));
  EXPECT_EQ(m[0].advance(set_of({1, 2})), decision);
}

TEST_F(AgreementTest, ASurvivorThatLagsReadsEveryRecordBeforeItIsOverwritten) {
  auto m = members(kAgreementRecords + 2);
  RankSet gone;
  std::vector<Decision> decided;
  for (std::uint32_t death = 0; death < kAgreementRecords - 1; ++death) {
    gone.add(2 + death);
    m[0].post(true);
    decided.push_back(m[0].advance(gone));
    EXPECT_EQ(decided.back(), (Decision{Verdict::aborted, death + 1, death + 1, gone}));
  }
  // Rank 1 has posted nothing: nobody can know whether it has read what the next record would overwrite.
  gone.add(kAgreementRecords + 1);
  m[0].post(true);
  EXPECT_EQ(m[0].advance(gone).verdict, Verdict::undecided);
  for (const auto& record : decided) {
    m[1].post(true);
    EXPECT_EQ(m[1].advance(kNobody), record);
  }
  EXPECT_EQ(m[0].advance(gone).verdict, Verdict::aborted);
}

TEST_F(AgreementTest, AMemberThatWasRemovedFindsOut) {
  auto m = members(2);
  m[0].post(true);
  m[0].advance(set_of({1}));
  m[1].post(true);
  const auto decision = m[1].advance(kNobody);
  EXPECT_TRUE(m[1].removed());
  EXPECT_EQ(decision.verdict, Verdict::aborted);
  EXPECT_TRUE(decision.lost.has(1));
  // Nothing it does later counts.
  m[1].post(true);
  EXPECT_TRUE(m[1].advance(kNobody).lost.has(1));
  m[0].post(true);
  EXPECT_EQ(m[0].advance(kNobody), (Decision{Verdict::committed, 2, 1, set_of({1})}));
}

TEST_F(AgreementTest, AMemberThatWasRemovedLongAgoFindsOut) {
  auto m = members(2);
  for (std::uint64_t a = 1; a <= 3 * kAgreementRecords; ++a) {
    m[0].post(true);
    EXPECT_EQ(m[0].advance(set_of({1})).agreement, a);
  }
  m[1].post(true);
  EXPECT_TRUE(m[1].advance(kNobody).lost.has(1));
  EXPECT_TRUE(m[1].removed());
}

TEST_F(AgreementTest, AMemberThatIsReportedGoneProposesNothing) {
  auto m = members(2);
  m[1].post(true);
  EXPECT_TRUE(m[1].advance(set_of({1})).lost.has(1));
  EXPECT_TRUE(m[1].removed());
  m[0].post(true);
  EXPECT_EQ(m[0].advance(set_of({1})), (Decision{Verdict::committed, 1, 1, set_of({1})}));
}

TEST_F(AgreementTest, GivingUpAbortsForEverybodyWithoutALoss) {
  auto m = members(2);
  m[0].post(true);
  const auto decision = m[0].abort(kNobody);
  EXPECT_EQ(decision, (Decision{Verdict::aborted, 1, 0, {}}));
  m[1].post(true);
  EXPECT_EQ(m[1].advance(kNobody), decision);
}

TEST_F(AgreementTest, WorksAtTheLargestSize) {
  auto m = members(kMaxAgreementRanks);
  RankSet gone = set_of({0, 63, 64, 200});
  for (std::uint32_t rank = 0; rank < kMaxAgreementRanks; ++rank)
    if (!gone.has(rank)) m[rank].post(true);
  const auto decision = m[255].advance(gone);
  EXPECT_EQ(decision, (Decision{Verdict::committed, 1, 1, gone}));
  EXPECT_EQ(m[1].advance(kNobody), decision);
}

// Real threads on real atomics: what a member wrote before it posted is seen by everybody after the decision
// (a sanitizer build checks the ordering), and all read the same.
TEST_F(AgreementTest, ThreadsAgreeAndSeeEachOthersData) {
  constexpr std::uint32_t kSize = 3;
  constexpr std::uint64_t kAgreements = 3000;
  std::vector<std::uint64_t> data(kSize);
  std::vector<std::vector<Decision>> read(kSize);
  std::atomic<bool> wrong = false;
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      Agreement member(*board_, rank, kSize);
      for (std::uint64_t a = 1; a <= kAgreements; ++a) {
        if (a % 2 == 1) data[rank] = a;
        member.post(a % 7 != rank);
        Decision decision;
        while ((decision = member.advance(kNobody)).verdict == Verdict::undecided) std::this_thread::yield();
        read[rank].push_back(decision);
        // Odd numbers write, even ones read: each is fenced from the other by one agreement.
        if (a % 2 == 1)
          for (auto value : data)
            if (value != a) wrong = true;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(wrong);
  for (std::uint64_t a = 1; a <= kAgreements; ++a) {
    const auto expected = a % 7 < kSize ? Verdict::aborted : Verdict::committed;
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      ASSERT_EQ(read[rank][a - 1].verdict, expected) << a;
      ASSERT_EQ(read[rank][a - 1].agreement, a);
    }
  }
}

TEST_F(AgreementTest, PrintsItsCost) {
  constexpr std::uint64_t kAgreements = 20000;
  {
    AgreementBoard board{};
    Agreement first(board, 0, 2);
    Agreement second(board, 1, 2);
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t a = 0; a < kAgreements; ++a) {
      first.post(true);
      first.advance(kNobody);
      second.post(true);
      second.advance(kNobody);
      first.advance(kNobody);
    }
    const auto elapsed = std::chrono::steady_clock::now() - start;
    std::printf("[ measured ] both sides of an agreement of 2, one core: %.0f ns\n",
                static_cast<double>(std::chrono::nanoseconds(elapsed).count()) / kAgreements);
    EXPECT_EQ(first.last().agreement, kAgreements);
  }
  constexpr std::uint64_t kTogether = 3000;
  const auto start = std::chrono::steady_clock::now();
  std::thread other([&] {
    Agreement member(*board_, 1, 2);
    for (std::uint64_t a = 0; a < kTogether; ++a) {
      member.post(true);
      for (int spins = 0; member.advance(kNobody).verdict == Verdict::undecided;)
        if (++spins % 1000 == 0) std::this_thread::yield();
    }
  });
  Agreement member(*board_, 0, 2);
  for (std::uint64_t a = 0; a < kTogether; ++a) {
    member.post(true);
    for (int spins = 0; member.advance(kNobody).verdict == Verdict::undecided;)
      if (++spins % 1000 == 0) std::this_thread::yield();
  }
  other.join();
  const auto elapsed = std::chrono::steady_clock::now() - start;
  std::printf("[ measured ] agreement of 2 threads, as scheduled: %.0f ns\n",
              static_cast<double>(std::chrono::nanoseconds(elapsed).count()) / kTogether);
  EXPECT_EQ(member.last().agreement, kTogether);
}

}  // namespace
}  // namespace tugline::core
