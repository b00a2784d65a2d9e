// SPDX-License-Identifier: Apache-2.0
#include "device/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tugline::device {
namespace {

template <class Call>
ErrorCode code_of(Call&& call, std::string* text = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  return ErrorCode::ok;
}

// A backend of "cuda" devices that lends host devices: enough for the registry, which only asks for counts
// and infos.
class LentBackend final : public Backend {
 public:
  explicit LentBackend(DeviceKind kind) : kind_(kind) {}
  DeviceKind kind() const noexcept override { return kind_; }
  int device_count() const noexcept override { return 2; }
  Device& device(int index) override { return host_device(5 + index); }

 private:
  DeviceKind kind_;
};

TEST(Registry, host_devices_are_made_on_demand_and_stay) {
  const std::vector<Device*> two = host_devices(2);
  ASSERT_EQ(two.size(), 2u);
  const std::vector<Device*> four = host_devices(4);
  ASSERT_EQ(four.size(), 4u);
  EXPECT_EQ(two[0], four[0]);
  EXPECT_EQ(two[1], four[1]);
  EXPECT_EQ(&host_device(3), four[3]);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(four[static_cast<std::size_t>(i)]->info().index, i);
}

TEST(Registry, numbers_out_of_range_are_refused) {
  for (int count : {0, -1, 1025})
    EXPECT_EQ(code_of([&] { host_devices(count); }), ErrorCode::invalid_argument) << count;
  for (int index : {-1, 1024})
    EXPECT_EQ(code_of([&] { host_device(index); }), ErrorCode::invalid_argument) << index;
}

TEST(Registry, devices_are_found_by_kind_and_by_info) {
  Device& device = host_device(1);
  EXPECT_EQ(&find_device(DeviceKind::host, 1), &device);
  EXPECT_EQ(&find_device(device.info()), &device);
  DeviceInfo unknown = device.info();
  unknown.uuid = "host-elsewhere-7";
  std::string text;
  EXPECT_EQ(code_of([&] { find_device(unknown); }, &text), ErrorCode::not_found);
  EXPECT_NE(text.find("host-elsewhere-7"), std::string::npos) << text;
  EXPECT_NE(text.find(device.info().uuid), std::string::npos) << text;
  EXPECT_EQ(code_of([&] { find_device(DeviceKind::host, 900); }), ErrorCode::not_found);
}

TEST(Registry, backends_add_devices_once_per_kind) {
  EXPECT_EQ(code_of([] { add_backend(std::make_unique<LentBackend>(DeviceKind::host)); }),
            ErrorCode::already_exists);
  add_backend(std::make_unique<LentBackend>(DeviceKind::cuda));
  EXPECT_EQ(code_of([] { add_backend(std::make_unique<LentBackend>(DeviceKind::cuda)); }),
            ErrorCode::already_exists);
  host_devices(7);
  const std::vector<Device*> all = all_devices();
  EXPECT_EQ(std::count(all.begin(), all.end(), &host_device(6)), 2);  // as a host device, and lent
}

TEST(Registry, kinds_have_names) {
  EXPECT_EQ(name_of(DeviceKind::host), "host");
  EXPECT_EQ(name_of(DeviceKind::cuda), "cuda");
}

}  // namespace
}  // namespace tugline::device
