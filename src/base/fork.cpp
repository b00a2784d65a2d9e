// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <new>

#include "base/random.h"
#include "tugline/error.h"

namespace tugline::base {

std::atomic<std::uint32_t> detail::forks = 1;

namespace {
[[maybe_unused]] const int kForkHook =
    ::pthread_atfork(nullptr, nullptr, [] { detail::forks.fetch_add(1, std::memory_order_relaxed); });

/// A word that is 0 again in every child.
std::atomic<std::uint64_t>* word_of_this_process() {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* address = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED || ::madvise(address, page, MADV_WIPEONFORK) != 0)
    throw Error(errno == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::system,
                "no page could be had that is wiped in forked children", "give the process more memory",
                {.operation = "madvise", .native_code = errno});
  return new (address) std::atomic<std::uint64_t>(0);
}

}  // namespace

std::uint64_t process_identity() {
  static auto* word = word_of_this_process();
  auto identity = word->load(std::memory_order_acquire);
  while (identity == 0) {
    const auto drawn = std::strtoull(random_hex(sizeof(identity)).c_str(), nullptr, 16);
    if (word->compare_exchange_strong(identity, drawn, std::memory_order_acq_rel)) identity = drawn;
  }
  return identity;
}

}  // namespace tugline::base
