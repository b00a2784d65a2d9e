// SPDX-License-Identifier: Apache-2.0
// The sanitizers' allocators know the bytes. glibc's mallinfo2() counts what its threads' caches keep free as
// used, which is more than a small leak, so operator new and delete of this program count.
#include "soak/heap.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

extern "C" std::size_t __sanitizer_get_current_allocated_bytes();
// ThreadSanitizer's has none.
extern "C" void __sanitizer_purge_allocator() __attribute__((weak));

namespace tugline::soak {

std::uint64_t heap_bytes() noexcept {
  return __sanitizer_get_current_allocated_bytes();
}
void trim_heap() noexcept {
  if (__sanitizer_purge_allocator != nullptr) __sanitizer_purge_allocator();
}

}  // namespace tugline::soak

#else

namespace {

std::atomic<std::uint64_t> allocated{0};

void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  allocated.fetch_add(::malloc_usable_size(memory), std::memory_order_relaxed);
  return memory;
}

void release(void* memory) noexcept {
  if (memory != nullptr) allocated.fetch_sub(::malloc_usable_size(memory), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

// The others (array, nothrow, sized) call these.
void* operator new(std::size_t bytes) {
  return counted(std::malloc(bytes == 0 ? 1 : bytes));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  release(memory);
}

namespace tugline::soak {

std::uint64_t heap_bytes() noexcept {
  return allocated.load(std::memory_order_relaxed);
}
void trim_heap() noexcept {
  ::malloc_trim(0);
}

}  // namespace tugline::soak

#endif
