// SPDX-License-Identifier: Apache-2.0
// Who is at the other end of a socket, and whether it may come in.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/unique_fd.h"
#include "core/messages.h"

namespace tugline::broker {

/// As the kernel recorded it when the connection was made.
struct PeerIdentity {
  uid_t uid = static_cast<uid_t>(-1);
  gid_t gid = static_cast<gid_t>(-1);
  pid_t pid = 0;  ///< 0: in a PID namespace that is not visible from here
};

/// Throws Error{system}.
PeerIdentity peer_identity(int socket);

/// A pidfd of this process. Throws Error{unsupported} or Error{out_of_memory}.
base::UniqueFd own_pidfd();
/// A pidfd of another process; none if it is gone or not visible.
base::UniqueFd pidfd_of(pid_t pid) noexcept;

enum class PidfdVerdict : std::uint8_t {
  genuine,        ///< of the process with that pid, or of a process whose pid is not visible here
  not_a_pidfd,    ///< some other kind of descriptor
  other_process,  ///< a pidfd of another visible process
};

/// Checks a received pidfd against the credentials of its sender. A pid of 0 cannot be compared.
PidfdVerdict check_pidfd(int pidfd, pid_t expected_pid) noexcept;

/// True when the process has ended.
bool has_ended(int pidfd) noexcept;

using Token = std::array<std::uint8_t, core::kTokenBytes>;

/// 64 hexadecimal digits to bytes; none if it is anything else.
std::optional<Token> parse_token(std::string_view hex) noexcept;

/// Compares in a time that does not depend on where the tokens differ.
bool equal_tokens(const Token& one, const Token& other) noexcept;

}  // namespace tugline::broker
