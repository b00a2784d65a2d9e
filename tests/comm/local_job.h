// SPDX-License-Identifier: Apache-2.0
// Ranks as threads over an in-process stand-in for the broker: the same memory, no sockets, no processes.
// Deaths are marked by the test. The real broker has its own tests, and tests/process joins the two.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/shared_memory.h"
#include "broker/client.h"
#include "comm/state.h"
#include "core/control.h"
#include "topology/locality.h"
#include "tugline/communicator.h"

namespace tugline::comm::test {

/// Segments from here on count as gone with their owner.
inline constexpr broker::SegmentId kFirstOfTheDead = 1000;

/// Segments by name, and the control segment.
class LocalJob {
 public:
  explicit LocalJob(int ranks);

  /// The client of one rank, with its member slot alive.
  std::shared_ptr<broker::Client> client(int rank);
  /// Imports of segments of the dead that were refused so far.
  int refused_imports() const noexcept { return refused_imports_.load(); }
  void count_refused_import() noexcept { ++refused_imports_; }
  /// The one that client() made last for the rank.
  std::shared_ptr<broker::Client> client_of(int rank) const;
  /// Ranks take each other for processes, which cannot reach private memory of others.
  std::uint64_t process_of(int rank) const noexcept { return static_cast<std::uint64_t>(rank) + 1; }
  bool are_threads = false;  ///< ranks know that they are threads of one process
  /// Where run_ranks() says that ranks run, by rank; empty: where they do.
  std::vector<topology::Locality> localities;
  core::ControlSegment& control() { return *control_; }
  int size() const { return ranks_; }
  /// Marks the rank's member dead and raises the alarm, as a lifeline does.
  void kill(int rank, core::LossCause cause = core::LossCause::lifeline);
  /// The rank's member says good-bye, and the alarm is raised as the lifeline raises it.
  void leave(int rank);
  std::size_t segments() const;

  // For the clients.
  broker::Segment open_or_create(std::string_view name, std::uint64_t bytes);
  void release(broker::SegmentId id);

 private:
  struct Entry {
    broker::SegmentId id;
    std::uint64_t bytes;
    base::UniqueFd descriptor;
    int references;
  };
  int ranks_;
  std::atomic<int> refused_imports_{0};
  std::unique_ptr<core::ControlSegment> control_;
  std::map<int, std::weak_ptr<broker::Client>> clients_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry, std::less<>> entries_;
  broker::SegmentId next_ = 1;
};

/// Runs `body(communicator, rank)` on one thread per rank, each with a communicator of all; rethrows the
/// first exception that a body let escape, with its rank.
void run_ranks(int ranks, const std::function<void(Communicator&, int)>& body);
void run_ranks(LocalJob& job, const std::function<void(Communicator&, int)>& body);

}  // namespace tugline::comm::test
