// SPDX-License-Identifier: Apache-2.0
// Appends steps to one rank's program. Keeps builders free of Step's field order, and leaves out steps over
// no bytes.
#pragma once

#include <algorithm>
#include <vector>

#include "core/plan/plan.h"

namespace tugline::core {

class ProgramWriter {
 public:
  ProgramWriter(Program& program, std::int32_t rank) noexcept : program_(program), rank_(rank) {}

  std::int32_t rank() const noexcept { return rank_; }
  Place input(std::uint64_t offset) const noexcept { return {Space::input, rank_, offset}; }
  Place output(std::uint64_t offset) const noexcept { return {Space::output, rank_, offset}; }
  Place scratch(std::uint64_t offset) const noexcept { return {Space::scratch, rank_, offset}; }
  static Place scratch_of(std::int32_t rank, std::uint64_t offset) noexcept {
    return {Space::scratch, rank, offset};
  }

  static Place input_of(std::int32_t rank, std::uint64_t offset) noexcept {
    return {Space::input, rank, offset};
  }
  static Place output_of(std::int32_t rank, std::uint64_t offset) noexcept {
    return {Space::output, rank, offset};
  }

  void put(Place destination, Place source, std::uint64_t bytes) {
    if (bytes == 0) return;
    add({.kind = StepKind::put, .bytes = bytes, .destination = destination, .source = source});
  }
  void copy(Place destination, Place source, std::uint64_t bytes) {
    if (bytes == 0 || destination == source) return;
    add({.kind = StepKind::copy, .bytes = bytes, .destination = destination, .source = source});
  }
  void reduce(Place destination, Place left, Place right, std::uint64_t bytes) {
    if (bytes == 0) return;
    add({.kind = StepKind::reduce,
         .bytes = bytes,
         .destination = destination,
         .source = left,
         .second = right});
  }
  /// Combines all operands, two at least, in their order.
  void reduce(Place destination, const std::vector<Place>& operands, std::uint64_t bytes) {
    if (bytes == 0) return;
    add({.kind = StepKind::reduce,
         .bytes = bytes,
         .destination = destination,
         .source = operands[0],
         .second = operands[1],
         .more = {operands.begin() + 2, operands.end()}});
  }
  void scale(Place destination, std::uint64_t bytes) {
    if (bytes == 0) return;
    add({.kind = StepKind::scale, .bytes = bytes, .destination = destination});
  }
  void put_packet(Place source, std::uint64_t bytes) {
    add({.kind = StepKind::put_packet, .bytes = bytes, .source = source});
  }
  void copy_packet(std::int32_t peer, Place destination, std::uint64_t payload_offset, std::uint64_t bytes) {
    add(packet_step(StepKind::copy_packet, peer, destination, payload_offset, bytes));
  }
  void reduce_packet(std::int32_t peer, Place destination, std::uint64_t payload_offset,
                     std::uint64_t bytes) {
    add(packet_step(StepKind::reduce_packet, peer, destination, payload_offset, bytes));
  }
  /// Combines the packets of all ranks in rank order.
  void reduce_packets(Place destination, std::uint64_t payload_offset, std::uint64_t bytes) {
    add(packet_step(StepKind::reduce_packet, kEveryone, destination, payload_offset, bytes));
  }
  void signal(std::int32_t peer, std::uint8_t flag, std::uint64_t value) {
    add({.kind = StepKind::signal, .flag = flag, .peer = peer, .value = static_cast<std::uint32_t>(value)});
  }
  void wait(std::int32_t peer, std::uint8_t flag, std::uint64_t value) {
    add({.kind = StepKind::wait, .flag = flag, .peer = peer, .value = static_cast<std::uint32_t>(value)});
  }

 private:
  static Step packet_step(StepKind kind, std::int32_t peer, Place destination, std::uint64_t payload_offset,
                          std::uint64_t bytes) noexcept {
    return {.kind = kind,
            .peer = peer,
            .bytes = bytes,
            .destination = destination,
            .source = {Space::scratch, std::max(peer, 0), payload_offset}};
  }
  void add(const Step& step) { program_.push_back(step); }

  Program& program_;
  std::int32_t rank_;
};

}  // namespace tugline::core
