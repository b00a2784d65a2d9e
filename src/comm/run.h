// SPDX-License-Identifier: Apache-2.0
// An operation that is carried out step by step: what its driver needs to know of it, whether it runs alone
// or beside others in a group.
#pragma once

#include <cstdint>
#include <optional>

#include "comm/epoch.h"
#include "comm/same_calls.h"
#include "comm/wait.h"
#include "tugline/error.h"

namespace tugline::comm {

/// Never blocks: one thread can drive many. Once it has been destroyed, no other rank touches the caller's
/// buffers.
class Run {
 public:
  explicit Run(const Descriptor& descriptor) noexcept : descriptor_(descriptor) {}
  virtual ~Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Does what can be done now. `done` once, at the end; then the operation is finished and published as
  /// such.
  virtual Poll advance() = 0;
  /// Looks at the calls of all ranks this operation waits for; called when waiting takes long.
  virtual void look_for_mismatch() = 0;
  virtual WaitSubject subject() const = 0;
  virtual Pending pending() const noexcept = 0;
  /// Whether it goes, or went, from buffer to buffer; final once the first step has been carried out.
  virtual bool is_direct() const noexcept = 0;

  /// A peer's different call, once one was seen.
  const std::optional<CallDifference>& difference() const noexcept { return difference_; }
  const Descriptor& descriptor() const noexcept { return descriptor_; }
  /// A different call was seen, or a mapping failed: the run will not go on.
  bool has_failed() const noexcept { return difference_.has_value() || mapping_error_.has_value(); }
  std::uint64_t sequence() const noexcept { return sequence_; }
  /// Set when a buffer of a peer that was offered could not be mapped here; then advance() only blocks.
  const std::optional<Error>& mapping_error() const noexcept { return mapping_error_; }

 protected:
  std::uint64_t sequence_ = 0;
  const Descriptor descriptor_;
  std::optional<CallDifference> difference_;
  std::optional<Error> mapping_error_;
};

}  // namespace tugline::comm
