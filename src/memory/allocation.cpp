// SPDX-License-Identifier: Apache-2.0
#include "memory/allocation.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

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
      : reference_(client, segment.id),
        memory_(MemberMemory::of(client)),
        mapping_(segment.descriptor.get(), segment.bytes, base::Access::read_write) {
    base::populate(mapping_.data(), mapping_.bytes());
    window_.emplace(memory_->windows(), mapping_.data(), mapping_.bytes(), segment.id, 0);
  }

  // In this order: an address is forgotten before its pages are unmapped, and these before the reference
  // goes.
  SegmentReference reference_;
  std::shared_ptr<MemberMemory> memory_;
  base::Mapping mapping_;
  std::optional<WindowEntry> window_;
};

std::string limit_text(std::uint64_t bytes) {
  return bytes == 0 ? "no limit" : fmt::format("a limit of {}", bytes);
}

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
  if (client_) client_->give_back(id_);
}

void throw_out_of_memory(broker::Client& client, std::size_t bytes, const Error& error) {
  const auto usage = client.usage(client.member());
  auto context = error.context();
  context.rank = client.rank();
  throw Error(ErrorCode::out_of_memory, error.remedy(),
              fmt::format("{} bytes were asked by rank {}, which has {} ({}) in a job that has {} ({}); {}",
                          bytes, client.rank(), usage.member_bytes(), limit_text(usage.member_limit_bytes),
                          usage.job_bytes, limit_text(usage.job_limit_bytes), error.what_failed()),
              error.what_to_do(), std::move(context));
}

void relieve(const std::shared_ptr<broker::Client>& client, std::size_t bytes, const Error& error) {
  if (MemberMemory::of(client)->relieve() == 0) throw_out_of_memory(*client, bytes, error);
}

std::shared_ptr<SharedAllocation> allocate(std::shared_ptr<broker::Client> client, std::size_t bytes) {
  if (bytes == 0)
    throw Error(ErrorCode::invalid_argument, "0 bytes of shared memory were asked",
                "ask for at least one element", {.operation = "allocate", .rank = client->rank()});
  return with_relief(client, bytes, [&]() -> std::shared_ptr<SharedAllocation> {
    return std::make_shared<HostAllocation>(client, bytes);
  });
}

}  // namespace tugline::memory
