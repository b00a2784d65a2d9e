// SPDX-License-Identifier: Apache-2.0
// What the broker's tests share: a runtime directory of their own, a server in a thread, raw connections,
// child processes, and a look into /proc.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "broker/client.h"
#include "broker/server.h"
#include "core/messages.h"

namespace tugline::broker::testing {

using namespace std::chrono_literals;

/// TUGLINE_RUNTIME_DIR of this test program: fresh, removed at its end.
const std::string& test_runtime_dir();
/// A job name that no other test uses.
std::string fresh_job();

/// Waits until `condition` holds, looking often; false after `limit`.
bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit = 10s);

/// A server of its own thread at <runtime dir>/<job>.
class ThreadedServer {
 public:
  explicit ThreadedServer(ServerOptions options = {});
  ~ThreadedServer() { stop(); }
  void stop();
  const std::string& job() const noexcept { return job_; }
  const std::string& directory() const noexcept { return place_.directory; }
  const std::string& socket_path() const noexcept { return place_.socket_path; }
  const Token& token() const noexcept { return token_; }
  const std::string& token_hex() const noexcept { return token_hex_; }
  const ServerStatistics& statistics() const noexcept { return server_->statistics(); }
  /// A client's request that finds this server.
  JoinRequest request(int rank = 0, int size = 1) const;
  std::shared_ptr<Client> join(int rank = 0, int size = 1) const { return Client::join(request(rank, size)); }
  /// A connection that has said nothing yet.
  base::UniqueFd connect() const;

 private:
  std::string job_;
  Place place_;
  Token token_{};
  std::string token_hex_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

/// A reply on a raw connection, decoded as far as possible.
struct RawReply {
  bool closed = false;
  std::uint16_t type = 0;
  std::uint32_t request = 0;
  std::vector<std::byte> bytes;
  std::vector<base::UniqueFd> descriptors;
  core::Failure failure;  ///< when type says so
};
RawReply receive_raw(int socket, std::chrono::milliseconds limit = 10s);
void send_raw(int socket, std::span<const std::byte> bytes, const std::vector<int>& descriptors = {});

template <class Message>
void send_message_raw(int socket, const Message& message, std::uint32_t request,
                      const std::vector<int>& descriptors = {}) {
  core::FrameWriter frame;
  ASSERT_TRUE(core::encode(message, request, frame));
  send_raw(socket, frame.bytes(), descriptors);
}

core::Hello hello_of(const ThreadedServer& server, int rank = 0, int size = 1);
/// Connects and joins by hand.
base::UniqueFd join_raw(const ThreadedServer& server, int rank = 0, int size = 1);

/// Runs `body` in a forked child, which ends with its return value; killed if it is there at the end.
class Child {
 public:
  explicit Child(const std::function<int()>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const noexcept { return pid_; }
  void kill(int signal) const;
  /// Exit code, or 128 + signal.
  int wait();

 private:
  pid_t pid_ = 0;
  bool reaped_ = false;
};

/// A one-byte message between processes: open() once, wait() for it.
class Gate {
 public:
  Gate();
  void open() const;
  /// False when nobody opened it in time.
  bool wait(std::chrono::milliseconds limit = 20s) const;

 private:
  base::UniqueFd read_;
  base::UniqueFd write_;
};

/// Targets of /proc/<pid>/fd.
std::vector<std::string> descriptors_of(pid_t pid);
int count_matching(const std::vector<std::string>& texts, const std::string& part);
/// Names in a directory, without "." and ".."; empty if it is not there.
std::vector<std::string> entries_of(const std::string& directory);

}  // namespace tugline::broker::testing
