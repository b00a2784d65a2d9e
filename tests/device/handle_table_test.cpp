// SPDX-License-Identifier: Apache-2.0
#include "device/handle_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

namespace tugline::device {
namespace {

TEST(HandleTable, handle_finds_its_object_until_removed) {
  HandleTable<std::string> table("word", 1);
  const auto one = table.add(std::make_shared<std::string>("one"));
  const auto two = table.add(std::make_shared<std::string>("two"));
  EXPECT_NE(one, 0u);
  EXPECT_NE(one, two);
  EXPECT_EQ(table.get(one), "one");
  EXPECT_EQ(table.get(two), "two");
  auto taken = table.remove(one);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(*taken, "one");
  EXPECT_EQ(table.remove(one), nullptr);
  EXPECT_THROW(table.get(one), Error);
  EXPECT_EQ(table.get(two), "two");
}

TEST(HandleTable, reused_slot_has_another_handle) {
  HandleTable<std::string> table("word", 1);
  std::set<std::uintptr_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const auto handle = table.add(std::make_shared<std::string>("x"));
    EXPECT_TRUE(seen.insert(handle).second);
    table.remove(handle);
  }
  for (std::uintptr_t handle : seen) EXPECT_THROW(table.get(handle), Error);
}

TEST(HandleTable, handles_of_another_kind_and_invented_ones_are_refused) {
  HandleTable<std::string> words("word", 1);
  HandleTable<std::string> names("name", 2);
  const auto word = words.add(std::make_shared<std::string>("w"));
  const auto name = names.add(std::make_shared<std::string>("n"));
  EXPECT_THROW(names.get(word), Error);
  EXPECT_THROW(words.get(name), Error);
  for (std::uintptr_t invented : {std::uintptr_t{0}, std::uintptr_t{1}, ~std::uintptr_t{0}, word + 1,
                                  word ^ (std::uintptr_t{1} << 24)}) {
    EXPECT_THROW(words.get(invented), Error) << invented;
  }
  try {
    words.get(0);
    FAIL() << "0 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("word"), std::string::npos) << error.what();
  }
}

TEST(HandleTable, grows_past_a_chunk_from_many_threads) {
  HandleTable<int> table("number", 1);
  constexpr int kThreads = 4;
  constexpr int kEach = 1500;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::uintptr_t> handles;
      for (int i = 0; i < kEach; ++i) handles.push_back(table.add(std::make_shared<int>(t * kEach + i)));
      for (int i = 0; i < kEach; ++i) {
        if (table.get(handles[static_cast<std::size_t>(i)]) != t * kEach + i) ++wrong;
      }
      for (std::uintptr_t handle : handles) {
        if (table.remove(handle) == nullptr) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tugline::device
