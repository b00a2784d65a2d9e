// SPDX-License-Identifier: Apache-2.0
// Shared host memory that the broker holds.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "base/shared_memory.h"
#include "broker/client.h"
#include "tugline/buffer.h"
#include "tugline/error.h"

namespace tugline::memory {

/// One reference of this member to a segment, given back when destroyed. The memory itself belongs to the
/// broker and lives as its Lifetime says.
class SegmentReference {
 public:
  SegmentReference(std::shared_ptr<broker::Client> client, broker::SegmentId id) noexcept
      : client_(std::move(client)), id_(id) {}
  ~SegmentReference();
  SegmentReference(SegmentReference&&) noexcept = default;  // leaves none behind
  SegmentReference& operator=(SegmentReference&&) = delete;

  broker::Client& client() const noexcept { return *client_; }
  broker::SegmentId id() const noexcept { return id_; }

 private:
  std::shared_ptr<broker::Client> client_;
  broker::SegmentId id_;
};

/// `error` is out_of_memory: gives back what pools and imports of the member do not use. Where there is
/// nothing, throws it with `bytes`, which were asked, what is in use and the limits.
void relieve(const std::shared_ptr<broker::Client>& client, std::size_t bytes, const Error& error);
[[noreturn]] void throw_out_of_memory(broker::Client& client, std::size_t bytes, const Error& error);

/// What `make` returns; it is called once more where memory was short and some could be given back.
template <class Make>
auto with_relief(const std::shared_ptr<broker::Client>& client, std::size_t bytes, Make make) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    relieve(client, bytes, error);
  }
  try {
    return make();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    throw_out_of_memory(*client, bytes, error);
  }
}

/// Makes an anonymous segment of `bytes`, zeroed, its pages resident and charged to this process. Keeps no
/// descriptor. Blocks for the kernel to clear the pages (about 0.2 s per GiB). Where memory is short, gives
/// back what pools and imports of this member do not use, and tries again. Throws Error{invalid_argument} for
/// 0 bytes, Error{out_of_memory} with bytes asked, in use and the limits, Error{broker_lost}.
std::shared_ptr<SharedAllocation> allocate(std::shared_ptr<broker::Client> client, std::size_t bytes);

}  // namespace tugline::memory
