// SPDX-License-Identifier: Apache-2.0
// One operation of a worker's step: drawn from the seed, run, and checked.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tugline/communicator.h"
#include "tugline/job.h"

namespace tugline::process {

enum class Kind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  barrier,
  ring_of_messages,  ///< a group: send to the next rank, receive from the one before
  reduce,
  gather,
  scatter,
  all_gather_v,
  reduce_scatter_v,
  all_to_all_v,
};
inline constexpr int kKindCount = 13;

/// The same on all ranks.
struct Draw {
  Kind kind = Kind::all_reduce;
  DataType type = DataType::f32;  ///< f32 or i32
  std::size_t bytes = 8;          ///< of one rank's block
  std::uint64_t salt = 0;
  bool library = false;  ///< buffers of Job::allocate, which others reach
};

/// Elements of four bytes in private memory, or in the library's.
class Words {
 public:
  Words() = default;
  Words(std::size_t count, Job* library);
  std::uint32_t* data() noexcept { return span().data(); }
  std::span<std::uint32_t> span() noexcept {
    return shared_ ? std::span(shared_->data(), shared_->size()) : own_;
  }
  std::span<const std::uint32_t> span() const noexcept { return const_cast<Words*>(this)->span(); }

 private:
  std::vector<std::uint32_t> own_;
  std::optional<Buffer<std::uint32_t>> shared_;
};

/// Operations of one step; the first is an all-reduce. Depends on its arguments alone.
std::vector<Draw> draw_step(std::uint64_t seed, std::uint64_t step, std::size_t max_bytes);

/// An operation's buffers, and what it computes.
class Operation {
 public:
  /// `members`: original ranks by present rank; `self`: present rank; `job`: of library buffers.
  Operation(const Draw& draw, const std::vector<std::uint32_t>& members, std::uint32_t self,
            Job* job = nullptr);
  void run(Communicator& comm, const Target& target);
  /// True when the result is what the members' inputs give. Call after the operation has ended.
  bool is_right() const;
  /// After it has failed: writes to its buffers, as their owner may.
  void abandon();
  /// True while nobody else has written there since.
  bool is_as_abandoned() const noexcept;
  /// Of a result that is the same on all ranks; else of nothing.
  std::uint64_t shared_hash(std::uint64_t hash) const noexcept;

 private:
  template <class T>
  bool is_right_as() const;
  bool is_root() const noexcept { return self_ == draw_.salt % members_.size(); }

  Draw draw_;
  std::vector<std::uint32_t> members_;
  std::uint32_t self_;
  std::size_t count_;  ///< elements of a block
  Words send_;
  Words recv_;
};

}  // namespace tugline::process
