// SPDX-License-Identifier: Apache-2.0
#include "base/page_nodes.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tugline::base {

std::map<int, std::uint64_t> pages_by_node(const void* address, std::uint64_t bytes) {
  constexpr std::uint64_t kAtOnce = 4096;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(address) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(address) + bytes;
  std::map<int, std::uint64_t> counts;
  std::vector<std::uintptr_t> pages;
  std::vector<int> nodes;
  for (auto at = first; at < end; at += kAtOnce * page) {
    pages.clear();
    for (auto one = at; one < std::min<std::uintptr_t>(end, at + kAtOnce * page); one += page)
      pages.push_back(one);
    nodes.assign(pages.size(), -1);
    // Without a list of nodes it moves nothing and tells where each page is.
    const bool told = ::syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, nodes.data(), 0) == 0;
    for (const int node : nodes) ++counts[told && node >= 0 ? node : -1];
  }
  return counts;
}

}  // namespace tugline::base
