// SPDX-License-Identifier: Apache-2.0
// What a process, and the broker, hold between two rounds: counted, and compared with what they held before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tugline::soak {

/// Of this process: descriptors, threads, mappings, bytes of the heap and of resident memory.
/// With a job's name also of its broker: segments, bytes, references, descriptors, resident memory.
struct Census {
  enum Name : std::uint8_t {
    descriptors,
    threads,
    shared_mappings,
    mappings,
    heap_bytes,
    resident_bytes,
    // From here on the broker's.
    members,
    segments,
    segment_bytes,
    references,
    imported_bytes,
    broker_descriptors,
    broker_resident_bytes,
  };
  static constexpr std::size_t kNames = broker_resident_bytes + 1;
  std::array<std::uint64_t, kNames> values{};
};

Census take_census(const std::string& broker_of_job);

/// The censuses of all rounds, in memory that does not grow itself. Those of the first rounds, in which
/// everything is used for the first time, do not count.
class Growth {
 public:
  explicit Growth(std::uint64_t warm_up);
  /// Which counts are more than they were after any round; empty when none is. Amounts, which depend on the
  /// allocators, are left to trend().
  std::string more_than_ever(const Census& census) const;
  void record(const Census& census);
  /// Which amounts have grown from the first third of the rounds to the last one, by the least of each; empty
  /// when none.
  std::string trend() const;
  /// The first round that counts and the last one.
  std::string summary() const;

 private:
  /// The least of some rounds in a row.
  using Window = Census;
  std::uint64_t warm_up_;  ///< rounds that are still to come
  std::uint64_t rounds_ = 0;
  std::uint64_t window_rounds_ = 1;
  std::vector<Window> windows_;
  Census first_;
  Census last_;
  Census least_;
};

}  // namespace tugline::soak
