// SPDX-License-Identifier: Apache-2.0
// One operation at one rank: its buffers filled, begun, and compared with what the definition says.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "soak/memory.h"
#include "soak/shape.h"
#include "tugline/communicator.h"

namespace tugline::soak {

/// A result that is not what it must be.
class Wrong : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Operation {
 public:
  /// Where the buffers lie, and whether they are one, is drawn from `own`, whose sequence is this rank's
  /// alone.
  Operation(const Draw& draw, int rank, int ranks, Sequence& own, Shelf& shelf);

  /// Before each time that it is begun. Nobody may be using the buffers.
  void fill();
  /// A shift needs a group as target.
  void begin(Communicator& comm, Target target);
  /// After its end. Throws Wrong for the first element that is not as it must be: of the result, of what is
  /// read only, and of what lies beside the buffers.
  void check() const;
  /// Spoils the result, to see whether check() finds it. False when this rank gets none.
  bool spoil();
  std::string text() const;

 private:
  struct Place {
    std::shared_ptr<Memory> memory;
    std::byte* begin = nullptr;  ///< of the first guard
    std::byte* data = nullptr;
    std::size_t bytes = 0;  ///< without the guards
  };
  Place take(std::size_t bytes, Sequence& own, Shelf& shelf) const;
  void check_untouched(const Place& place, const std::vector<Piece>& used, const char* what) const;
  void check_pieces(const std::vector<Piece>& pieces, const std::byte* buffer, const char* what) const;

  Draw draw_;
  int rank_;
  int ranks_;
  Shape shape_;
  bool in_place_ = false;
  Place send_place_;
  Place recv_place_;  ///< of both, in place
  std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
};

}  // namespace tugline::soak
