// SPDX-License-Identifier: Apache-2.0
#include "broker/robust_word.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "tugline/error.h"

namespace tugline::broker {
namespace {

void set_list(robust_list_head* head, const char* purpose) {
  if (::syscall(SYS_set_robust_list, head, sizeof *head) == 0) return;
  ErrorContext context;
  context.native_code = errno;
  throw Error(ErrorCode::system, std::string("the kernel refused a robust futex list, ") + purpose,
              "run on a kernel with futexes (CONFIG_FUTEX) and a seccomp filter that allows set_robust_list",
              std::move(context));
}

}  // namespace

RobustWord::RobustWord(std::atomic<std::uint32_t>& word) : word_(word) {
  std::size_t bytes = 0;
  if (::syscall(SYS_get_robust_list, 0, &former_, &bytes) != 0) former_ = nullptr;
  head_.list.next = &node_;
  node_.next = &head_.list;
  // From the node, which is private, to the word, which is not.
  head_.futex_offset = reinterpret_cast<char*>(&word_) - reinterpret_cast<char*>(&node_);
  head_.list_op_pending = nullptr;
  // The kernel reads the list at any time from now on; a word that is not yet ours does not bother it.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  set_list(&head_, "to hold a lifeline");
  word_.store(static_cast<std::uint32_t>(::syscall(SYS_gettid)) | FUTEX_WAITERS, std::memory_order_release);
}

RobustWord::~RobustWord() {
  // A thread that ends between the two leaves nothing to fire.
  word_.store(0, std::memory_order_release);
  ::syscall(SYS_set_robust_list, former_, sizeof head_);
}

}  // namespace tugline::broker
