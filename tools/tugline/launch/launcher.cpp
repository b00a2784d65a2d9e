// SPDX-License-Identifier: Apache-2.0
#include "launch/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/clock.h"
#include "launch/descendants.h"
#include "launch/machine.h"
#include "launch/output.h"
#include "launch/signals.h"
#include "launch/spawn.h"
#include "launch/terminal.h"
#include "topology/machine.h"
#include "topology/placement.h"
#include "tugline/error.h"

namespace tugline::cli {
namespace {

/// The processors of each rank, round robin; empty: anywhere.
std::vector<std::vector<int>> cpus_of(const LaunchRequest& request) {
  std::vector<std::vector<int>> cpus;
  if (request.binding == Binding::none) return cpus;
  const auto allowed = allowed_cpus();
  if (request.binding == Binding::core) {
    for (const int cpu : allowed) cpus.push_back({cpu});
    return cpus;
  }
  for (const auto& place : topology::place_compact(topology::this_machine(), request.ranks)) {
    auto& own = cpus.emplace_back();
    // A topology file may be of more than this process has.
    std::copy_if(place.os_processors.begin(), place.os_processors.end(), std::back_inserter(own),
                 [&](int cpu) { return std::binary_search(allowed.begin(), allowed.end(), cpu); });
    if (own.empty())
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("the topology places rank {} on processor {}, which this process may not use",
                              cpus.size() - 1, place.os_processors.front()),
                  "unset TUGLINE_TOPOLOGY, or name a file that describes this machine",
                  {.operation = "--bind numa"});
  }
  return cpus;
}

constexpr std::uint64_t kOneRequest = 250'000'000;   // ns between signals that mean the same
constexpr std::chrono::milliseconds kSilence(1000);  // of the grace: then it is said who is waited for

struct Rank {
  pid_t pid = 0;
  bool own_group = true;
  std::optional<RankEnd> end;
  std::unique_ptr<LineSource> output;
  std::unique_ptr<LineSource> error;
};

std::string describe(const RankEnd& end, bool core_dumped) {
  if (end.signal != 0) {
    return fmt::format("tugline: rank {} (pid {}) was killed by signal {} ({}){}\n", end.rank, end.pid,
                       end.signal, ::strsignal(end.signal), core_dumped ? ", core dumped" : "");
  }
  return fmt::format("tugline: rank {} (pid {}) ended with exit code {}\n", end.rank, end.pid, end.exit_code);
}

base::UniqueFd open_null(int flags) {
  base::UniqueFd null(::open("/dev/null", flags | O_CLOEXEC));
  if (!null) {
    throw Error(ErrorCode::system, "cannot open /dev/null",
                "make the device node available to this container", {.native_code = errno});
  }
  return null;
}

class Launcher {
 public:
  explicit Launcher(const LaunchRequest& request)
      : request_(request), output_(1), error_(2), cpus_(cpus_of(request)) {
    if (same_file(1, 2)) error_sink_ = &output_;
  }
  ~Launcher() { end_tree(); }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  LaunchResult run() {
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
      throw Error(ErrorCode::system, "cannot become the reaper of the job's orphans",
                  "tugline needs Linux 5.10 or newer", {.native_code = errno});
    }
    start();
    while (!all_ended()) step();
    end_tree();
    drain();
    LaunchResult result;
    for (const auto& rank : ranks_) result.ranks.push_back(*rank.end);
    result.stop_signal = stop_signal_;
    result.output_error = output_.error();
    result.error_error = error_sink_->error();
    return result;
  }

 private:
  void start() {
    DescriptorRoom room(request_.ranks);
    auto null_in = open_null(O_RDONLY);
    std::vector<Spawned> starting;  // several at a time: each takes a descriptor until its program runs
    for (int r = 0; r < request_.ranks; ++r) {
      SpawnRequest spawning{.program = request_.program,
                            .arguments = request_.arguments,
                            .environment = request_.environment(r)};
      const bool reads = r == 0 && (terminal_.is_ours() || ::isatty(STDIN_FILENO) == 0);
      spawning.standard_input = reads ? STDIN_FILENO : null_in.get();
      // Only the terminal's foreground group can read it.
      spawning.own_group = r != 0 || !terminal_.is_ours();
      Rank rank;
      rank.own_group = spawning.own_group;
      base::UniqueFd out;
      base::UniqueFd err;
      if (request_.prefix == Prefix::rank) {
        std::string prefix = colour_prefix(r);
        rank.output = make_source(out, prefix, output_);
        rank.error = make_source(err, prefix, *error_sink_);
      }
      spawning.standard_output = out ? out.get() : 1;
      spawning.standard_error = err ? err.get() : 2;
      if (!cpus_.empty()) spawning.cpus = cpus_[static_cast<std::size_t>(r) % cpus_.size()];
      spawning.descriptors = room.before();
      starting.emplace_back(spawning);
      rank.pid = starting.back().pid();
      ranks_.push_back(std::move(rank));
      if (starting.size() == 8 || r + 1 == request_.ranks) {
        for (auto& spawned : starting) spawned.confirm();
        starting.clear();
      }
    }
  }

  static std::unique_ptr<LineSource> make_source(base::UniqueFd& writing, const std::string& prefix,
                                                 Sink& sink) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      throw Error(ErrorCode::out_of_memory, "cannot make a pipe for a rank's output",
                  "raise the limit of open descriptors (ulimit -n), or start fewer ranks",
                  {.native_code = errno});
    }
    writing.reset(ends[1]);
    return std::make_unique<LineSource>(base::UniqueFd(ends[0]), prefix, sink);
  }

  std::string colour_prefix(int rank) const {
    // Six colours that are readable on light and dark grounds.
    if (use_colour(1)) return fmt::format("\033[{}m[{}]\033[0m ", 31 + rank % 6, rank);
    return fmt::format("[{}] ", rank);
  }

  bool all_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.end.has_value(); });
  }

  template <class Use>
  void each_source(Use use) {
    for (auto& rank : ranks_) {
      for (auto* source : {rank.output.get(), rank.error.get()}) {
        if (source != nullptr && !source->ended()) use(*source);
      }
    }
  }

  /// Waits for the next event of any kind and handles what is there.
  void step() {
    std::vector<pollfd> polled{{signals_.descriptor(), POLLIN, 0}};
    for (auto* sink : {&output_, error_sink_}) {
      if (sink->has_pending()) polled.push_back({sink->descriptor(), POLLOUT, 0});
    }
    each_source([&](LineSource& source) {
      if (source.sink().has_room()) polled.push_back({source.descriptor(), POLLIN, 0});
    });
    // Last, for it is no sink's.
    if (request_.broker_link >= 0 && !broker_gone_) polled.push_back({request_.broker_link, 0, 0});
    if (::poll(polled.data(), polled.size(), timeout_ms()) < 0 && errno != EINTR) {
      throw Error(ErrorCode::system, "cannot wait for the ranks", "report it with the errno",
                  {.native_code = errno});
    }
    for (Signal signal = signals_.take(); signal.number != 0; signal = signals_.take()) handle(signal);
    if (polled.back().fd == request_.broker_link && (polled.back().revents & POLLHUP) != 0) {
      broker_gone_ = true;
      if (!stopping_)
        error_sink_->add(
            "tugline: the broker of the job has ended; ranks that need it get the error broker_lost\n");
    }
    if (say_at_ && base::running_ns() >= *say_at_) {
      say_at_.reset();
      say_who_is_waited_for();
    }
    if (kill_at_ && base::running_ns() >= *kill_at_) {
      signal_all(SIGKILL);
      kill_now_ = true;
      kill_at_.reset();
    }
    each_source([](LineSource& source) {
      if (source.sink().has_room()) source.read_some();
    });
    for (std::size_t i = 1; i < polled.size(); ++i) {
      if ((polled[i].revents & (POLLOUT | POLLERR)) == 0) continue;
      if (polled[i].fd == output_.descriptor()) output_.write_some();
      if (error_sink_ != &output_ && polled[i].fd == error_sink_->descriptor()) error_sink_->write_some();
    }
    // Results that cannot be written, and a reader that went away, end the job; what is lost of standard
    // error otherwise does not.
    if ((output_.error() != 0 || error_sink_->error() == EPIPE) && !stopping_) stop();
  }

  int timeout_ms() const {
    if (!kill_at_) return -1;
    const auto next = say_at_ ? std::min(*say_at_, *kill_at_) : *kill_at_;
    const auto sleep = std::chrono::ceil<std::chrono::milliseconds>(base::sleep_until(next));
    return static_cast<int>(sleep.count());
  }

  void handle(Signal signal) {
    if (signal.number == SIGCHLD) {
      reap();
      return;
    }
    if (signal.number == SIGTSTP || signal.number == SIGTTIN) {
      suspend(signal);
      return;
    }
    stop_signal_ = signal.number;
    if (!stopping_) {
      asked_at_ = base::running_ns();
      stop(signal);
    } else if (is_second_request(signal)) {
      signal_all(SIGKILL);
      kill_now_ = true;
    }
  }

  /// Asked twice, or asked while the job ends already, means: no more patience. But timeout(1) and a shell's
  /// `kill %1` send one request as two signals, to the process and to its group. A terminal does not.
  bool is_second_request(Signal signal) const noexcept {
    return !asked_at_ || signal.from_terminal || base::running_ns() - *asked_at_ >= kOneRequest;
  }

  /// The terminal's signals reach this process's group only, and most ranks have groups of their own. The
  /// stop is a process's own affair there: it may have a screen to put in order first.
  void suspend(Signal signal) {
    signal_all(SIGSTOP, signal.from_terminal);
    signals_.obey(signal.from_terminal ? signal.number : SIGSTOP);
    signal_all(SIGCONT);
  }

  /// Every rank gets the signal by which the job ends, once.
  void stop(Signal signal = {SIGTERM, false}) {
    stopping_ = true;
    signal_all(signal.number, signal.from_terminal);
    signal_all(SIGCONT);  // a stopped process takes it only when it goes on
    kill_at_ = base::running_deadline(request_.grace);
    if (request_.grace > kSilence) say_at_ = base::running_deadline(kSilence);
  }

  void say_who_is_waited_for() {
    std::string ranks;
    for (const auto& rank : ranks_)
      if (!rank.end) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", &rank - ranks_.data());
    say_waiting("ranks that have not ended: " + ranks);
  }

  void say_waiting(const std::string& whom) {
    const auto left = request_.grace - kSilence;
    error_sink_->add(
        fmt::format("tugline: waiting up to {} s more (--grace) for {}; Ctrl-C again kills them at once\n",
                    std::chrono::ceil<std::chrono::seconds>(left).count(), whom));
  }

  /// With `group_has_it` to those only that are not in this process's group.
  void signal_all(int signal, bool group_has_it = false) {
    for (const auto& rank : ranks_) {
      // Once the leader is reaped its number may belong to somebody else; end_tree() gets what it left.
      if (rank.end) continue;
      if (rank.own_group) {
        ::kill(-rank.pid, signal);
      } else if (!group_has_it) {
        signal_beside(rank.pid, signal);
      }
    }
  }

  /// To the rank in this process's group, which holds others too: this process, and those of its pipeline.
  void signal_beside(pid_t rank, int signal) {
    for (const pid_t pid : descendants(request_.broker))
      if (pid == rank || ::getpgid(pid) == ::getpgrp()) ::kill(pid, signal);
  }

  void reap_ranks() {
    for (auto& rank : ranks_) {
      int status = 0;
      if (rank.end || ::waitpid(rank.pid, &status, WNOHANG) != rank.pid) continue;
      RankEnd end{.rank = static_cast<int>(&rank - ranks_.data()), .pid = rank.pid};
      if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
      if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
      rank.end = end;
      if (end.signal != 0 && !rank.own_group) terminal_.restore();
      if (request_.on_end) request_.on_end(end);
      for (auto* source : {rank.output.get(), rank.error.get()}) {
        while (source != nullptr && source->read_some()) {
        }
      }
      // A rank that wrote to this process's own output tells by its end that nobody reads.
      if (end.signal == SIGPIPE && request_.prefix == Prefix::none) output_.look_for_reader();
      if (end.ok() || stopping_ || output_.error() != 0) continue;
      error_sink_->add(describe(end, WIFSIGNALED(status) && WCOREDUMP(status)));
      if (request_.on_failure == OnFailure::end_job) stop();
    }
  }

  /// Takes the ends of ranks, and of orphans that have come to this process. The broker's stays for its
  /// owner.
  void reap() {
    while (true) {
      reap_ranks();
      siginfo_t next{};
      if (::waitid(P_ALL, 0, &next, WEXITED | WNOHANG | WNOWAIT) != 0) return;
      if (next.si_pid == 0 || next.si_pid == request_.broker) return;
      // A rank may have ended since reap_ranks() looked; its end must not be taken for an orphan's.
      bool rank = std::any_of(ranks_.begin(), ranks_.end(),
                              [&next](const Rank& each) { return each.pid == next.si_pid && !each.end; });
      if (!rank) ::waitpid(next.si_pid, nullptr, WNOHANG);
    }
  }

  /// Ends and reaps everything below this process but the broker.
  void end_tree() noexcept {
    auto kill_from = kill_at_.value_or(base::running_deadline(request_.grace));
    const auto say_from = say_at_.value_or(base::running_deadline(kSilence));
    bool said = request_.grace <= kSilence || (kill_at_ && !say_at_);
    std::set<pid_t> asked;
    stopping_ = true;  // what ends from here on is no news
    try {
      while (!tree_ended_) {
        reap();
        auto left = descendants(request_.broker);
        tree_ended_ = left.empty();
        for (pid_t pid : left) {
          if (kill_now_ || base::running_ns() >= kill_from) {
            ::kill(pid, SIGKILL);
          } else if (asked.insert(pid).second) {
            ::kill(pid, SIGTERM);
            ::kill(pid, SIGCONT);
          }
        }
        if (!tree_ended_ && !said && base::running_ns() >= say_from) {
          said = true;
          say_waiting(fmt::format("what the ranks left running: process {}", fmt::join(left, ", ")));
        }
        // The end of children is told by SIGCHLD; grandchildren come to this process only after it, untold.
        pollfd polled[]{{signals_.descriptor(), POLLIN, 0}, {error_sink_->descriptor(), POLLOUT, 0}};
        if (!tree_ended_) ::poll(polled, error_sink_->has_pending() ? 2 : 1, 10);
        if ((polled[1].revents & (POLLOUT | POLLERR)) != 0) error_sink_->write_some();
        for (Signal came = signals_.take(); came.number != 0; came = signals_.take()) {
          const bool to_end = came.number == SIGINT || came.number == SIGTERM || came.number == SIGHUP;
          kill_now_ = kill_now_ || (to_end && is_second_request(came));
        }
      }
    } catch (const std::exception& error) {
      error_sink_->add(fmt::format("{}\n", error.what()));
    }
  }

  void drain() {
    each_source([](LineSource& source) {
      while (source.read_some()) {
      }
    });
    output_.write_all();
    error_sink_->write_all();
  }

  const LaunchRequest& request_;
  const Terminal terminal_;
  Signals signals_;
  Sink output_;
  Sink error_;
  Sink* error_sink_ = &error_;
  std::vector<std::vector<int>> cpus_;  ///< by rank, round robin; empty: anywhere
  std::vector<Rank> ranks_;
  bool stopping_ = false;
  bool kill_now_ = false;
  bool tree_ended_ = false;
  int stop_signal_ = 0;
  std::optional<std::uint64_t> asked_at_;  // to stop, first; base::running_ns()
  std::optional<std::uint64_t> kill_at_;   // base::running_ns()
  std::optional<std::uint64_t> say_at_;    // likewise, that ranks are waited for
  bool broker_gone_ = false;
};

}  // namespace

LaunchResult launch(const LaunchRequest& request) {
  return Launcher(request).run();
}

}  // namespace tugline::cli
