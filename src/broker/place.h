// SPDX-License-Identifier: Apache-2.0
// Where a job's broker is found: a pathname socket in a directory that is this user's alone. Everything goes
// through a descriptor of that directory, so that nobody can swap a part of the path underneath.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "broker/identity.h"

namespace tugline::broker {

inline constexpr std::string_view kSocketName = "broker.sock";
inline constexpr std::string_view kTokenFileName = "token";

struct Place {
  std::string directory;          ///< of this one broker
  std::string socket_name;        ///< leaf in it
  std::string socket_path;        ///< both, as shown to users
  bool derived_from_job = false;  ///< the directory carries the job's name and goes with the broker
  std::string runtime_directory;  ///< above it, when derived from the job; else empty
};

/// Throws Error{invalid_argument} unless the name is 1 to 64 of [A-Za-z0-9._-] and does not start with a dot.
void check_job_name(std::string_view job);

/// settings().runtime_dir, else $XDG_RUNTIME_DIR/tugline, else /run/user/UID/tugline, each if the directory
/// above it is there and writable, else /tmp/tugline-UID. Absolute.
std::string runtime_directory();

/// `socket_path` if given, else <runtime directory>/<job>/broker.sock. Throws Error{invalid_argument} when a
/// path is longer than the system takes, naming path, length and limit.
Place place_of(std::string_view socket_path, std::string_view job);

enum class Missing : std::uint8_t { make, fail };

/// A directory that was made for a start, outside of the job's own; empty: none.
struct Made {
  std::string directory;
};

/// The directory as the user gave it: the runtime directory, or the socket's.
const std::string& named_by_user(const Place& place);
/// Says what a failed call means for that path.
[[noreturn]] void fail_on_path(const char* call, const std::string& path, int reason);

/// Opens the broker's directory and makes sure that it, and the runtime directory above it, are this user's
/// alone (owner, mode 0700, no symbolic link). Missing::make makes both, but nothing above what the user
/// named, and notes in `made` what is not the job's own; Missing::fail returns none if one is not there.
/// Every error names the directory that the user gave. Throws Error{permission_denied}, Error{not_found},
/// Error{system}, Error{out_of_memory} when no descriptor is left.
base::UniqueFd open_directory(const Place& place, Missing missing, Made* made = nullptr);

/// Takes the lock that a running broker holds on its directory; it belongs to the open descriptor, and so can
/// be handed to another process with it. False when somebody else has it, or when the directory has been
/// removed meanwhile.
bool lock_directory(const Place& place, int directory);

/// Makes the directory and locks it for a broker that is to start. A broker that is just ending is waited
/// for, briefly. Throws Error{already_exists} when one serves there, and what open_directory() throws.
base::UniqueFd claim_directory(const Place& place, Made* made = nullptr);

/// Removes what a broker owns in its directory and, if that carries the job's name, the directory, unless
/// files of somebody else are in it; then lets the lock go. Call with the lock held.
void remove_files(const Place& place, int directory) noexcept;

/// After a start that failed, or a broker that was killed: removes what it left, and what was made for it.
/// Leaves alone what somebody holds the lock of.
void remove_if_dead(const Place& place, const Made& made) noexcept;

/// The same for all jobs under a runtime directory: of each directory whose lock is free and that holds
/// nothing but a broker's files. A start that is under way is either seen by its lock, or finds its directory
/// gone and makes it again.
void remove_left_overs(const std::string& runtime_directory) noexcept;

/// Connects; on failure none, with the reason in `native_code`.
base::UniqueFd connect_to(const Place& place, int directory, int& native_code);

/// Makes a listening socket (mode 0600) that appears under its name only when it accepts. Replaces a stale
/// one: call with the lock held.
base::UniqueFd listen_at(const Place& place, int directory);

/// Writes the token (mode 0600), replacing a stale one: call with the lock held.
void write_token(const Place& place, int directory, std::string_view token_hex);
/// Reads it. Throws Error{permission_denied} when it is another user's or readable by others,
/// Error{not_found} when there is none, Error{protocol} when it is no token.
std::string read_token(const Place& place, int directory);

}  // namespace tugline::broker
