// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "base/clock.h"
#include "broker/connect.h"
#include "broker/endpoint.h"
#include "broker/identity.h"
#include "broker/seqpacket.h"

namespace tugline::broker::testing {
namespace {

// Before main(), because the settings are read once.
struct Surroundings {
  Surroundings() {
    char path[] = "/tmp/tugline-broker-test-XXXXXX";
    if (::mkdtemp(path) == nullptr) std::abort();
    directory = path;
    owner = ::getpid();
    ::setenv("TUGLINE_RUNTIME_DIR", path, 1);
    ::setenv("TUGLINE_BROKER_BIN", TUGLINE_TEST_BROKER_PROGRAM, 1);
    ::setenv("TUGLINE_DEBUG", "error", 0);
    for (const char* name : {"TUGLINE_JOB", "TUGLINE_TOKEN", "TUGLINE_SOCKET_PATH"}) ::unsetenv(name);
  }
  ~Surroundings() {
    if (owner != ::getpid()) return;  // a child's copy
    // A broker that is just ending removes its directory at the same time, which ends the walk through it.
    for (int attempt = 0; attempt < 100 && std::filesystem::exists(directory); ++attempt) {
      std::error_code gone_meanwhile;
      std::filesystem::remove_all(directory, gone_meanwhile);
    }
  }
  std::string directory;
  pid_t owner = 0;
};
const Surroundings surroundings;

}  // namespace

const std::string& test_runtime_dir() {
  return surroundings.directory;
}

std::string fresh_job() {
  static std::atomic<int> last{0};
  return "job-" + std::to_string(::getpid()) + "-" + std::to_string(++last);
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

ThreadedServer::ThreadedServer(ServerOptions options) : job_(fresh_job()), place_(place_of({}, job_)) {
  auto endpoint = std::make_unique<Endpoint>(place_, std::string());
  token_ = endpoint->token();
  token_hex_ = endpoint->token_hex();
  options.job = job_;
  server_ = std::make_unique<Server>(std::move(options), std::move(endpoint));
  thread_ = std::thread([this] { server_->run(); });
}

void ThreadedServer::stop() {
  if (!thread_.joinable()) return;
  server_->stop();
  thread_.join();
  server_.reset();
}

JoinRequest ThreadedServer::request(int rank, int size) const {
  JoinRequest request;
  request.job = job_;
  request.rank = rank;
  request.size = size;
  request.spawn_broker = false;
  return request;
}

base::UniqueFd ThreadedServer::connect() const {
  return find_broker(place_, job_, token_hex_, WhenAbsent::fail,
                     base::running_deadline(std::chrono::seconds(10)))
      .socket;
}

RawReply receive_raw(int socket, std::chrono::milliseconds limit) {
  RawReply reply;
  FrameBuffer buffer;
  const auto deadline = base::running_deadline(limit);
  for (;;) {
    auto received = receive_message(socket, buffer);
    if (received.outcome == ReceiveOutcome::closed) {
      reply.closed = true;
      return reply;
    }
    if (received.outcome == ReceiveOutcome::message) {
      reply.bytes.assign(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(received.bytes));
      reply.descriptors = std::move(received.descriptors);
      core::FrameView view;
      if (core::parse_frame(reply.bytes, view) != core::FrameFault::none)
        throw std::runtime_error("the server sent no frame");
      reply.type = view.type;
      reply.request = view.request;
      core::decode(view, reply.failure);
      return reply;
    }
    if (!wait_for(socket, POLLIN, deadline)) throw std::runtime_error("no reply in time");
  }
}

void send_raw(int socket, std::span<const std::byte> bytes, const std::vector<int>& descriptors) {
  std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
  }
  if (::sendmsg(socket, &header, MSG_NOSIGNAL) < 0)
    throw std::runtime_error(std::string("sendmsg: ") + std::strerror(errno));
}

core::Hello hello_of(const ThreadedServer& server, int rank, int size) {
  core::Hello hello;
  std::copy(server.token().begin(), server.token().end(), hello.token.begin());
  hello.rank = rank;
  hello.size = size;
  hello.job = server.job();
  return hello;
}

base::UniqueFd join_raw(const ThreadedServer& server, int rank, int size) {
  auto socket = server.connect();
  const auto pidfd = own_pidfd();
  core::FrameWriter frame;
  core::encode(hello_of(server, rank, size), 1, frame);
  send_raw(socket.get(), frame.bytes(), {pidfd.get()});
  const auto reply = receive_raw(socket.get());
  if (reply.type != static_cast<std::uint16_t>(core::MessageType::welcome))
    throw std::runtime_error("not welcome: " + reply.failure.what_failed);
  return socket;
}

Child::Child(const std::function<int()>& body) : pid_(::fork()) {
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    int code = 99;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
    }
    // Without the parent's exit handlers and test reports.
    ::_exit(code);
  }
}

Child::~Child() {
  if (reaped_) return;
  ::kill(pid_, SIGKILL);
  wait();
}

void Child::kill(int signal) const {
  ::kill(pid_, signal);
}

int Child::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Gate::Gate() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  read_.reset(ends[0]);
  write_.reset(ends[1]);
}

void Gate::open() const {
  const char byte = 1;
  if (::write(write_.get(), &byte, 1) != 1) throw std::runtime_error("gate: write failed");
}

bool Gate::wait(std::chrono::milliseconds limit) const {
  pollfd entry{read_.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&entry, 1, static_cast<int>(limit.count())) > 0 && ::read(read_.get(), &byte, 1) == 1;
}

std::vector<std::string> entries_of(const std::string& directory) {
  std::vector<std::string> names;
  DIR* stream = ::opendir(directory.c_str());
  if (stream == nullptr) return names;
  while (const auto* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(stream);
  return names;
}

std::vector<std::string> descriptors_of(pid_t pid) {
  const auto folder = "/proc/" + std::to_string(pid) + "/fd";
  std::vector<std::string> targets;
  for (const auto& name : entries_of(folder)) {
    std::array<char, 512> target;
    const auto length = ::readlink((folder + "/" + name).c_str(), target.data(), target.size());
    if (length > 0) targets.emplace_back(target.data(), static_cast<std::size_t>(length));
  }
  return targets;
}

int count_matching(const std::vector<std::string>& texts, const std::string& part) {
  int count = 0;
  for (const auto& text : texts)
    if (text.find(part) != std::string::npos) ++count;
  return count;
}

}  // namespace tugline::broker::testing
