// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <vector>

#include "tugline/error.h"

namespace tugline::base {

std::string random_hex(std::size_t bytes) {
  std::vector<std::uint8_t> raw(bytes);
  std::size_t filled = 0;
  while (filled < bytes) {
    const auto got = ::getrandom(raw.data() + filled, bytes - filled, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw Error(ErrorCode::system, "the kernel gave no random bytes", "allow the system call getrandom",
                  {.operation = "getrandom", .native_code = errno});
    }
    filled += static_cast<std::size_t>(got);
  }
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes);
  for (const auto byte : raw) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace tugline::base
