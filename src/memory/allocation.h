// SPDX-License-Identifier: Apache-2.0
// Shared host memory that the broker holds.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "base/shared_memory.h"
#include "broker/client.h"
#include "tugline/buffer.h"

namespace tugline::memory {

/// One reference of this member to a segment, given back when destroyed. The memory itself belongs to the
/// broker and lives as its Lifetime says.
class SegmentReference {
 public:
  SegmentReference(std::shared_ptr<broker::Client> client, broker::SegmentId id) noexcept
      : client_(std::move(client)), id_(id) {}
  ~SegmentReference();
  SegmentReference(const SegmentReference&) = delete;
  SegmentReference& operator=(const SegmentReference&) = delete;

  broker::Client& client() const noexcept { return *client_; }
  broker::SegmentId id() const noexcept { return id_; }

 private:
  std::shared_ptr<broker::Client> client_;
  broker::SegmentId id_;
};

/// Makes an anonymous segment of `bytes`, zeroed, its pages resident and charged to this process. Keeps no
/// descriptor. Blocks for the kernel to clear the pages (about 0.2 s per GiB). Where memory is short, gives
/// back what pools and imports of this member do not use, and tries again. Throws Error{invalid_argument} for
/// 0 bytes, Error{out_of_memory} with bytes asked, in use and the limits, Error{broker_lost}.
std::shared_ptr<SharedAllocation> allocate(std::shared_ptr<broker::Client> client, std::size_t bytes);

}  // namespace tugline::memory
