// SPDX-License-Identifier: Apache-2.0
// Memory: allocation, copies and fills, import.
#include <sys/mman.h>

#include <cstring>
#include <numeric>

#include "conformance/contract.h"

namespace tugline::contract {
namespace {

std::vector<std::uint8_t> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::uint8_t> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::uint8_t>(i * 31 + i / 253 + seed);
  return values;
}

}  // namespace

TEST_P(DeviceContract, memory_holds_what_is_copied) {
  for (std::size_t bytes :
       {std::size_t{1}, std::size_t{4096}, std::size_t{16385}, (std::size_t{1} << 20) + 3}) {
    void* memory = device().allocate(bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0u);
    const auto sent = pattern(bytes, 1);
    std::vector<std::uint8_t> received(bytes, 0);
    Stream stream = device().stream();
    stream.ref().copy(memory, sent.data(), bytes);
    stream.ref().copy(received.data(), memory, bytes);
    stream.sync();
    EXPECT_EQ(received, sent);
    stream.ref().fill(memory, 0xa5, bytes);
    stream.ref().copy(received.data(), memory, bytes);
    stream.sync();
    EXPECT_EQ(received, std::vector<std::uint8_t>(bytes, 0xa5));
    device().deallocate(memory, bytes);
  }
}

TEST_P(DeviceContract, memory_is_copied_between_devices) {
  constexpr std::size_t kBytes = 100'000;
  const auto sent = pattern(kBytes, 2);
  std::vector<std::uint8_t> received(kBytes, 0);
  std::vector<void*> memory;
  for (Device* each : devices()) memory.push_back(each->allocate(kBytes));
  Stream stream = device().stream();
  const void* from = sent.data();
  for (void* to : memory) {
    stream.ref().copy(to, from, kBytes);
    from = to;
  }
  stream.ref().copy(received.data(), from, kBytes);
  stream.sync();
  EXPECT_EQ(received, sent);
  for (std::size_t i = 0; i < memory.size(); ++i) device(i).deallocate(memory[i], kBytes);
}

TEST_P(DeviceContract, memory_copies_stay_in_stream_order) {
  constexpr std::size_t kBytes = 64;
  Gate gate;
  auto source = pattern(kBytes, 3);
  std::vector<std::uint8_t> target(kBytes, 0);
  Stream stream = device().stream();
  stream.launch(hold(gate));
  stream.launch([&] {
    source.assign(kBytes, 77);
    return Status::success();
  });
  stream.ref().copy(target.data(), source.data(), kBytes);
  EXPECT_EQ(target, std::vector<std::uint8_t>(kBytes, 0));  // enqueued, not done
  gate.open();
  stream.sync();
  EXPECT_EQ(target, std::vector<std::uint8_t>(kBytes, 77));
}

TEST_P(DeviceContract, memory_moves_of_zero_bytes_do_nothing) {
  Stream stream = device().stream();
  stream.ref().copy(nullptr, nullptr, 0);
  stream.ref().fill(nullptr, 1, 0);
  stream.sync();
  EXPECT_TRUE(stream.ref().status().ok());
}

TEST_P(DeviceContract, memory_null_pointers_are_refused_at_the_call) {
  Stream stream = device().stream();
  char byte = 0;
  std::string text;
  EXPECT_EQ(code_of([&] { stream.ref().copy(nullptr, &byte, 1); }, &text), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { stream.ref().copy(&byte, nullptr, 1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { stream.ref().fill(nullptr, 1, 1); }), ErrorCode::invalid_argument);
  EXPECT_NE(text.find("copy of 1 bytes"), std::string::npos) << text;
  stream.sync();
}

TEST_P(DeviceContract, memory_shortage_is_an_error_with_numbers) {
  const std::size_t bytes = GetParam().too_many_bytes;
  std::string text;
  EXPECT_EQ(code_of([&] { device().allocate(bytes); }, &text), ErrorCode::out_of_memory);
  EXPECT_NE(text.find(std::to_string(bytes)), std::string::npos) << text;
  EXPECT_NE(text.find("free"), std::string::npos) << text;
  EXPECT_EQ(code_of([&] { device().allocate(0); }), ErrorCode::invalid_argument);
  void* memory = device().allocate(4096);
  device().deallocate(memory, 4096);
  device().deallocate(nullptr, 0);
}

TEST_P(DeviceContract, memory_imported_twice_is_one_memory) {
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  base::UniqueFd segment = GetParam().make_shareable(kBytes);
  void* one = device(0).import(segment.get(), kBytes);
  void* two = device(1).import(segment.get(), kBytes);
  ASSERT_NE(one, two);
  segment.reset();  // the mappings stay
  const auto sent = pattern(kBytes, 4);
  std::vector<std::uint8_t> received(kBytes, 0);
  Stream writer = device(0).stream();
  Stream reader = device(1).stream();
  Event written(device(0));
  writer.ref().copy(one, sent.data(), kBytes);
  writer.record(written);
  reader.wait(written);
  reader.ref().copy(received.data(), two, kBytes);
  reader.sync();
  EXPECT_EQ(received, sent);
  device(0).unimport(one, kBytes);
  device(1).unimport(two, kBytes);
}

TEST_P(DeviceContract, memory_import_of_the_wrong_thing_is_refused) {
  base::UniqueFd segment = GetParam().make_shareable(std::size_t{2} << 20);
  EXPECT_NE(code_of([&] { device().import(segment.get(), std::size_t{4} << 20); }), ErrorCode::ok);
  EXPECT_NE(code_of([&] { device().import(-1, 4096); }), ErrorCode::ok);
  EXPECT_EQ(code_of([&] { device().import(segment.get(), 0); }), ErrorCode::invalid_argument);
  base::UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  EXPECT_NE(code_of([&] { device().import(unsealed.get(), 4096); }), ErrorCode::ok);
}

}  // namespace tugline::contract
