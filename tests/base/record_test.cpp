// SPDX-License-Identifier: Apache-2.0
#include "base/record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <new>
#include <thread>

#include "base/shared_memory.h"
#include "tugline/error.h"

namespace {

using tugline::Error;
using tugline::base::Record;
using tugline::base::record_ring_bytes;
using tugline::base::RecordReader;
using tugline::base::RecordRing;
using tugline::base::RecordWriter;

/// Every field follows from the number, so a torn record shows.
Record make_record(std::uint64_t number) {
  Record record;
  record.time_ns = number;
  record.sequence = number * 3;
  record.bytes = ~number;
  record.kind = static_cast<std::uint32_t>(number);
  record.communicator = static_cast<std::uint32_t>(number * 5);
  record.rank = static_cast<std::int32_t>(number % 1000);
  record.peer = -static_cast<std::int32_t>(number % 1000);
  record.detail = {number * 7, number * 11};
  return record;
}

class RecordTest : public testing::Test {
 protected:
  static constexpr std::size_t kCapacity = 8;
  static constexpr std::size_t kBytes = record_ring_bytes(kCapacity);
  void* memory() { return mapping_.data(); }
  tugline::base::Mapping mapping_{tugline::base::create_sealed_memfd("ring", kBytes).get(), kBytes,
                                  tugline::base::Access::read_write};
};

TEST_F(RecordTest, KeepsTheLastOnes) {
  RecordWriter writer(memory(), kBytes);
  const RecordReader reader(memory(), kBytes);
  EXPECT_EQ(reader.capacity(), kCapacity);
  EXPECT_TRUE(reader.last(5).empty());
  for (std::uint64_t number = 0; number < 20; ++number) writer.write(make_record(number));
  EXPECT_EQ(reader.written(), 20U);
  EXPECT_EQ(reader.read(19), make_record(19));
  EXPECT_EQ(reader.read(12), make_record(12));
  EXPECT_FALSE(reader.read(11));
  EXPECT_FALSE(reader.read(20));
  const auto last = reader.last(100);
  ASSERT_EQ(last.size(), kCapacity);
  for (std::size_t i = 0; i < last.size(); ++i) EXPECT_EQ(last[i], make_record(12 + i));
  EXPECT_EQ(reader.last(2).front(), make_record(18));
}

TEST_F(RecordTest, ANewWriterGoesOnBehindTheLastRecord) {
  RecordWriter(memory(), kBytes).write(make_record(0));
  RecordWriter second(memory(), kBytes);
  EXPECT_EQ(second.written(), 1U);
  second.write(make_record(1));
  EXPECT_EQ(RecordReader(memory(), kBytes).last(9).size(), 2U);
}

TEST_F(RecordTest, ARecordLeftHalfWrittenIsNotRead) {
  RecordWriter writer(memory(), kBytes);
  writer.write(make_record(0));
  auto* ring = static_cast<RecordRing*>(memory());
  ring->slots()[0].stamp.store(2 * kCapacity + 1);  // as a writer does that is killed in record 8
  ring->slots()[0].words[0].store(99);
  EXPECT_FALSE(RecordReader(memory(), kBytes).read(0));
  EXPECT_FALSE(RecordReader(memory(), kBytes).read(kCapacity));
}

TEST_F(RecordTest, RefusesMemoryThatIsNoRing) {
  EXPECT_THROW(RecordReader(memory(), kBytes), Error);  // nobody has begun it
  RecordWriter writer(memory(), kBytes);
  EXPECT_THROW(RecordReader(memory(), kBytes - 1), Error);
  EXPECT_THROW(RecordReader(memory(), 8), Error);
  static_cast<RecordRing*>(memory())->capacity = 7;
  EXPECT_THROW(RecordReader(memory(), kBytes), Error);
  EXPECT_THROW(RecordWriter(memory(), 64), Error);
  EXPECT_THROW(RecordWriter(static_cast<char*>(memory()) + 8, kBytes - 8), Error);
}

TEST_F(RecordTest, ConcurrentReadersNeverSeeHalfARecord) {
  constexpr std::uint64_t kRecords = 200'000;
  RecordWriter writer(memory(), kBytes);
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> torn{0};
  std::atomic<std::uint64_t> seen{0};
  const auto read = [&] {
    const RecordReader reader(memory(), kBytes);
    bool last_round = false;
    while (!last_round) {
      last_round = done.load(std::memory_order_acquire);
      const auto end = reader.written();
      for (auto index = end - std::min<std::uint64_t>(end, kCapacity); index < end; ++index) {
        const auto record = reader.read(index);
        if (!record) continue;
        seen.fetch_add(1, std::memory_order_relaxed);
        if (*record != make_record(index)) torn.fetch_add(1, std::memory_order_relaxed);
      }
    }
  };
  std::thread first(read);
  std::thread second(read);
  for (std::uint64_t number = 0; number < kRecords; ++number) writer.write(make_record(number));
  done.store(true, std::memory_order_release);
  first.join();
  second.join();
  EXPECT_EQ(torn.load(), 0U);
  EXPECT_GE(seen.load(), 2 * kCapacity);
  EXPECT_EQ(writer.written(), kRecords);
}

}  // namespace
