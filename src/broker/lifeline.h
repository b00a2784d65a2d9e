// SPDX-License-Identifier: Apache-2.0
// The lifeline: one sleeping thread per member by which the others learn of its death within a fraction of a
// millisecond, at any size of the process. Each thread holds the robust futex word of its own slot and sleeps
// on the word of the next living member, so the living form a ring; a dying holder wakes its one watcher,
// who marks it dead and raises the alarm for everybody.
//
// The thread also ticks a heartbeat word, looks after a neighbour that has stopped ticking (the kernel fires
// robust futexes only after a core file is written), and notices when the broker's socket ends.
#pragma once

#include <chrono>
#include <memory>

#include "broker/client.h"
#include "core/control.h"

namespace tugline::broker {

/// The life of one member, from joining to `left`. Several may exist in one process (ranks as threads). Not
/// thread-safe. A forked child has no lifeline thread: what it does to its copy, destruction included,
/// changes nothing.
class Lifeline {
 public:
  /// Holds the lifeline of slot `self`, publishes pid and PID namespace, and moves the slot from `joining` to
  /// `alive`; returns when this is done. `keep_mapped` keeps `control` mapped; `broker_socket` must stay open
  /// until stop_and_leave(), -1 for none. `heartbeat` is the time between two ticks. Throws Error{system},
  /// Error{out_of_memory} when no thread can be had.
  Lifeline(core::ControlSegment& control, MemberId self, std::shared_ptr<void> keep_mapped, int broker_socket,
           std::chrono::nanoseconds heartbeat);
  /// The same with the configured heartbeat.
  Lifeline(core::ControlSegment& control, MemberId self, std::shared_ptr<void> keep_mapped,
           int broker_socket);
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  /// Moves the slot from `alive` to `left`, gives the word back without firing, and ends the thread. Takes
  /// microseconds. Later calls do nothing. From now on the end of the broker's socket is no news.
  void stop_and_leave() noexcept;

 private:
  class Watch;
  std::unique_ptr<Watch> watch_;
};

/// Grows the alarm word and wakes all who sleep on it. For whoever has marked a member dead or a
/// communicator aborted.
void raise_alarm(core::ControlSegment& control) noexcept;

}  // namespace tugline::broker
