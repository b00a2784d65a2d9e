// SPDX-License-Identifier: Apache-2.0
// Who may write a named buffer: one member at a time, recorded in the buffer's header.
#pragma once

#include <memory>
#include <string>

#include "broker/client.h"
#include "memory/named_layout.h"

namespace tugline::memory {

/// One member's view of the writer word. Thread-safe.
class Writer {
 public:
  Writer(NamedHeader& header, std::shared_ptr<broker::Client> client, std::string name);

  /// Makes this member the writer, or confirms that it is. Takes over from a member that has left, and from a
  /// dead one as soon as the broker knows that its process runs no more: until then it could still write.
  /// Throws Error{invalid_usage} when another living member is the writer, Error{stale_epoch} when this
  /// member itself has been removed or has left, Error{timed_out} when the dead one's process does not end,
  /// Error{broker_lost}.
  void claim();
  /// Throws Error{invalid_usage} unless this member is the writer, Error{stale_epoch} when it was removed.
  void require() const;

  MemberIdentity self() const noexcept { return self_; }
  bool is_living(MemberIdentity member) const noexcept;

 private:
  void require_membership() const;
  void wait_for_end(MemberIdentity dead) const;
  [[noreturn]] void throw_taken(MemberIdentity writer) const;

  NamedHeader& header_;
  std::shared_ptr<broker::Client> client_;
  std::string name_;
  MemberIdentity self_;
};

}  // namespace tugline::memory
