// SPDX-License-Identifier: Apache-2.0
// Runs a plan on expressions instead of numbers, and orders accesses by vector clocks instead of time.
//
// One schedule stands for all. Programs have no branches, a flag is raised by one agent and only grows, and a
// wait orders its agent behind the first signal that reaches the value, which is all that every schedule
// promises. So whether two accesses are ordered, and whether everybody ends, does not depend on the schedule;
// and once all conflicting accesses are ordered, neither does any value.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/plan/symbolic_memory.h"

namespace tugline::core {

class SymbolicRun {
 public:
  /// `plan` passed check_structure and outlives the run.
  explicit SymbolicRun(const Plan& plan);

  /// Runs all programs; the first problem, empty if there is none.
  std::string run();

  /// After run(): what the output of `rank` holds.
  std::vector<Piece> output_of(std::int32_t rank);
  /// After run(): true when the end of `rank` is ordered behind the start of `peer`.
  bool ended_after_start(std::int32_t rank, std::int32_t peer) const;
  /// After run() of a direct plan: who may still be at the buffers of a rank that has ended; empty if nobody.
  std::string problem_after_end();
  ExpressionPool& expressions() noexcept { return expressions_; }

 private:
  using Clock = std::vector<std::uint32_t>;
  struct Agent {
    std::int32_t rank = 0;
    std::int32_t channel = 0;
    const Program* program = nullptr;
    std::size_t next = 0;
    Clock clock;  ///< last known time of every agent
  };
  struct Signal {
    std::uint32_t value = 0;
    std::shared_ptr<const Clock> clock;
  };
  struct Flag {
    std::uint32_t agent = Access::kNobody;
    std::vector<Signal> signals;
  };
  struct Packet {
    std::shared_ptr<const Clock> clock;  ///< none: not yet published
    std::vector<Piece> payload;
    std::uint64_t bytes = 0;
  };
  struct Location {
    SymbolicMemory* memory = nullptr;
    std::uint64_t address = 0;
  };

  Location locate(const Place& place);
  Flag& flag(std::int32_t from, std::int32_t to, std::uint8_t index);
  std::size_t index_of(const Agent& agent) const noexcept {
    return static_cast<std::size_t>(&agent - agents_.data());
  }
  Access access_of(const Agent& agent) const noexcept;
  bool is_ordered(const Access& earlier, const Agent& agent) const noexcept;

  /// True when done, false when the agent must wait; sets problem_.
  bool advance(Agent& agent, const Step& step);
  bool read(const Agent& agent, const Place& place, std::uint64_t bytes, std::vector<Piece>& pieces);
  bool write(const Agent& agent, const Place& place, const std::vector<Piece>& pieces);
  bool combine(const Step& step, const std::vector<Piece>& left, const std::vector<Piece>& right,
               std::vector<Piece>& result);
  bool is_whole_elements(const std::vector<Piece>& pieces);
  void move_bytes(Agent& agent, const Step& step);
  void reduce(Agent& agent, const Step& step);
  void scale(Agent& agent, const Step& step);
  void put_packet(Agent& agent, const Step& step);
  bool payload_of(const Packet& packet, std::int32_t peer, const Step& step, std::vector<Piece>& payload);
  bool take_packet(Agent& agent, const Step& step);
  void raise(Agent& agent, const Step& step);
  bool await(Agent& agent, const Step& step);
  bool overlaps(const Place& a, const Place& b, std::uint64_t bytes);
  static void join(Clock& clock, const Clock& other);
  std::shared_ptr<const Clock> release(Agent& agent);

  std::string name(const Agent& agent, std::size_t step) const;
  std::string deadlock_text() const;
  void race(std::string_view doing, const Place& place, std::uint64_t begin, std::uint64_t end,
            std::string_view other_did, const Access& other, std::string_view remedy);

  const Plan& plan_;
  ExpressionPool expressions_;
  std::vector<std::unique_ptr<SymbolicMemory>> memories_;  ///< [rank * kSpaceCount + space]
  std::vector<Agent> agents_;
  std::vector<Flag> flags_;
  std::vector<Packet> packets_;
  std::string problem_;
};

}  // namespace tugline::core
