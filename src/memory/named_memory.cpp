// SPDX-License-Identifier: Apache-2.0
#include "memory/named_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>

#include "base/shared_memory.h"
#include "memory/allocation.h"
#include "memory/member_memory.h"
#include "memory/named_layout.h"
#include "memory/writer.h"
#include "tugline/error.h"

namespace tugline::memory {
namespace {

/// Keeps named buffers apart from other segments.
std::string segment_name(std::string_view name) {
  return "named/" + std::string(name);
}

ErrorContext context_of(const broker::Client& client, const char* operation) {
  return {.operation = operation, .rank = client.rank()};
}

[[noreturn]] void throw_mismatch(const broker::Client& client, std::string_view name, const Shape& there,
                                 const Shape& asked) {
  throw Error(ErrorCode::mismatch,
              fmt::format("\"{}\" has {} {} of {} bytes, {} of {} bytes are asked", name, there.copies,
                          there.copies == 1 ? "copy" : "copies", there.bytes, asked.copies, asked.bytes),
              "open it with the shape that it was made with, or use another name",
              context_of(client, "named_buffer"));
}

/// Says the shape, or compares it with what was said.
void check_shape(NamedHeader& header, const broker::Client& client, std::string_view name,
                 const Shape& asked) {
  std::uint64_t word = 0;
  if (header.shape.compare_exchange_strong(word, asked.encode(), std::memory_order_acq_rel,
                                           std::memory_order_acquire))
    return;
  const auto there = Shape::decode(word);
  if (there.magic != kNamedMagic || there.layout != kNamedLayoutVersion)
    throw Error(
        ErrorCode::protocol,
        fmt::format("\"{}\" is no named buffer of this build (magic {:#x}, layout {}; expected {:#x}, {})",
                    name, there.magic, there.layout, kNamedMagic, kNamedLayoutVersion),
        "use the same tugline for all processes of a job", context_of(client, "named_buffer"));
  if (there.bytes != asked.bytes || there.copies != asked.copies) throw_mismatch(client, name, there, asked);
}

/// The broker compares sizes of whole segments; this says which shape is there.
[[noreturn]] void explain_mismatch(broker::Client& client, std::string_view name, const Shape& asked,
                                   const Error& error) {
  const auto segment = client.open(segment_name(name));
  client.release(segment.id);
  if (segment.bytes < kNamedPageBytes) throw error;
  const base::Mapping page(segment.descriptor.get(), kNamedPageBytes, base::Access::read_only);
  const auto word = static_cast<const NamedHeader*>(page.data())->shape.load(std::memory_order_acquire);
  // Made but not shaped yet: the broker's own words are all there is to say.
  if (word == 0) throw error;
  throw_mismatch(client, name, Shape::decode(word), asked);
}

broker::Segment open_segment(broker::Client& client, std::string_view name, const Shape& shape) {
  try {
    // Kept only when it is usable: a name whose maker had no room for it must not stay.
    return client.open_or_create(segment_name(name), shape.segment_bytes(), broker::Lifetime::referenced,
                                 broker::SegmentKind::named);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::mismatch) throw;
    explain_mismatch(client, name, shape, error);
  }
}

class HostNamedMemory final : public NamedMemory {
 public:
  HostNamedMemory(std::shared_ptr<broker::Client> client, std::string name, const Shape& shape,
                  const broker::Segment& segment)
      : reference_(client, segment.id),
        name_(std::move(name)),
        shape_(shape),
        memory_(MemberMemory::of(client)),
        mapping_(segment.descriptor.get(), segment.bytes, base::Access::read_write),
        header_(*static_cast<NamedHeader*>(mapping_.data())),
        writer_(header_, std::move(client), name_) {
    check_shape(header_, reference_.client(), name_, shape_);
    base::populate(mapping_.data(), mapping_.bytes());
    allow(PROT_READ);
    window_.emplace(memory_->windows(), copy(0), shape_.segment_bytes() - kNamedPageBytes, segment.id,
                    kNamedPageBytes);
    reference_.client().keep(segment.id);
  }

  std::size_t bytes() const noexcept override { return shape_.bytes; }
  int copies() const noexcept override { return shape_.copies; }

  std::uint64_t version() const noexcept override {
    return header_.published.load(std::memory_order_acquire) >> 1;
  }

  bool torn() const noexcept override {
    const auto word = header_.dirty.load(std::memory_order_acquire);
    if (word == 0) return false;
    return !writer_.is_living(MemberIdentity::decode(word));
  }

  const void* current() const override {
    reference_.client().require_member("current");
    if (torn())
      throw Error(ErrorCode::torn,
                  fmt::format("the writer of \"{}\" ended while it wrote the only copy, after version {}",
                              name_, version()),
                  "write it anew (next(), publish()), or keep two copies",
                  context_of(reference_.client(), "current"));
    return copy(header_.published.load(std::memory_order_acquire));
  }

  void* next() override {
    writer_.claim();
    if (!writable_) {
      allow(PROT_READ | PROT_WRITE);
      writable_ = true;
    }
    if (shape_.copies == 1) {
      // What a dead writer left half-written stays marked with its name until it is published anew.
      std::uint64_t clean = 0;
      header_.dirty.compare_exchange_strong(clean, writer_.self().encode(), std::memory_order_acq_rel);
    }
    begun_ = true;
    return copy(header_.published.load(std::memory_order_acquire) ^ (shape_.copies == 2 ? 1U : 0U));
  }

  void publish(std::uint64_t version) override {
    writer_.require();
    if (!begun_)
      throw Error(ErrorCode::invalid_usage,
                  fmt::format("\"{}\" is published as version {} without a next() since version {}", name_,
                              version, this->version()),
                  "call next() and write its elements before publish()",
                  context_of(reference_.client(), "publish"));
    const auto word = header_.published.load(std::memory_order_acquire);
    if (version <= word >> 1 || version > kMaxVersion)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("\"{}\" is at version {} and cannot be published as version {}", name_,
                              word >> 1, version),
                  "versions must grow", context_of(reference_.client(), "publish"));
    const auto other = shape_.copies == 2 ? (word & 1) ^ 1 : 0;
    header_.published.store(version << 1 | other, std::memory_order_release);
    // A death in between leaves a whole version that is called torn: the safe side.
    if (shape_.copies == 1) header_.dirty.store(0, std::memory_order_release);
    begun_ = false;
  }

 private:
  void* copy(std::uint64_t published) const noexcept {
    return static_cast<char*>(mapping_.data()) + shape_.copy_offset(static_cast<int>(published & 1));
  }

  void allow(int protection) {
    // A guard against mistakes, where the machine's pages are as small as the header.
    if (::sysconf(_SC_PAGESIZE) > static_cast<long>(kNamedPageBytes)) return;
    char* elements = static_cast<char*>(mapping_.data()) + kNamedPageBytes;
    if (::mprotect(elements, mapping_.bytes() - kNamedPageBytes, protection) == 0) return;
    auto context = context_of(reference_.client(), "mprotect");
    context.native_code = errno;
    throw Error(errno == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::system,
                fmt::format("the protection of \"{}\" cannot be changed", name_),
                "raise vm.max_map_count if the process has very many mappings", std::move(context));
  }

  SegmentReference reference_;
  std::string name_;
  Shape shape_;
  std::shared_ptr<MemberMemory> memory_;
  base::Mapping mapping_;
  std::optional<WindowEntry> window_;  // of all elements; forgotten before they are unmapped
  NamedHeader& header_;
  Writer writer_;
  bool writable_ = false;
  bool begun_ = false;
};

}  // namespace

NamedMemory::~NamedMemory() = default;

std::shared_ptr<NamedMemory> open_named(std::shared_ptr<broker::Client> client, std::string_view name,
                                        std::size_t bytes, const NamedBufferOptions& options) {
  const auto refuse = [&](std::string what, const char* remedy) {
    throw Error(ErrorCode::invalid_argument, std::move(what), remedy, context_of(*client, "named_buffer"));
  };
  if (name.empty()) refuse("a named buffer was asked without a name", "give it a name");
  if (options.copies != 1 && options.copies != 2)
    refuse(fmt::format("\"{}\" was asked with {} copies", name, options.copies), "ask for 1 or 2 copies");
  if (bytes == 0) refuse(fmt::format("\"{}\" was asked with 0 bytes", name), "ask for at least one element");
  if (bytes > kMaxNamedBytes)
    refuse(fmt::format("\"{}\" was asked with {} bytes, {} is the most", name, bytes, kMaxNamedBytes),
           "ask for less than 128 TiB, which is all that a process can map");
  const Shape shape{bytes, options.copies};
  const auto segment = open_segment(*client, name, shape);
  return std::make_shared<HostNamedMemory>(std::move(client), std::string(name), shape, segment);
}

}  // namespace tugline::memory
