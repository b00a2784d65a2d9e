// SPDX-License-Identifier: Apache-2.0
// Merges the output of many processes line by line.
#pragma once

#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace tugline::cli {

/// Queue in front of a descriptor that other processes may share, so that it must stay blocking: writes only
/// as much as cannot block once poll() says writable. Not thread-safe.
class Sink {
 public:
  explicit Sink(int descriptor);
  void add(std::string_view text) { pending_ += text; }
  /// Call when poll() reports the descriptor writable.
  void write_some() noexcept;
  /// Writes everything, blocking.
  void write_all() noexcept;
  bool has_pending() const noexcept { return error_ == 0 && done_ < pending_.size(); }
  /// False while so much is queued that its sources should wait.
  bool has_room() const noexcept { return error_ != 0 || pending_.size() - done_ < kHighWater; }
  /// errno of the write that failed, 0 if none has; from then on what is added is dropped.
  int error() const noexcept { return error_; }
  /// For writers that share the descriptor: takes note that nobody reads it any more, if that is so.
  void look_for_reader() noexcept;
  int descriptor() const noexcept { return descriptor_; }

 private:
  static constexpr std::size_t kHighWater = 256 << 10;

  void write_up_to(std::size_t limit) noexcept;

  int descriptor_;
  std::size_t step_bytes_;
  std::string pending_;
  std::size_t done_ = 0;
  int error_ = 0;
};

/// One process's stdout or stderr: hands whole lines, each behind the prefix, to a sink. A last line without
/// newline gets one. Not thread-safe.
class LineSource {
 public:
  LineSource(base::UniqueFd descriptor, std::string prefix, Sink& sink);
  /// Reads once without blocking. Returns false when nothing was there or the end has come.
  bool read_some();
  bool ended() const noexcept { return !descriptor_; }
  int descriptor() const noexcept { return descriptor_.get(); }
  const Sink& sink() const noexcept { return *sink_; }

 private:
  /// Lines longer than this are handed on in pieces, each a line of its own: memory must stay bounded.
  static constexpr std::size_t kLongestLine = 1 << 20;

  void emit(std::string_view line);

  base::UniqueFd descriptor_;
  std::string prefix_;
  std::string partial_;
  Sink* sink_;
};

}  // namespace tugline::cli
