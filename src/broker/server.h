// SPDX-License-Identifier: Apache-2.0
// The broker: one epoll loop over the listening socket, the members' sockets and their pidfds. It holds the
// descriptors of all shared memory of one job, knows who is alive, and answers every request at once (a
// waiting get is kept with its deadline). Nothing in it blocks and there is no lock.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "broker/endpoint.h"
#include "broker/identity.h"
#include "broker/membership.h"
#include "broker/segments.h"
#include "broker/seqpacket.h"
#include "broker/values.h"
#include "core/messages.h"

namespace tugline::broker {

/// When a broker ends by itself.
enum class Ending : std::uint8_t {
  when_told,         ///< outlives its jobs
  with_last_member,  ///< when the last member has left; see ServerOptions
};

struct ServerOptions {
  std::string job;
  int world_size = 0;  ///< 0: as the first member says
  Ending ending = Ending::when_told;
  /// Ending::with_last_member: how long to wait for the first member, and for ranks that have not come yet
  /// when those that had have left.
  std::chrono::milliseconds first_member_within{10'000};
  std::chrono::milliseconds absent_ranks_within{2'000};
  /// ... and for a successor when the last member died (not left) and persistent segments are held.
  std::chrono::milliseconds successor_within{30'000};
  /// ... while this process (a pidfd) lives, the broker waits for members without limit.
  base::UniqueFd owner;
  std::chrono::milliseconds first_frame_within{2'000};
  std::size_t max_half_open = 64;  ///< connections that have not said Hello; the oldest goes for a new one
  SegmentLimits limits;
  int descriptor_limit = 0;  ///< 0: RLIMIT_NOFILE
};

/// Counters for tests and `tugline top`; readable from any thread.
struct ServerStatistics {
  std::atomic<std::uint64_t> accepted{0};
  std::atomic<std::uint64_t> refused{0};     ///< Hello refused, evicted or too late
  std::atomic<std::uint64_t> violations{0};  ///< connections closed for breaking the protocol
  std::atomic<std::uint64_t> connections{0};
  std::atomic<std::uint64_t> members{0};
  std::atomic<std::uint64_t> segments{0};
  std::atomic<std::uint64_t> waiting_gets{0};
};

class Server {
 public:
  /// With an endpoint it accepts connections there; without one it serves only what adopt() brings, with
  /// `token` (tests and fuzzing).
  Server(ServerOptions options, std::unique_ptr<Endpoint> endpoint);
  Server(ServerOptions options, const Token& token);
  /// Tells living members that the broker is lost, and removes everything.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Serves until stop() or until it is time to end by itself.
  void run();
  /// One turn of the loop: waits at most `timeout` for something to do. False when it is time to end.
  bool run_once(std::chrono::milliseconds timeout);
  /// Makes run() return soon. From any thread, and from a signal handler.
  void stop() noexcept;
  /// Serves a connected SEQPACKET socket as if it had been accepted.
  void adopt(base::UniqueFd socket);

  const ServerStatistics& statistics() const noexcept { return statistics_; }

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;
    std::shared_ptr<const base::UniqueFd> descriptor;
  };
  struct Connection {
    std::uint64_t id = 0;
    base::UniqueFd socket;
    PeerIdentity peer;
    std::uint64_t accepted_ns = 0;        ///< base::monotonic_ns()
    std::uint64_t first_frame_by_ns = 0;  ///< now()
    std::optional<MemberId> member;
    bool launcher = false;  ///< says which ranks end
    bool observer = false;  ///< asks for usage
    std::deque<Outgoing> outbox;
  };
  enum class Verdict : std::uint8_t { keep, close, violation };
  enum class Origin : std::uint8_t { existing, created };

  // server.cpp: the loop
  void watch(int descriptor, std::uint64_t tag, std::uint32_t events);
  /// By which all deadlines are measured.
  std::uint64_t now() noexcept { return clock_.read(base::monotonic_ns()); }
  std::chrono::milliseconds time_to_next_deadline();
  void handle_deadlines();
  bool is_time_to_end(std::uint64_t now_ns);
  void end();
  std::optional<std::uint64_t> end_deadline_ns() const;
  std::optional<std::uint64_t> generation_deadline_ns() const;
  void end_generation();
  void publish_statistics() noexcept;

  // server_connections.cpp: connections come, are read, written and go
  void accept_all();
  void accept_with_reserve();
  void turn_away(base::UniqueFd socket);
  void read_from(std::uint64_t id);
  void flush(Connection& connection);
  void cut_off(Connection& connection) noexcept;
  void send_frame(Connection& connection, const core::FrameWriter& frame,
                  std::shared_ptr<const base::UniqueFd> descriptor = {});
  template <class Message>
  void reply(Connection& connection, std::uint32_t request, const Message& message,
             std::shared_ptr<const base::UniqueFd> descriptor = {});
  void reply_done(Connection& connection, std::uint32_t request);
  void reply_failure(Connection& connection, std::uint32_t request, const Error& error);
  void close_connection(std::uint64_t id, core::LossCause cause);
  void member_process_ended(std::uint64_t connection);
  void note_idle() noexcept;
  Connection* find(std::uint64_t id) noexcept;

  // server_requests.cpp: what each request does
  Verdict handle(Connection& connection, std::span<const std::byte> bytes,
                 std::vector<base::UniqueFd> descriptors);
  Verdict handle_hello(Connection& connection, const core::FrameView& frame,
                       std::vector<base::UniqueFd>& descriptors);
  void check_admission(const Connection& connection, const Token& token, const std::string& job) const;
  Verdict handle_request(Connection& connection, const core::FrameView& frame,
                         std::vector<base::UniqueFd>& descriptors);
  // server_launcher.cpp: what a launcher says of its ranks
  Verdict handle_attach(Connection& connection, const core::FrameView& frame);
  void refuse_second_launcher(std::uint64_t newcomer);
  Verdict handle_launcher(Connection& connection, const core::FrameView& frame);
  // server_observer.cpp: who holds what
  Verdict handle_observer_attach(Connection& connection, const core::FrameView& frame);
  Verdict handle_usage(Connection& connection, const core::FrameView& frame);
  void do_deposit(Connection& connection, std::uint32_t request, const core::DepositSegment& message,
                  base::UniqueFd descriptor);
  void do_put(Connection& connection, std::uint32_t request, core::PutValue& message);
  void do_get(Connection& connection, std::uint32_t request, core::GetValue& message);
  void reply_segment(Connection& connection, std::uint32_t request, const HeldSegment& segment,
                     Origin origin);
  void member_leaves(Connection& connection);
  void announce_retired() noexcept;

  // descriptors that may still be opened for members and segments
  bool descriptors_left(int wanted) noexcept;
  int descriptors_used() const noexcept;

  ServerOptions options_;
  std::unique_ptr<Endpoint> endpoint_;
  Token token_{};
  base::UniqueFd epoll_;
  base::UniqueFd stop_event_;
  bool owned_ = false;      // started with an owner, living or not
  base::UniqueFd reserve_;  // given up for a moment to turn away a connection when the table is full
  int descriptor_limit_ = 0;
  int standing_descriptors_ = 0;  // open in the process before anybody came

  std::uint64_t last_connection_ = 0;
  std::unordered_map<std::uint64_t, Connection> connections_;
  std::list<std::uint64_t> half_open_;  // oldest first
  Membership membership_;
  SegmentTable segments_;
  ValueStore values_;

  bool had_members_ = false;
  base::RunningClock clock_;
  std::uint64_t idle_since_ns_ = 0;
  bool ending_ = false;
  std::atomic<bool> stopping_{false};
  ServerStatistics statistics_;
};

}  // namespace tugline::broker
