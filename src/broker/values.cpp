// SPDX-License-Identifier: Apache-2.0
#include "broker/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tugline/error.h"

namespace tugline::broker {
namespace {

constexpr std::size_t kMaxStoreBytes = std::size_t{16} << 20;
constexpr std::size_t kEntryOverheadBytes = 128;
constexpr std::ptrdiff_t kMaxWaitersPerConnection = 64;

}  // namespace

std::vector<Waiter> ValueStore::put(const std::string& key, std::string value) {
  const auto at = values_.find(key);
  const auto before = at == values_.end() ? 0 : key.size() + at->second.size() + kEntryOverheadBytes;
  const auto after = key.size() + value.size() + kEntryOverheadBytes;
  if (used_bytes_ - before + after > kMaxStoreBytes)
    throw Error(ErrorCode::out_of_memory,
                fmt::format("the job's values fill {} bytes, at most {} fit", used_bytes_, kMaxStoreBytes),
                "keep bulk data in segments, not in values");
  used_bytes_ = used_bytes_ - before + after;
  values_[key] = std::move(value);

  std::vector<Waiter> woken;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (waiter->second.key == key) {
      woken.push_back(std::move(waiter->second));
      waiter = waiters_.erase(waiter);
    } else {
      ++waiter;
    }
  }
  return woken;
}

const std::string* ValueStore::find(const std::string& key) const noexcept {
  const auto at = values_.find(key);
  return at == values_.end() ? nullptr : &at->second;
}

void ValueStore::wait(Waiter waiter, std::uint64_t deadline_ns) {
  const auto same = std::count_if(waiters_.begin(), waiters_.end(), [&](const auto& entry) {
    return entry.second.connection == waiter.connection;
  });
  if (same >= kMaxWaitersPerConnection)
    throw Error(
        ErrorCode::out_of_memory,
        fmt::format("this member has {} waiting gets, at most {} are kept", same, kMaxWaitersPerConnection),
        "wait for fewer keys at once");
  waiters_.emplace(deadline_ns, std::move(waiter));
}

std::optional<std::uint64_t> ValueStore::next_deadline_ns() const noexcept {
  if (waiters_.empty()) return std::nullopt;
  return waiters_.begin()->first;
}

std::vector<Waiter> ValueStore::expired(std::uint64_t now_ns) {
  std::vector<Waiter> out;
  const auto end = waiters_.upper_bound(now_ns);
  for (auto at = waiters_.begin(); at != end; ++at) out.push_back(std::move(at->second));
  waiters_.erase(waiters_.begin(), end);
  return out;
}

void ValueStore::drop_connection(std::uint64_t connection) {
  std::erase_if(waiters_, [&](const auto& entry) { return entry.second.connection == connection; });
}

void ValueStore::clear() {
  values_.clear();
  used_bytes_ = 0;
}

}  // namespace tugline::broker
