// SPDX-License-Identifier: Apache-2.0
// Key-value rendezvous at the broker: values, and requests that wait for one. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tugline::broker {

/// A get that waits for its key.
struct Waiter {
  std::uint64_t connection = 0;
  std::uint32_t request = 0;
  std::string key;
  std::uint32_t wait_ms = 0;
};

class ValueStore {
 public:
  /// Sets the value and returns the requests that waited for it. Throws Error{out_of_memory} when the store
  /// is full.
  std::vector<Waiter> put(const std::string& key, std::string value);
  const std::string* find(const std::string& key) const noexcept;

  /// Throws Error{out_of_memory} when this connection has too many waiting requests.
  void wait(Waiter waiter, std::uint64_t deadline_ns);
  std::optional<std::uint64_t> next_deadline_ns() const noexcept;
  std::size_t waiting() const noexcept { return waiters_.size(); }
  /// Takes out what waits no longer.
  std::vector<Waiter> expired(std::uint64_t now_ns);
  void drop_connection(std::uint64_t connection);
  void clear();

 private:
  std::unordered_map<std::string, std::string> values_;
  std::size_t used_bytes_ = 0;
  std::multimap<std::uint64_t, Waiter> waiters_;  // by deadline
};

}  // namespace tugline::broker
