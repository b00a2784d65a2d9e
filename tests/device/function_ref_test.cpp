// SPDX-License-Identifier: Apache-2.0
#include "tugline/function_ref.h"

#include <gtest/gtest.h>

#include <string>

#include "tugline/device.h"

namespace tugline {
namespace {

int call_with(FunctionRef<int(int)> function, int value) {
  return function(value);
}

TEST(FunctionRef, calls_what_it_refers_to) {
  int calls = 0;
  auto twice = [&calls](int value) {
    ++calls;
    return value * 2;
  };
  EXPECT_EQ(call_with(twice, 4), 8);
  EXPECT_EQ(call_with([](int value) { return value + 1; }, 4), 5);
  EXPECT_EQ(calls, 1);
  const std::function<int(int)> held = twice;
  EXPECT_EQ(call_with(held, 5), 10);
  EXPECT_EQ(calls, 2);
}

TEST(FunctionRef, changes_the_callable_itself) {
  auto counter = [count = 0]() mutable { return ++count; };
  FunctionRef<int()> reference = counter;
  EXPECT_EQ(reference(), 1);
  FunctionRef<int()> copy = reference;
  EXPECT_EQ(copy(), 2);
  EXPECT_EQ(counter(), 3);
}

TEST(FunctionRef, forwards_references_and_exceptions) {
  std::string text = "a";
  auto append = [](std::string& target, const std::string& more) -> std::string& { return target += more; };
  FunctionRef<std::string&(std::string&, const std::string&)> reference = append;
  EXPECT_EQ(&reference(text, "b"), &text);
  EXPECT_EQ(text, "ab");
  auto thrower = []() -> Status { throw 3; };
  EXPECT_THROW((void)FunctionRef<Status()>(thrower)(), int);
}

TEST(FunctionRef, accepts_only_what_fits) {
  static_assert(std::is_constructible_v<FunctionRef<Status()>, HostTask&>);
  static_assert(std::is_constructible_v<FunctionRef<Status()>, const HostTask&>);
  static_assert(!std::is_constructible_v<FunctionRef<Status()>, int>);
  static_assert(std::is_trivially_copyable_v<FunctionRef<Status()>>);
  static_assert(sizeof(FunctionRef<Status()>) == 2 * sizeof(void*));
}

}  // namespace
}  // namespace tugline
