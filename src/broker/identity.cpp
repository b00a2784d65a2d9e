// SPDX-License-Identifier: Apache-2.0
#include "broker/identity.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "tugline/error.h"

namespace tugline::broker {

PeerIdentity peer_identity(int socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    throw Error(ErrorCode::system, "cannot read the peer's credentials of a broker socket",
                "report the kernel version", {.operation = "getsockopt SO_PEERCRED", .native_code = errno});
  return {credentials.uid, credentials.gid, credentials.pid};
}

base::UniqueFd pidfd_of(pid_t pid) noexcept {
  if (pid <= 0) return {};
  return base::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));  // close-on-exec by definition
}

base::UniqueFd own_pidfd() {
  auto pidfd = pidfd_of(::getpid());
  if (pidfd) return pidfd;
  const int reason = errno;
  if (reason == EMFILE || reason == ENFILE)
    throw Error(ErrorCode::out_of_memory, "no descriptor left for a pidfd of this process",
                "close descriptors, or raise the limit: ulimit -n",
                {.operation = "pidfd_open", .native_code = reason});
  throw Error(ErrorCode::unsupported, "the kernel gives no pidfd of this process",
              "use Linux 5.10 or later, and allow pidfd_open in the seccomp profile",
              {.operation = "pidfd_open", .native_code = reason});
}

PidfdVerdict check_pidfd(int pidfd, pid_t expected_pid) noexcept {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
  base::UniqueFd info(::open(path, O_RDONLY | O_CLOEXEC));
  if (!info) return PidfdVerdict::not_a_pidfd;
  std::array<char, 1024> text;
  const auto bytes = ::read(info.get(), text.data(), text.size());
  if (bytes <= 0) return PidfdVerdict::not_a_pidfd;
  const std::string_view lines(text.data(), static_cast<std::size_t>(bytes));
  // Only pidfds have this line. It lists the process's numbers in the PID namespace of /proc, which need not
  // be the reader's, and in all below it; -1: already reaped.
  constexpr std::string_view kKey = "\nNSpid:";
  const auto at = lines.find(kKey);
  if (at == std::string_view::npos)
    return lines.find("\nPid:") == std::string_view::npos ? PidfdVerdict::not_a_pidfd : PidfdVerdict::genuine;
  if (expected_pid <= 0) return PidfdVerdict::genuine;
  auto numbers = lines.substr(at + kKey.size());
  numbers = numbers.substr(0, numbers.find('\n'));
  while (!numbers.empty()) {
    numbers.remove_prefix(1);  // a tab
    pid_t pid = 0;
    std::from_chars(numbers.data(), numbers.data() + numbers.size(), pid);
    // A sender that has ended meanwhile is let in and found dead at once.
    if (pid == expected_pid || pid == -1) return PidfdVerdict::genuine;
    numbers = numbers.substr(std::min(numbers.find('\t'), numbers.size()));
  }
  return PidfdVerdict::other_process;
}

bool has_ended(int pidfd) noexcept {
  pollfd entry{pidfd, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

std::optional<Token> parse_token(std::string_view hex) noexcept {
  Token token{};
  if (hex.size() != 2 * token.size()) return std::nullopt;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const auto* first = hex.data() + 2 * i;
    const auto [end, fault] = std::from_chars(first, first + 2, token[i], 16);
    if (fault != std::errc() || end != first + 2) return std::nullopt;
  }
  return token;
}

bool equal_tokens(const Token& one, const Token& other) noexcept {
  // volatile keeps the compiler from leaving the loop early.
  volatile std::uint8_t difference = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    difference = static_cast<std::uint8_t>(difference | (one[i] ^ other[i]));
  return difference == 0;
}

}  // namespace tugline::broker
