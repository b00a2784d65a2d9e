// SPDX-License-Identifier: Apache-2.0
// The life of a member's slot.
#include "core/control.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace tugline::core {
namespace {

class ControlTest : public testing::Test {
 protected:
  void give(MemberState state, std::uint16_t incarnation) {
    slot_->status.store(MemberStatus{state, LossCause::none, incarnation}.encode());
  }
  std::unique_ptr<MemberSlot> slot_ = std::make_unique<MemberSlot>();
};

TEST_F(ControlTest, StatusSurvivesItsEncoding) {
  const MemberStatus status{MemberState::dead, LossCause::removed, 65535};
  EXPECT_EQ(MemberStatus::decode(status.encode()), status);
  EXPECT_EQ(status_of(*slot_), MemberStatus{}) << "zeroed memory is an empty slot";
}

TEST_F(ControlTest, ChangesStateFromTheOneNamedOnly) {
  give(MemberState::joining, 7);
  EXPECT_FALSE(change_state(*slot_, MemberState::alive, MemberState::left));
  EXPECT_TRUE(change_state(*slot_, MemberState::joining, MemberState::alive));
  EXPECT_FALSE(is_gone(*slot_));
  EXPECT_TRUE(change_state(*slot_, MemberState::alive, MemberState::left));
  EXPECT_TRUE(is_gone(*slot_));
  EXPECT_EQ(incarnation_of(*slot_), 7);
}

TEST_F(ControlTest, TheFirstMarkStands) {
  give(MemberState::alive, 1);
  EXPECT_TRUE(mark_dead(*slot_, LossCause::lifeline, 10));
  EXPECT_FALSE(mark_dead(*slot_, LossCause::pidfd, 20));
  EXPECT_EQ(cause_of(*slot_), LossCause::lifeline);
  EXPECT_EQ(slot_->died_at_ns.load(), 10u);
}

TEST_F(ControlTest, TheEmptyAndTheDepartedCannotDie) {
  EXPECT_FALSE(mark_dead(*slot_, LossCause::socket, 10));
  give(MemberState::left, 1);
  EXPECT_FALSE(mark_dead(*slot_, LossCause::socket, 10));
  EXPECT_EQ(state_of(*slot_), MemberState::left);
}

TEST_F(ControlTest, ALateDetectorDoesNotHitTheSlotsNextMember) {
  give(MemberState::alive, 1);
  const auto seen = status_of(*slot_);
  EXPECT_TRUE(mark_dead(*slot_, LossCause::socket, 10));
  give(MemberState::alive, 2);
  EXPECT_FALSE(mark_dead(*slot_, seen, LossCause::lifeline, 20));
  EXPECT_EQ(state_of(*slot_), MemberState::alive);
}

TEST_F(ControlTest, OfManyDetectorsOneMarksAndItsCauseStays) {
  for (int round = 0; round < 200; ++round) {
    give(MemberState::alive, static_cast<std::uint16_t>(round));
    std::atomic<int> winners = 0;
    std::atomic<LossCause> cause = LossCause::none;
    std::vector<std::thread> threads;
    for (auto mine : {LossCause::lifeline, LossCause::pidfd, LossCause::socket}) {
      threads.emplace_back([&, mine] {
        if (!mark_dead(*slot_, mine, 1)) return;
        ++winners;
        cause = mine;
      });
    }
    for (auto& thread : threads) thread.join();
    ASSERT_EQ(winners, 1);
    ASSERT_EQ(cause_of(*slot_), cause);
  }
}

}  // namespace
}  // namespace tugline::core
