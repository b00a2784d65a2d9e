// SPDX-License-Identifier: Apache-2.0
// One thread's part of a round: operations of every kind, in every way to run them, on a communicator of its
// own and on those that it splits off and drops.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "soak/operation.h"

namespace tugline::soak {

struct LaneSettings {
  std::uint64_t seed = 1;
  std::uint64_t round = 0;
  int number = 0;
  int steps = 20;
  std::size_t most_bytes = std::size_t{2} << 20;
  bool spoil = false;  ///< one result, after the operation
};

class Lane {
 public:
  /// `comm` is used by this lane alone.
  Lane(Job& job, Communicator comm, const LaneSettings& settings);
  /// Throws Wrong, and whatever the library throws; where() says in what step.
  void run();
  std::string where() const;
  std::uint64_t operations() const noexcept { return operations_; }

 private:
  using Operations = std::vector<Operation>;
  void step();
  /// The lane's communicator, or one that was split off, which may be empty at this rank.
  Communicator* choose(Sequence& shared);
  Operations draw_batch(Sequence& shared, const Communicator& comm, std::uint64_t most);
  void finish(Operations& batch);
  void blocking(Sequence& shared, Communicator& comm);
  void streams(Sequence& shared, Communicator& comm);
  void graph(Sequence& shared, Communicator& comm);
  /// `comm` is null at ranks outside of it; `beside` draws what goes on in the lane's own communicator
  /// meanwhile.
  void requests(Sequence& shared, Communicator* comm, Sequence* beside);
  void group(Sequence& shared, Communicator* comm, Sequence* beside);
  void split(Sequence& shared, Communicator& comm);
  void agree(Communicator& comm);

  Job& job_;
  LaneSettings settings_;
  Communicator comm_;
  std::vector<Communicator> split_;
  Sequence own_;  ///< this rank's alone
  Stream first_;
  Stream second_;
  Shelf shelf_;
  int step_ = 0;
  const char* doing_ = "";
  std::uint64_t operations_ = 0;
};

}  // namespace tugline::soak
