// SPDX-License-Identifier: Apache-2.0
// Cells and buffers between two ranks, without ranks: what is where after any order of steps.
#include "comm/channel.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <random>
#include <set>

#include "base/shared_memory.h"
#include "comm/protocol.h"

namespace tugline::comm {
namespace {

class Channels : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  static constexpr std::uint32_t kRanks = 3;
  static constexpr std::uint64_t kPairBytes = 128 << 10;
  static constexpr std::array<std::uint32_t, 2> kSelf{2, 1};

  void SetUp() override {
    for (const std::size_t from : {0, 1})
      banks_[0].messages(kSelf[from], kSelf[1 - from]).receipt.cells = GetParam();
  }

  Bank map() const {
    return {base::Mapping(memory_.get(), layout_.total, base::Access::read_write), layout_};
  }

  /// Side `from` sends the next number, in a buffer or in a cell; false when it must wait.
  bool send(std::size_t from, bool in_buffer) {
    Channel& channel = sides_[from];
    if (!channel.has_room()) return false;
    auto& cell = channel.next_out();
    const std::uint64_t value = ++sent_[from];
    if (in_buffer) {
      const auto buffer = channel.take_buffer();
      if (!buffer) {
        --sent_[from];
        return false;
      }
      EXPECT_TRUE(in_flight_.insert(*buffer).second) << "a buffer in two hands: " << *buffer;
      std::memcpy(channel.buffer(*buffer) + channel.buffer_bytes() - sizeof value, &value, sizeof value);
      cell.words[0].store(*buffer);
    } else {
      cell.words[0].store(value);
    }
    cell.form.store(
        static_cast<std::uint64_t>(in_buffer ? MessageCell::Form::in_buffer : MessageCell::Form::in_cell));
    cell.flag.store(packet_flag(channel.next_out_number(), 7), std::memory_order_release);
    channel.sent(in_buffer);
    return true;
  }

  /// Side `at` receives the next number; false when none is there.
  bool receive(std::size_t at) {
    Channel& channel = sides_[at];
    const auto& cell = channel.next_in();
    if (cell.flag.load(std::memory_order_acquire) >> 32 != (channel.next_in_number() & 0xffffffffu))
      return false;
    const auto word = cell.words[0].load();
    std::uint64_t value = word;
    if (cell.form.load() == static_cast<std::uint64_t>(MessageCell::Form::in_buffer)) {
      const auto buffer = static_cast<std::uint32_t>(word);
      EXPECT_EQ(in_flight_.erase(buffer), 1u);
      std::memcpy(&value, channel.buffer(buffer) + channel.buffer_bytes() - sizeof value, sizeof value);
      channel.received(buffer);
    } else {
      channel.received(std::nullopt);
    }
    EXPECT_EQ(value, ++received_[at]);
    return true;
  }

  const BankLayout layout_ = BankLayout::make(kRanks, 64 << 10, kPairBytes);
  const base::UniqueFd memory_ = base::create_sealed_memfd("channel_test", layout_.total);
  const Bank banks_[2] = {map(), map()};
  Channel sides_[2] = {{banks_[0], kSelf[0], kSelf[1], GetParam()},
                       {banks_[1], kSelf[1], kSelf[0], GetParam()}};
  std::uint64_t sent_[2] = {};
  std::uint64_t received_[2] = {};
  std::set<std::uint32_t> in_flight_;
};

TEST_P(Channels, EveryOrderOfSteps) {
  std::mt19937 random(static_cast<unsigned>(GetParam() + 1));
  for (int round = 0; round < 300; ++round) {
    // Much one way, much the other way, all mixed.
    const unsigned likely = random() % 8;
    for (int step = 0; step < 100; ++step) {
      const unsigned dice = random();
      const std::size_t side = dice % 8 < likely ? 0 : 1;
      if ((dice >> 8) % 2 == 0)
        send(side, (dice >> 16) % 4 != 0);
      else
        receive((dice >> 12) % 2);
    }
    // Nothing is on its way to side 0: an eighth of all buffers is there for side 1.
    while (receive(0)) {
    }
    for (std::uint64_t i = 0; i < message_buffers(layout_.pair_bytes) / 4; ++i) {
      ASSERT_TRUE(send(1, true)) << "round " << round;
      ASSERT_TRUE(receive(0));
    }
    while (receive(1)) {
    }
  }
  EXPECT_EQ(received_[0], sent_[1]);
  EXPECT_EQ(received_[1], sent_[0]);
}

TEST_P(Channels, OneWayForLong) {
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(send(0, true)) << i;
    ASSERT_TRUE(receive(1)) << i;
  }
  // Half of all are there for whoever has sent nothing, as many as cells.
  for (std::uint64_t i = 0; i < message_buffers(layout_.pair_bytes); ++i) ASSERT_TRUE(send(1, true)) << i;
}

TEST_P(Channels, CellsEnd) {
  for (std::uint64_t i = 0; i < kMessageCells; ++i) ASSERT_TRUE(send(0, false));
  EXPECT_FALSE(send(0, false));
  EXPECT_FALSE(sides_[0].is_done(GetParam() + 1));
  ASSERT_TRUE(receive(1));
  EXPECT_TRUE(sides_[0].is_done(GetParam() + 1));
  EXPECT_FALSE(sides_[0].is_done(GetParam() + 2));
  EXPECT_TRUE(send(0, false));
}

// A number's low half wraps after four thousand million cells, all of it never: from there it works alike.
INSTANTIATE_TEST_SUITE_P(Numbers, Channels,
                         ::testing::Values(0, (std::uint64_t{1} << 32) - kMessageCells - 1,
                                           ~std::uint64_t{0} - kMessageCells));

}  // namespace
}  // namespace tugline::comm
