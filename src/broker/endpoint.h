// SPDX-License-Identifier: Apache-2.0
// What a running broker owns in the file system: its locked directory, the token file and the listening
// socket. All of it is removed when this is destroyed, before the lock is let go.
#pragma once

#include <string>

#include "base/unique_fd.h"
#include "broker/place.h"

namespace tugline::broker {

class Endpoint {
 public:
  /// Makes the directory and locks it, unless `locked_directory` is one that the caller has locked already.
  /// `token_hex` empty: makes a new token. Throws Error{already_exists} when another broker runs there,
  /// Error{permission_denied}, Error{invalid_argument}, Error{system}.
  Endpoint(Place place, std::string token_hex, base::UniqueFd locked_directory = {});
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  const Place& place() const noexcept { return place_; }
  const std::string& token_hex() const noexcept { return token_hex_; }
  const Token& token() const noexcept { return token_; }
  int listener() const noexcept { return listener_.get(); }

 private:
  void remove_all() noexcept;

  Place place_;
  std::string token_hex_;
  Token token_{};
  Made made_;
  base::UniqueFd directory_;
  base::UniqueFd listener_;
};

}  // namespace tugline::broker
