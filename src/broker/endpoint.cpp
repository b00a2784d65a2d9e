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
  if (directory_ && !lock_directory(place_, directory_.get()))
    throw Error(ErrorCode::already_exists,
                fmt::format("the lock of {} was to be handed over and is another's", place_.directory),
                "start the broker without --job-scoped");
  try {
    if (!directory_) directory_ = claim_directory(place_, &made_);
    write_token(place_, directory_.get(), token_hex_);
    listener_ = listen_at(place_, directory_.get());
  } catch (...) {
    remove_all();
    throw;
  }
}

Endpoint::~Endpoint() {
  listener_.reset();
  remove_all();
}

void Endpoint::remove_all() noexcept {
  if (directory_) remove_files(place_, directory_.get());
  // Fails, as it should, when other jobs have come in meanwhile.
  if (!made_.directory.empty()) ::rmdir(made_.directory.c_str());
}

}  // namespace tugline::broker
