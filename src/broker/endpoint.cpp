// SPDX-License-Identifier: Apache-2.0
#include "broker/endpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "tugline/error.h"

namespace tugline::broker {

Endpoint::Endpoint(Place place, std::string token_hex, base::UniqueFd locked_directory)
    : place_(std::move(place)), token_hex_(std::move(token_hex)), directory_(std::move(locked_directory)) {
  if (token_hex_.empty()) token_hex_ = base::random_hex(core::kTokenBytes);
  const auto token = parse_token(token_hex_);
  if (!token)
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("the job's token has {} characters and is not 64 hexadecimal digits", token_hex_.size()),
        "set TUGLINE_TOKEN to 64 hexadecimal digits, or leave it unset");
  token_ = *token;
  if (!directory_)
    directory_ = claim_directory(place_);
  else if (!lock_directory(place_, directory_.get()))
    throw Error(ErrorCode::already_exists,
                fmt::format("the lock of {} was to be handed over and is another's", place_.directory),
                "start the broker without --job-scoped");
  try {
    write_token(place_, directory_.get(), token_hex_);
    listener_ = listen_at(place_, directory_.get());
  } catch (...) {
    remove_files();
    throw;
  }
}

Endpoint::~Endpoint() {
  listener_.reset();
  remove_files();
}

void Endpoint::remove_files() noexcept {
  for (const auto& leaf : {place_.socket_name, std::string(kTokenFileName), place_.socket_name + ".new",
                           std::string(kTokenFileName) + ".new"}) {
    if (::unlinkat(directory_.get(), leaf.c_str(), 0) != 0 && errno != ENOENT)
      base::log(base::LogLevel::warn, "cannot remove {}/{}: {}", place_.directory, leaf,
                std::strerror(errno));
  }
  // A directory that the user named, or with files of his in it, stays.
  if (place_.derived_from_job && ::rmdir(place_.directory.c_str()) != 0 && errno != ENOENT &&
      errno != ENOTEMPTY && errno != EEXIST)
    base::log(base::LogLevel::warn, "cannot remove {}: {}", place_.directory, std::strerror(errno));
  // Not left to close(): a forked child may hold the same open file.
  ::flock(directory_.get(), LOCK_UN);
}

}  // namespace tugline::broker
