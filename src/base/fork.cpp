// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <pthread.h>

namespace tugline::base {

std::atomic<std::uint32_t> detail::forks = 1;

namespace {
[[maybe_unused]] const int kForkHook =
    ::pthread_atfork(nullptr, nullptr, [] { detail::forks.fetch_add(1, std::memory_order_relaxed); });
}

}  // namespace tugline::base
