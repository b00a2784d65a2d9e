// SPDX-License-Identifier: Apache-2.0
#include "memory/registration.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/exchange_pages.h"
#include "base/log.h"
#include "base/mappings.h"
#include "memory/allocation.h"
#include "memory/member_memory.h"
#include "tugline/error.h"

namespace tugline::memory {
namespace {

/// What a forked child has to change.
struct SharedRange {
  void* address;
  std::size_t bytes;
  int memfd;
};

/// Pages are exchanged by one thread at a time, and by none while the process forks.
struct Exchanges {
  std::mutex mutex;
  std::vector<SharedRange> shared;
};

Exchanges& exchanges() {
  static auto* all = new Exchanges;  // lives as long as registrations of static objects
  // A child's writes must not reach the parent: what was private memory is copied on write there, as any
  // other. Until a page is written it shows what the parent has.
  [[maybe_unused]] static const int kForkHook = ::pthread_atfork(
      [] { all->mutex.lock(); }, [] { all->mutex.unlock(); },
      [] {
        for (const auto& range : all->shared)
          ::mmap(range.address, range.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, range.memfd, 0);
        all->mutex.unlock();
      });
  return *all;
}

constexpr auto kOperation = "register memory";

[[noreturn]] void refuse(const broker::Client& client, ErrorCode code, std::string what, std::string remedy) {
  throw Error(code, std::move(what), std::move(remedy), {.operation = kOperation, .rank = client.rank()});
}

void require_whole_pages(const broker::Client& client, void* address, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (address == nullptr || bytes == 0 || begin + bytes < begin)
    refuse(client, ErrorCode::invalid_argument, fmt::format("{} bytes at {} are no memory", bytes, address),
           "pass the address and the size of memory that is there");
  if (begin % page == 0 && bytes % page == 0) return;
  refuse(client, ErrorCode::invalid_argument,
         fmt::format("{} bytes at {}: the {} is no multiple of the page size, {} bytes, and other things lie "
                     "in the same page",
                     bytes, address, begin % page != 0 ? "address" : "size", page),
         fmt::format("allocate whole pages, by aligned_alloc({}, a multiple of {}), or use Job::allocate",
                     page, page));
}

/// Of the calling thread, which would lose what it writes there meanwhile.
bool touches_own_stack(const void* address, std::size_t bytes) noexcept {
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return false;
  void* low = nullptr;
  std::size_t size = 0;
  ::pthread_attr_getstack(&attributes, &low, &size);
  ::pthread_attr_destroy(&attributes);
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const auto stack = reinterpret_cast<std::uintptr_t>(low);
  return begin < stack + size && stack < begin + bytes;
}

/// Everything in the range has to be private, anonymous, readable and writable.
void require_private_memory(const broker::Client& client, void* address, std::size_t bytes) {
  const auto refuse_because = [&](const std::string& why, ErrorCode code = ErrorCode::invalid_argument,
                                  std::string remedy =
                                      "register private memory that was allocated for "
                                      "reading and writing, or use Job::allocate") {
    refuse(client, code, fmt::format("{} bytes at {} {}", bytes, address, why), std::move(remedy));
  };
  auto next = reinterpret_cast<std::uintptr_t>(address);
  const auto end = next + bytes;
  for (const auto& range : base::mapped_ranges(address, bytes)) {
    if (range.begin > next) break;
    next = range.end;
    const auto where = fmt::format("{:#x}", std::max(range.begin, reinterpret_cast<std::uintptr_t>(address)));
    if (range.name.starts_with("/memfd:tugline-"))
      refuse_because("are memory of the library, or registered, at " + where, ErrorCode::already_exists,
                     "use it as it is: others reach it already");
    if (range.access.ends_with('s'))
      refuse_because(fmt::format("are shared memory at {} ({})", where, range.name));
    if (range.inode != 0) refuse_because(fmt::format("are mapped from {} at {}", range.name, where));
    if (range.access != "rw-p")
      refuse_because(fmt::format("have the rights {} at {}, not rw-p", range.access, where));
    if (range.name.starts_with("[stack")) refuse_because("are a stack");
  }
  if (next < end) refuse_because(fmt::format("have nothing mapped at {:#x}", next));
  if (touches_own_stack(address, bytes)) refuse_because("are the stack of the calling thread");
}

class PagesInPlace final : public Registration {
 public:
  PagesInPlace(const std::shared_ptr<broker::Client>& client, void* address, std::size_t bytes)
      : PagesInPlace(client, address, client->create("", bytes, broker::Lifetime::referenced)) {
    auto& all = exchanges();
    std::lock_guard lock(all.mutex);
    require_private_memory(*client, address_, bytes_);
    all.shared.reserve(all.shared.size() + 1);
    window_.emplace(memory_->windows(), address_, bytes_, reference_.id(), 0);
    base::exchange_for_shared(address_, bytes_, memfd_.get());
    all.shared.push_back({address_, bytes_, memfd_.get()});
    is_shared_ = true;
  }

  ~PagesInPlace() override {
    window_.reset();
    if (!is_shared_) return;
    auto& all = exchanges();
    std::lock_guard lock(all.mutex);
    std::erase_if(all.shared, [this](const SharedRange& range) { return range.memfd == memfd_.get(); });
    // A child has its copy already.
    if (reference_.client().standing() != broker::Standing::forked) make_private();
  }

  void* data() const noexcept override { return address_; }
  std::size_t bytes() const noexcept override { return bytes_; }

 private:
  PagesInPlace(const std::shared_ptr<broker::Client>& client, void* address, broker::Segment segment)
      : reference_(client, segment.id),
        memory_(MemberMemory::of(client)),
        address_(address),
        bytes_(segment.bytes),
        memfd_(std::move(segment.descriptor)) {
    struct stat file {};
    if (::fstat(memfd_.get(), &file) == 0) inode_ = file.st_ino;
  }

  void make_private() noexcept {
    try {
      if (is_still_there()) return base::exchange_for_private(address_, bytes_, memfd_.get());
      base::log(
          base::LogLevel::error,
          "{} bytes at {} were unmapped, or mapped anew, while they were registered: end a registration "
          "before its memory is freed",
          bytes_, address_);
    } catch (const Error& error) {
      base::log(base::LogLevel::warn,
                "{} bytes at {} are registered no more and whole, but stay shared memory: {}", bytes_,
                address_, error.what_failed());
    }
  }

  bool is_still_there() const {
    auto next = reinterpret_cast<std::uintptr_t>(address_);
    const auto end = next + bytes_;
    for (const auto& range : base::mapped_ranges(address_, bytes_)) {
      if (range.begin > next || range.inode != inode_ || !range.access.ends_with('s')) return false;
      next = range.end;
    }
    return next >= end;
  }

  SegmentReference reference_;
  std::shared_ptr<MemberMemory> memory_;
  void* address_;
  std::size_t bytes_;
  base::UniqueFd memfd_;  ///< kept for forked children, who cannot ask the broker
  std::uint64_t inode_ = 0;
  bool is_shared_ = false;
  std::optional<WindowEntry> window_;
};

}  // namespace

Registration::~Registration() = default;

std::unique_ptr<Registration> register_memory(std::shared_ptr<broker::Client> client, void* address,
                                              std::size_t bytes) {
  require_whole_pages(*client, address, bytes);
  // Before anything is asked of the broker; again when no other thread can exchange pages.
  require_private_memory(*client, address, bytes);
  return with_relief(client, bytes, [&]() -> std::unique_ptr<Registration> {
    return std::make_unique<PagesInPlace>(client, address, bytes);
  });
}

}  // namespace tugline::memory
