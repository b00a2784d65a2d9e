// SPDX-License-Identifier: Apache-2.0
// The broker with all its state, fed over socket pairs by clients that do anything in any order. The input is
// a script of connections, hellos, frames with descriptors, raw bytes and closes. Whatever it says: every
// reply is a frame, the server lives, and no descriptor is left.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "base/shared_memory.h"
#include "broker/identity.h"
#include "broker/seqpacket.h"
#include "broker/server.h"
#include "core/messages.h"

namespace {

using namespace tugline;
using namespace tugline::broker;
using base::UniqueFd;

constexpr std::size_t kMaxClients = 8;

class Script {
 public:
  Script(const std::uint8_t* data, std::size_t bytes) : rest_(data, bytes) {}
  bool done() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }
  std::span<const std::byte> bytes(std::size_t count) {
    const auto taken = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return std::as_bytes(taken);
  }

 private:
  std::span<const std::uint8_t> rest_;
};

int lowest_free_descriptor() {
  const int descriptor = ::fcntl(0, F_DUPFD, 0);
  ::close(descriptor);
  return descriptor;
}

std::vector<UniqueFd> descriptors_of_kind(std::uint8_t kind) {
  std::vector<UniqueFd> out;
  int ends[2];
  switch (kind % 8) {
    case 0:
      out.push_back(base::create_sealed_memfd("fuzz", 4096));
      break;
    case 1:
      out.emplace_back(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      break;
    case 2:
      if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
      out.emplace_back(ends[0]);
      out.emplace_back(ends[1]);
      break;
    case 3:
      out.push_back(own_pidfd());
      break;
    default:
      break;
  }
  return out;
}

void send(int socket, std::span<const std::byte> bytes, const std::vector<UniqueFd>& descriptors) {
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    for (std::size_t i = 0; i < descriptors.size(); ++i) {
      const int descriptor = descriptors[i].get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &descriptor, sizeof(int));
    }
  }
  // A full or closed socket is part of the game.
  (void)::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

class Game {
 public:
  Game() : server_(options(), Token{}) {}

  void play(Script& script) {
    while (!script.done()) step(script);
    turn();
    // A quiet end: everybody goes.
    clients_.clear();
    for (int i = 0; i < 4 && server_.statistics().connections.load() != 0; ++i) turn();
    if (server_.statistics().connections.load() != 0 || server_.statistics().members.load() != 0)
      std::abort();
  }

 private:
  static ServerOptions options() {
    ServerOptions options;
    options.job = "fuzz";
    options.max_half_open = 4;
    options.descriptor_limit = 64;
    options.limits = {.member_bytes = 8 * 4096, .job_bytes = 16 * 4096};
    return options;
  }

  void step(Script& script) {
    switch (script.byte() % 8) {
      case 0:
        connect();
        break;
      case 1: {
        core::Hello hello;
        const auto client = pick(script);
        hello.rank = script.byte() % 8;
        hello.size = script.byte() % 9;
        core::FrameWriter frame;
        core::encode(hello, 1, frame);
        if (client >= 0) send(client, frame.bytes(), descriptors_of_kind(3));
        break;
      }
      case 2: {
        const auto client = pick(script);
        core::FrameWriter frame;
        frame.begin(script.byte() % 21, script.byte());
        const auto descriptors = descriptors_of_kind(script.byte());
        for (const auto byte : script.bytes(script.byte())) frame.number(std::to_integer<std::uint8_t>(byte));
        if (frame.finish() && client >= 0) send(client, frame.bytes(), descriptors);
        break;
      }
      case 3: {
        const auto client = pick(script);
        const auto bytes = script.bytes(script.byte());
        if (client >= 0) send(client, bytes, {});
        break;
      }
      case 4:
        if (!clients_.empty())
          clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(script.byte() % clients_.size()));
        break;
      case 5:
        turn();
        break;
      case 6: {
        const auto client = pick(script);
        core::FrameWriter frame;
        core::encode(core::AttachLauncher{}, 1, frame);
        if (client >= 0) send(client, frame.bytes(), {});
        break;
      }
      case 7: {
        const auto client = pick(script);
        const auto rank = static_cast<std::int32_t>(script.byte() % 9) - 1;
        core::FrameWriter frame;
        if (script.byte() % 3 == 0)
          core::encode(core::RankStarts{rank}, 2, frame);
        else
          core::encode(core::RankEnded{rank, script.byte(), script.byte()}, 2, frame);
        if (client >= 0) send(client, frame.bytes(), {});
        break;
      }
    }
  }

  void connect() {
    if (clients_.size() == kMaxClients) return;
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
    clients_.emplace_back(ends[0]);
    server_.adopt(UniqueFd(ends[1]));
  }

  int pick(Script& script) {
    const auto number = script.byte();
    return clients_.empty() ? -1 : clients_[number % clients_.size()].get();
  }

  void turn() {
    if (!server_.run_once(std::chrono::milliseconds(0))) std::abort();
    FrameBuffer buffer;
    for (const auto& client : clients_) {
      for (;;) {
        const auto received = receive_message(client.get(), buffer);
        if (received.outcome == ReceiveOutcome::malformed) std::abort();
        if (received.outcome != ReceiveOutcome::message) break;
        core::FrameView view;
        if (core::parse_frame({buffer.data(), received.bytes}, view) != core::FrameFault::none) std::abort();
      }
    }
  }

  Server server_;
  std::vector<UniqueFd> clients_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  static const bool quiet = [] {
    base::settings();  // configures the log, too
    base::configure_log(base::LogLevel::error, "");
    return true;
  }();
  (void)quiet;
  const int before = lowest_free_descriptor();
  {
    Script script(data, bytes);
    Game game;
    game.play(script);
  }
  if (lowest_free_descriptor() != before) std::abort();
  return 0;
}
