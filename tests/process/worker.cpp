// SPDX-License-Identifier: Apache-2.0
// A rank that may be killed at any time: joins, runs steps of collectives that each end in an agreement,
// checks its sums, and writes one line per agreement into its history. scripts/chaos and the process tests
// start it.
//
//   process_worker --history FILE [--monitor FILE] [--seed N] [--losses N] [--after N] [--max-bytes N]
//                  [--touch MIB] [--core DIRECTORY]
//
// Ends when --losses ranks are lost and --after steps have been committed since. Exits 1 with the error's
// text.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "inputs.h"
#include "monitor.h"
#include "operation.h"
#include "tugline/tugline.hpp"

namespace tugline::process {
namespace {

struct Options {
  std::string history;
  std::string monitor;
  std::string core;  ///< where this rank may leave a core file
  std::uint64_t seed = 1;
  std::uint64_t losses = 0;
  std::uint64_t after = 20;
  std::uint64_t max_bytes = 4 << 20;
  std::uint64_t touch = 0;  ///< MiB
};

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

std::uint64_t now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* value = argv[i + 1];
    const auto number = [value] { return std::strtoull(value, nullptr, 10); };
    if (name == "--history")
      options.history = value;
    else if (name == "--monitor")
      options.monitor = value;
    else if (name == "--core")
      options.core = value;
    else if (name == "--seed")
      options.seed = number();
    else if (name == "--losses")
      options.losses = number();
    else if (name == "--after")
      options.after = number();
    else if (name == "--max-bytes")
      options.max_bytes = number();
    else if (name == "--touch")
      options.touch = number();
    else
      throw std::runtime_error("process_worker: unknown option " + std::string(name));
  }
  if (argc % 2 == 0 || options.history.empty()) throw std::runtime_error("process_worker: wrong options");
  return options;
}

// Memory that makes the process large: its death takes as long as the kernel needs for all of it.
void touch(std::uint64_t mebibytes) {
  if (mebibytes == 0) return;
  const std::size_t bytes = mebibytes << 20;
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
}

void allow_core_file(const std::string& directory) {
  rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  if (::setrlimit(RLIMIT_CORE, &limit) != 0) fail("setrlimit");
  if (::chdir(directory.c_str()) != 0) fail("chdir");
}

/// Lines that survive their writer: each goes out in one write.
class History {
 public:
  explicit History(const std::string& path)
      : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
    if (file_ < 0) fail(path);
  }
  void write(const std::string& line) const {
    if (::write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) fail("write");
  }

 private:
  int file_;
};

class Worker {
 public:
  Worker(const Options& options, Monitor& monitor, Job& job)
      : options_(options),
        monitor_(monitor),
        job_(job),
        comm_(job.communicator()),
        history_(options.history) {
    monitor.at(Place::has_communicator);
    for (int rank = 0; rank < job.size(); ++rank) members_.push_back(static_cast<std::uint32_t>(rank));
  }

  void run() {
    stream_.emplace(job_.device().stream());
    std::uint64_t step = 0;
    std::uint64_t lost = 0;
    std::uint64_t since = 0;
    while (lost < options_.losses || since < options_.after) {
      monitor_.step.store(step);
      const auto outcome = do_step(step);
      lost += outcome.lost().size();
      if (outcome.membership_changed()) since = 0;
      if (!outcome.committed()) continue;
      ++step;
      ++since;
      monitor_.at(Place::in_loop);
    }
  }

 private:
  Outcome do_step(std::uint64_t step) {
    const auto draws = draw_step(options_.seed, step, options_.max_bytes);
    const auto self = static_cast<std::uint32_t>(comm_.rank());
    std::vector<Operation> operations;
    for (const auto& draw : draws) operations.emplace_back(draw, members_, self, &job_);
    // Every fourth step is enqueued.
    const bool enqueued = step % 4 == 3;
    first_done_ns_ = noticed_ns_ = 0;
    noticed_.clear();
    bool right = true;
    for (auto& operation : operations) {
      if (!run_one(operation, enqueued)) {
        operation.abandon();
        abandoned_.push_back(std::move(operation));
        break;
      }
      if (!enqueued) right = right && operation.is_right();
    }
    const auto outcome = agree(enqueued);
    const auto agreed_ns = now_ns();
    check_abandoned();
    std::uint64_t hash = kHashStart;
    if (outcome.committed())
      for (const auto& operation : operations) {
        right = right && operation.is_right();
        hash = operation.shared_hash(hash);
      }
    write_line(step, outcome, agreed_ns, hash);
    if (outcome.committed() && !right) throw std::runtime_error("wrong sum in step " + std::to_string(step));
    return outcome;
  }

  /// After every agreement until the next failure, for an agreement may be over while a survivor still works
  /// in what has failed.
  void check_abandoned() {
    for (const auto& operation : abandoned_)
      if (!operation.is_as_abandoned())
        throw std::runtime_error("somebody wrote into the buffers of a failed operation");
    if (abandoned_.size() > 1) abandoned_.erase(abandoned_.begin());
  }

  /// False when the operation reported a lost rank.
  bool run_one(Operation& operation, bool enqueued) {
    Stay stay(monitor_.operations_entered, monitor_.operations_left);
    ++operations_;
    try {
      operation.run(comm_, enqueued ? Target(*stream_) : Target());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::peer_lost) throw;
      noticed_ns_ = now_ns();
      const auto peer = static_cast<std::size_t>(error.context().peer);
      noticed_ = std::to_string(members_.at(peer));
      return false;
    }
    if (first_done_ns_ == 0) first_done_ns_ = now_ns();
    return true;
  }

  Outcome agree(bool enqueued) {
    Stay stay(monitor_.agreements_entered, monitor_.agreements_left);
    return enqueued ? comm_.agree(*stream_) : comm_.agree();
  }

  void write_line(std::uint64_t step, const Outcome& outcome, std::uint64_t agreed_ns, std::uint64_t hash) {
    std::string lost;
    std::vector<std::uint32_t> gone;
    for (const auto& rank : outcome.lost()) {
      gone.push_back(members_.at(static_cast<std::size_t>(rank.rank)));
      lost += (lost.empty() ? "" : ",") + std::to_string(gone.back());
    }
    std::erase_if(members_,
                  [&](auto rank) { return std::find(gone.begin(), gone.end(), rank) != gone.end(); });
    if (static_cast<int>(members_.size()) != comm_.size() ||
        static_cast<int>(members_.at(static_cast<std::size_t>(comm_.rank()))) != job_.rank())
      throw std::runtime_error("the communicator's size or rank does not follow from the outcome");
    std::string members;
    for (auto rank : members_) members += (members.empty() ? "" : ",") + std::to_string(rank);
    char text[512];
    std::snprintf(
        text, sizeof text,
        "agreement=%llu step=%llu operations=%llu epoch=%llu members=%s verdict=%s lost=%s noticed=%s "
        "noticed_ns=%llu agreed_ns=%llu first_done_ns=%llu hash=%016llx\n",
        number(outcome.agreement()), number(step), number(operations_), number(outcome.epoch()),
        members.c_str(), outcome.committed() ? "committed" : "aborted", lost.c_str(), noticed_.c_str(),
        number(noticed_ns_), number(agreed_ns), number(first_done_ns_), number(hash));
    history_.write(text);
  }

  static unsigned long long number(std::uint64_t value) noexcept { return value; }

  const Options& options_;
  Monitor& monitor_;
  Job& job_;
  Communicator comm_;
  std::optional<Stream> stream_;
  History history_;
  std::vector<std::uint32_t> members_;
  std::uint64_t operations_ = 0;
  std::uint64_t first_done_ns_ = 0;
  std::uint64_t noticed_ns_ = 0;
  std::vector<Operation> abandoned_;  ///< operations that failed, until the next one does
  std::string noticed_;               ///< original rank that an operation's error named
};

int run(int argc, char** argv) {
  const auto options = parse(argc, argv);
  Monitor& monitor = map_monitor(options.monitor.empty() ? nullptr : options.monitor.c_str());
  monitor.pid.store(static_cast<std::uint64_t>(::getpid()));
  if (!options.core.empty()) allow_core_file(options.core);
  touch(options.touch);
  monitor.at(Place::joining);
  auto job = Job::join();
  monitor.at(Place::joined);
  {
    Worker worker(options, monitor, job);
    worker.run();
  }
  job.leave();
  monitor.at(Place::ended);
  return 0;
}

}  // namespace

Monitor& map_monitor(const char* path) {
  int flags = MAP_SHARED;
  int file = -1;
  if (path == nullptr) {
    flags |= MAP_ANONYMOUS;
  } else if ((file = ::open(path, O_RDWR | O_CLOEXEC)) < 0) {
    fail(path);
  }
  void* memory = ::mmap(nullptr, sizeof(Monitor), PROT_READ | PROT_WRITE, flags, file, 0);
  if (memory == MAP_FAILED) fail("mmap");
  if (file >= 0) ::close(file);
  return *static_cast<Monitor*>(memory);
}

}  // namespace tugline::process

int main(int argc, char** argv) {
  try {
    return tugline::process::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
