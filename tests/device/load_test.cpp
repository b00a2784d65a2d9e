// SPDX-License-Identifier: Apache-2.0
// The CUDA backend is there, or the reason why not is given, the same at every call.
#include "device/load.h"

#include <gtest/gtest.h>

#include <string>

namespace tugline::device {
namespace {

std::string reason() {
  try {
    const Backend& backend = load_cuda();
    EXPECT_EQ(backend.kind(), DeviceKind::cuda);
    EXPECT_EQ(&backend, &load_cuda());
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    EXPECT_FALSE(error.what_to_do().empty());
    return error.what_failed();
  }
}

TEST(LoadCuda, gives_one_backend_or_always_the_same_reason) {
  const std::string first = reason();
  EXPECT_EQ(reason(), first);
  EXPECT_TRUE(first.empty() || first.find("CUDA") != std::string::npos) << first;
}

TEST(LoadCuda, is_not_needed_for_host_devices) {
  (void)reason();
  EXPECT_EQ(host_device(0).info().kind, DeviceKind::host);
  EXPECT_EQ(&find_device(DeviceKind::host, 0), &host_device(0));
}

TEST(NativeStreams, are_refused_by_the_host) {
  const auto code_of = [](auto&& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::ok;
  };
  Device& host = host_device(0);
  EXPECT_EQ(code_of([&] { (void)StreamRef::from_native_handle(host, 7); }), ErrorCode::unsupported);
  EXPECT_EQ(code_of([&] { (void)StreamRef::from_native_handle(host, 0); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)host.default_stream().native_handle(); }), ErrorCode::unsupported);
}

}  // namespace
}  // namespace tugline::device
