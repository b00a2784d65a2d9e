// SPDX-License-Identifier: Apache-2.0
#include "memory/allocation.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "base/log.h"
#include "memory/member_memory.h"
#include "tugline/error.h"

namespace tugline::memory {
namespace {

class HostAllocation final : public SharedAllocation {
 public:
  HostAllocation(const std::shared_ptr<broker::Client>& client, std::size_t bytes)
      : HostAllocation(client, client->create("", bytes, broker::Lifetime::referenced)) {}

  void* data() const noexcept override { return mapping_.data(); }
  std::size_t bytes() const noexcept override { return mapping_.bytes(); }

 private:
  HostAllocation(const std::shared_ptr<broker::Client>& client, const broker::Segment& segment)
      : memory_(MemberMemory::of(client)),
        reference_(client, segment.id),
        mapping_(segment.descriptor.get(), segment.bytes, base::Access::read_write) {
    base::populate(mapping_.data(), mapping_.bytes());
    window_.emplace(memory_->windows(), mapping_.data(), mapping_.bytes(), segment.id, 0);
  }

  // In this order: an address is forgotten before its pages are unmapped, and these before the reference
  // goes.
  std::shared_ptr<MemberMemory> memory_;
  SegmentReference reference_;
  base::Mapping mapping_;
  std::optional<WindowEntry> window_;
};

}  // namespace

SharedAllocation::~SharedAllocation() = default;

std::size_t bytes_of(std::size_t count, std::size_t element_bytes) {
  // Half the address space: no object is larger.
  constexpr auto kMost = static_cast<std::size_t>(PTRDIFF_MAX);
  if (count > kMost / element_bytes)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} elements of {} bytes were asked, more than fit an address space", count,
                            element_bytes),
                "check the count: a negative number becomes a very large one");
  return count * element_bytes;
}

SegmentReference::~SegmentReference() {
  try {
    client_->release(id_);
  } catch (const Error& error) {
    // The broker is gone or has dropped this member's references by itself; in a forked child the reference
    // is the parent's.
    base::log(base::LogLevel::debug, "segment {} was not released: {}", id_, error.what_failed());
  }
}

std::shared_ptr<SharedAllocation> allocate(std::shared_ptr<broker::Client> client, std::size_t bytes) {
  if (bytes == 0)
    throw Error(ErrorCode::invalid_argument, "0 bytes of shared memory were asked",
                "ask for at least one element", {.operation = "allocate", .rank = client->rank()});
  return std::make_shared<HostAllocation>(client, bytes);
}

}  // namespace tugline::memory
