// SPDX-License-Identifier: Apache-2.0
// Holds one robust futex word in shared memory: when the holding thread ends without giving it back, for
// whatever reason, the kernel sets FUTEX_OWNER_DIED in it and wakes one waiter. The kernel does so when the
// thread exits, before it takes the process's memory down, hence at once however large the process is.
#pragma once

#include <linux/futex.h>

#include <atomic>
#include <cstdint>

namespace tugline::broker {

/// Made and destroyed by the thread that holds the word; that thread must use no robust pthread mutex in
/// between, as the kernel keeps one robust list per thread and this one takes its place. The list's head and
/// node are private memory, only the word is shared: nobody else can lead the kernel astray.
class RobustWord {
 public:
  /// Sets the word to the thread's id | FUTEX_WAITERS. Throws Error{system}.
  explicit RobustWord(std::atomic<std::uint32_t>& word);
  /// Sets the word to 0 without firing, and gives the thread its former list back.
  ~RobustWord();
  RobustWord(const RobustWord&) = delete;
  RobustWord& operator=(const RobustWord&) = delete;

 private:
  std::atomic<std::uint32_t>& word_;
  robust_list_head head_{};
  robust_list node_{};
  robust_list_head* former_ = nullptr;
};

/// True when the kernel has released the word because its holder is gone.
constexpr bool owner_died(std::uint32_t word) noexcept {
  return (word & FUTEX_OWNER_DIED) != 0;
}

}  // namespace tugline::broker
