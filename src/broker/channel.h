// SPDX-License-Identifier: Apache-2.0
// A member's socket to its broker: many threads ask, each gets its own reply. There is no reader thread: of
// the threads that wait, one reads and hands out what is for the others.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"
#include "broker/seqpacket.h"
#include "core/messages.h"

namespace tugline::broker {

inline constexpr std::string_view kGetOperation = "get value";

/// A reply as it came.
struct Answer {
  std::vector<std::byte> bytes;
  base::UniqueFd descriptor;
};

class Channel {
 public:
  Channel(base::UniqueFd socket, std::string broker_name) noexcept;
  int socket() const noexcept { return socket_.get(); }

  /// Sends `message` and returns the reply of type Reply. Throws the broker's Failure as the Error that it
  /// says, Error{timed_out}, Error{broker_lost}, Error{protocol}, and Error{invalid_usage} in a forked child.
  template <class Reply, class Message>
  Reply call(const Message& message, std::uint64_t deadline_ns, std::string_view operation,
             int descriptor = -1, base::UniqueFd* received = nullptr);

  /// Sends `message` and wants no answer. What cannot be sent at once is dropped: for what the broker also
  /// learns from the end of the socket.
  template <class Message>
  void post(const Message& message) noexcept;

  /// True in a process that was forked after the channel was made: it must not speak on it.
  bool in_forked_child() const noexcept;

 private:
  struct Waiting {
    std::optional<Answer> answer;
  };

  std::uint32_t next_request() noexcept;
  Answer exchange(const core::FrameWriter& frame, std::uint32_t request, std::uint64_t deadline_ns,
                  std::string_view operation, int descriptor);
  void send(const core::FrameWriter& frame, std::uint64_t deadline_ns, std::string_view operation,
            int descriptor);
  Answer wait(std::uint32_t request, std::uint64_t deadline_ns, std::string_view operation);
  void read_for_all(std::unique_lock<std::mutex>& lock, std::uint64_t deadline_ns);
  void hand_out(std::unique_lock<std::mutex>& lock, Received received, const FrameBuffer& buffer);
  void give_back_late_segment(const core::FrameView& frame) noexcept;
  /// What there is to say of a broker that does not answer; may be empty.
  std::string condition() const;
  [[noreturn]] void throw_lost(std::string_view operation) const;
  [[noreturn]] void throw_timed_out(std::string_view operation) const;

  base::UniqueFd socket_;
  std::string broker_name_;
  pid_t owner_pid_;
  std::atomic<std::uint32_t> last_request_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::uint32_t, Waiting> waiting_;
  bool somebody_reads_ = false;
  bool lost_ = false;
  std::optional<core::Failure> parting_;  // why the broker closes, if it said so
};

}  // namespace tugline::broker
