// SPDX-License-Identifier: Apache-2.0
// A job: the processes (or threads) that work together, their broker, named memory, devices.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tugline/buffer.h"
#include "tugline/communicator.h"
#include "tugline/device.h"
#include "tugline/export.h"
#include "tugline/pool.h"

namespace tugline {

struct JobOptions {
  std::optional<int> rank;                 ///< default: from the launcher, see docs/concepts.md
  std::optional<int> size;                 ///< default: from the launcher
  std::optional<std::string> job;          ///< default: from the launcher; a private job when alone
  std::optional<std::string> socket_path;  ///< default: <runtime directory>/<job>/broker.sock
  std::optional<std::string> token;        ///< default: TUGLINE_TOKEN, else the token file beside the socket
  std::optional<int> host_devices;         ///< host devices in this process; default 1
  std::chrono::milliseconds deadline{10'000};  ///< for the broker to answer
};

namespace api {
class JobState;
}

/// One member's hold on a job. Movable; leaves the job when destroyed. Several may exist in one process
/// (ranks as threads). Thread-safe.
class TUGLINE_EXPORT Job {
 public:
  /// Joins the job that the launcher describes: options, TUGLINE_*, torchrun, PMIx, Open MPI, PMI, Slurm,
  /// else alone. Starts a broker if none runs. Does not wait for the other ranks. One INFO line says which
  /// source was used.
  static Job join(const JobOptions& options = {});
  ~Job();
  Job(Job&&) noexcept;
  Job& operator=(Job&&) noexcept;

  int rank() const;
  int size() const;
  const std::string& name() const;
  /// The communicator of all ranks. Does not wait for the others: the first operation does.
  Communicator communicator();
  Device& device(int index = 0);
  int device_count() const;

  /// Memory of `count` elements that the broker holds: shared, zeroed, zero-copy where the backend can.
  template <Element T>
  Buffer<T> allocate(std::size_t count) {
    return Buffer<T>(allocate_bytes(memory::bytes_of(count, sizeof(T))), count);
  }
  /// Lets the other ranks reach private memory that the user has allocated, at the address it has:
  /// collectives on all or part of it copy nothing through scratch (docs/concepts.md). `address` and `bytes`
  /// are multiples of the page size, all of it is anonymous memory (malloc's, mmap's) that may be read and
  /// written. Copies it once (about 0.6 s per GiB) into memory that the broker holds and charges to this
  /// rank; 64 MiB of it are there twice meanwhile. Other threads may read it meanwhile, not write. It must
  /// not be freed or mapped anew while it is registered. A forked child sees it as a copy on write. Throws
  /// Error{invalid_argument} for other memory, Error{already_exists} where it is registered or the library's,
  /// Error{out_of_memory}, Error{broker_lost}; the contents are whole in any case.
  [[nodiscard]] RegisteredMemory register_memory(void* address, std::size_t bytes);
  /// Shared memory in stream order: freed and used again without asking the system. One per job and process,
  /// made at the first call; what it has given out may outlive the job.
  MemoryPool& pool();
  /// Opens or makes the named buffer: survives the death of every rank, published in versions.
  template <Element T>
  NamedBuffer<T> named_buffer(std::string_view name, std::size_t count, NamedBufferOptions options = {}) {
    return NamedBuffer<T>(named_buffer_bytes(name, memory::bytes_of(count, sizeof(T)), options), count);
  }

  /// Small values for rendezvous, at most 3 KiB each.
  void put(std::string_view key, std::string_view value);
  std::string get(std::string_view key, std::chrono::milliseconds deadline);

  /// Good-bye: the others see this rank as having left. Called by the destructor. Afterwards, and in a forked
  /// child, the calls of this Job, its communicators and named buffers throw Error{invalid_usage}; elements
  /// that are mapped stay readable as long as their Buffer lives. A broker that does not answer is waited for
  /// 2 s, then a warning says so. Does nothing in a forked child.
  void leave() noexcept;

 private:
  explicit Job(std::unique_ptr<api::JobState> state) noexcept;
  std::shared_ptr<memory::SharedAllocation> allocate_bytes(std::size_t bytes);
  std::shared_ptr<memory::NamedMemory> named_buffer_bytes(std::string_view name, std::size_t bytes,
                                                          const NamedBufferOptions& options);
  std::unique_ptr<api::JobState> state_;
};

}  // namespace tugline
