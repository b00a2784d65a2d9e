// SPDX-License-Identifier: Apache-2.0
// Buffers: memory that the library allocates and the broker holds, and memory of the user that is registered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "tugline/device.h"
#include "tugline/export.h"
#include "tugline/types.h"

namespace tugline {

namespace memory {

/// count * element_bytes; throws Error{invalid_argument} when no memory can be that large.
TUGLINE_EXPORT std::size_t bytes_of(std::size_t count, std::size_t element_bytes);

/// A mapped shared segment with its reference at the broker.
class TUGLINE_EXPORT SharedAllocation {
 public:
  virtual ~SharedAllocation();
  virtual void* data() const noexcept = 0;
  virtual std::size_t bytes() const noexcept = 0;
};

/// Pages of the user's that are those of a shared segment for as long as this lives; see RegisteredMemory.
class TUGLINE_EXPORT Registration {
 public:
  virtual ~Registration();
  virtual void* data() const noexcept = 0;
  virtual std::size_t bytes() const noexcept = 0;
};

/// Untyped named buffer; see NamedBuffer.
class TUGLINE_EXPORT NamedMemory {
 public:
  virtual ~NamedMemory();
  virtual std::size_t bytes() const noexcept = 0;
  virtual int copies() const noexcept = 0;
  virtual std::uint64_t version() const noexcept = 0;
  virtual bool torn() const noexcept = 0;
  virtual const void* current() const = 0;
  virtual void* next() = 0;
  virtual void publish(std::uint64_t version) = 0;
};

}  // namespace memory

/// Owner of `size()` elements. Movable.
template <Element T>
class Buffer {
 public:
  Buffer(std::shared_ptr<memory::SharedAllocation> allocation, std::size_t count) noexcept
      : allocation_(std::move(allocation)), count_(count) {}
  T* data() const noexcept { return static_cast<T*>(allocation_->data()); }
  std::size_t size() const noexcept { return count_; }
  std::span<T> span() const noexcept { return {data(), count_}; }
  operator std::span<T>() const noexcept { return span(); }

 private:
  std::shared_ptr<memory::SharedAllocation> allocation_;
  std::size_t count_;
};

/// Memory of the user's that others can reach, as Job::register_memory() made it. Movable. Destroying it, or
/// deregister(), ends that: the memory becomes private again with the contents it then has. No operation may
/// be using it, and it must still be there; nothing is thrown, and where memory is too short for the way back
/// the contents stay where they are, with one warning.
class RegisteredMemory {
 public:
  RegisteredMemory() noexcept = default;
  explicit RegisteredMemory(std::unique_ptr<memory::Registration> registration) noexcept
      : registration_(std::move(registration)) {}
  explicit operator bool() const noexcept { return registration_ != nullptr; }
  void* data() const noexcept { return registration_ ? registration_->data() : nullptr; }
  std::size_t bytes() const noexcept { return registration_ ? registration_->bytes() : 0; }
  void deregister() noexcept { registration_.reset(); }

 private:
  std::unique_ptr<memory::Registration> registration_;
};

struct NamedBufferOptions {
  int copies = 2;  ///< 2: the last published version is always whole; 1: half the memory, a writer's death
                   ///< leaves it torn
};

/// A buffer found by name, published in versions by one writer and read by many. Version 0 is the zeroed
/// buffer that nobody has published yet. One writer at a time; who writes is recorded, and a new writer takes
/// over from one that has left or died (for that its process must have ended, which is waited for). Until the
/// first next() the elements are mapped read-only.
template <Element T>
class NamedBuffer {
 public:
  NamedBuffer(std::shared_ptr<memory::NamedMemory> memory, std::size_t count) noexcept
      : memory_(std::move(memory)), count_(count) {}
  std::size_t size() const noexcept { return count_; }
  /// Last published version.
  std::uint64_t version() const noexcept { return memory_->version(); }
  /// True when the writer died or left while it wrote the only copy, until that is published anew.
  bool torn() const noexcept { return memory_->torn(); }
  /// The last published version's elements. With two copies they stay whole until the version after next is
  /// begun; with one copy a living writer may be at work on them: who reads beside a writer takes two copies.
  /// Throws Error{torn}.
  std::span<const T> current() const { return {static_cast<const T*>(memory_->current()), count_}; }
  /// The elements to write next. With two copies they hold an older version, or what a former writer left
  /// unpublished; with one copy they are the current ones, and the buffer is marked dirty. Throws
  /// Error{invalid_usage} when another living member is the writer, Error{stale_epoch} when this member has
  /// been removed.
  std::span<T> next() { return {static_cast<T*>(memory_->next()), count_}; }
  /// Makes next() the current version, which must be larger than the last (Error{invalid_argument} names
  /// both). A release store: who sees the version sees the elements. Throws Error{invalid_usage} without a
  /// next() since the last publish().
  void publish(std::uint64_t version) { memory_->publish(version); }

 private:
  std::shared_ptr<memory::NamedMemory> memory_;
  std::size_t count_;
};

}  // namespace tugline
