// SPDX-License-Identifier: Apache-2.0
// The contract of device backends: one suite, written against tugline/device.h alone, which every backend
// instantiates (see host_contract_test.cpp).
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "tugline/device.h"

namespace tugline::contract {

/// What a backend gives to the suite.
struct Backend {
  std::string name;
  std::function<std::vector<Device*>()> devices;              ///< at least one
  std::function<base::UniqueFd(std::size_t)> make_shareable;  ///< memory that import() accepts
  std::size_t too_many_bytes = std::size_t{1} << 60;          ///< more than any such device has
};

class DeviceContract : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { devices_ = GetParam().devices(); }
  Device& device(std::size_t index = 0) { return *devices_.at(index % devices_.size()); }
  const std::vector<Device*>& devices() const { return devices_; }

 private:
  std::vector<Device*> devices_;
};

/// Opened once; tasks wait for it, so that tests decide what is still pending. A minute of waiting fails the
/// test instead of hanging it.
class Gate {
 public:
  ~Gate() { open(); }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return opened_.wait_for(lock, std::chrono::minutes(1), [this] { return open_; });
  }
  bool is_open() {
    std::lock_guard lock(mutex_);
    return open_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

/// A task that waits for the gate.
inline HostTask hold(Gate& gate) {
  return [&gate] { return gate.wait() ? Status::success() : Status{.code = ErrorCode::timed_out}; };
}
inline HostTask count(std::atomic<int>& counter) {
  return [&counter] {
    ++counter;
    return Status::success();
  };
}
inline HostTask set(int& variable, int value) {
  return [&variable, value] {
    variable = value;
    return Status::success();
  };
}
inline HostTask fail(ErrorCode code, std::uint64_t detail = 0) {
  return [code, detail] { return Status{.code = code, .detail = detail}; };
}

/// The code of the tugline::Error that `call` throws, ok if it throws none; keeps the text.
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

}  // namespace tugline::contract
