// SPDX-License-Identifier: Apache-2.0
// A rank that does what a test asks for, through the public API: process_scenario NAME ARGUMENTS...
// Prints lines that the test waits for, and an uncaught error's text before it exits with 1.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "inputs.h"
#include "operation.h"
#include "tugline/tugline.hpp"

namespace tugline::process {
namespace {

using Arguments = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

/// Goes on when the test says something; ends the process when the test is gone.
void wait_for_test() {
  for (int c = std::getchar(); c != '\n'; c = std::getchar())
    if (c == EOF) std::exit(3);
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void require(bool held, const std::string& what) {
  if (!held) throw std::runtime_error("scenario: " + what);
}

std::vector<std::uint32_t> everyone(const Communicator& comm) {
  std::vector<std::uint32_t> members;
  for (int rank = 0; rank < comm.size(); ++rank) members.push_back(static_cast<std::uint32_t>(rank));
  return members;
}

void check_all_collectives(Communicator& comm) {
  const auto members = everyone(comm);
  for (const std::size_t bytes : {4, 56, 60, 1024, 4096, 100'000, 3'000'004})
    for (int kind = 0; kind < kKindCount; ++kind)
      for (const auto type : {DataType::f32, DataType::i32}) {
        const Draw draw{static_cast<Kind>(kind), type, bytes, bytes % 13, false};
        Operation operation(draw, members, static_cast<std::uint32_t>(comm.rank()));
        operation.run(comm, Target());
        require(operation.is_right(),
                "kind " + std::to_string(kind) + " of " + std::to_string(bytes) + " bytes");
      }
}

void steps(Communicator& comm, int count) {
  for (int step = 0; step < count; ++step) {
    std::vector<float> values(1000, 1.0f);
    comm.all_reduce(std::span<float>(values), ReduceOp::sum);
    require(values.front() == static_cast<float>(comm.size()), "sum");
    const auto outcome = comm.agree();
    require(outcome.committed() && !outcome.membership_changed(), "an undisturbed step is committed");
  }
}

void collectives(Job& job, const Arguments&) {
  auto comm = job.communicator();
  check_all_collectives(comm);
  steps(comm, 5);
}

/// All ranks are in step; then rank 0 makes the first of two different calls, all others the second.
void mismatch(Job& job, const Arguments& arguments) {
  auto comm = job.communicator();
  auto child = comm.split(0, comm.rank());
  std::vector<float> send(1 << 18), recv(1 << 18);
  const auto all_reduce = [&](std::size_t count, DataType type, ReduceOp op) {
    comm.all_reduce(send.data(), recv.data(), count, type, op);
  };
  // A root needs nobody, so it hears of the others' call at its next one.
  const auto broadcast_from = [&](int root) {
    comm.broadcast(send.data(), recv.data(), 4, DataType::f32, root);
    comm.barrier();
  };
  const std::map<std::string, std::pair<std::function<void()>, std::function<void()>>> cases{
      {"count",
       {[&] { all_reduce(4, DataType::f32, ReduceOp::sum); },
        [&] { all_reduce(5, DataType::f32, ReduceOp::sum); }}},
      {"large_count",
       {[&] { all_reduce(200'000, DataType::f32, ReduceOp::sum); },
        [&] { all_reduce(200'001, DataType::f32, ReduceOp::sum); }}},
      {"type",
       {[&] { all_reduce(4, DataType::f32, ReduceOp::sum); },
        [&] { all_reduce(4, DataType::i32, ReduceOp::sum); }}},
      {"operator",
       {[&] { all_reduce(4, DataType::f32, ReduceOp::sum); },
        [&] { all_reduce(4, DataType::f32, ReduceOp::max); }}},
      {"root", {[&] { broadcast_from(0); }, [&] { broadcast_from(1); }}},
      {"split", {[&] { (void)comm.split(0, 0); }, [&] { comm.barrier(); }}},
      {"collective",
       {[&] { all_reduce(4, DataType::f32, ReduceOp::sum); },
        [&] { comm.all_gather(send.data(), recv.data(), 4, DataType::f32); }}},
      {"order",
       {[&] { all_reduce(4, DataType::f32, ReduceOp::sum), comm.barrier(); },
        [&] { comm.barrier(), all_reduce(4, DataType::f32, ReduceOp::sum); }}},
      {"agreement", {[&] { (void)comm.agree(); }, [&] { comm.barrier(); }}},
      {"agreement_of_others",
       {[&] { all_reduce(200'000, DataType::f32, ReduceOp::sum); }, [&] { (void)comm.agree(); }}},
      {"agreement_of_the_parent", {[&] { child.barrier(); }, [&] { (void)comm.agree(); }}},
  };
  const auto& [first, others] = cases.at(arguments.at(0));
  steps(comm, 1);
  const auto start = Clock::now();
  try {
    comm.rank() == 0 ? first() : others();
  } catch (const Error&) {
    say("took " + std::to_string(milliseconds_since(start)) + " ms");
    throw;
  }
  say("no error");
}

/// Two ranks wait for each other, each in a place of its own; both must time out and say so, and stay to be
/// seen until the test is content.
void cycle(Job& job, const Arguments& arguments) {
  auto comm = job.communicator();
  auto child = comm.split(0, comm.rank());
  auto other = comm.split(0, comm.rank());
  std::vector<float> values(1 << 18);
  const auto all_reduce = [&](Communicator& where, std::size_t count) {
    where.all_reduce(std::span<float>(values).first(count), ReduceOp::sum);
  };
  const auto receive = [&] { comm.recv(values.data(), 4, DataType::f32, 1 - comm.rank()); };
  const auto in_a_group = [&] {
    Group group;
    comm.all_reduce(std::span<float>(values).first(1000), ReduceOp::sum, group);
    group.run();
  };
  const std::map<std::string, std::pair<std::function<void()>, std::function<void()>>> cases{
      {"parent_and_child", {[&] { all_reduce(comm, 1); }, [&] { all_reduce(child, 1); }}},
      {"large", {[&] { all_reduce(comm, 200'000); }, [&] { all_reduce(child, 200'000); }}},
      {"agreement_of_the_child", {[&] { (void)child.agree(); }, [&] { all_reduce(comm, 1); }}},
      {"siblings", {[&] { all_reduce(child, 1); }, [&] { all_reduce(other, 1); }}},
      {"messages", {receive, receive}},
      {"group", {in_a_group, [&] { all_reduce(child, 1); }}},
  };
  const auto& [first, second] = cases.at(arguments.at(0));
  steps(comm, 1);
  try {
    comm.rank() == 0 ? first() : second();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    say("failed");
    wait_for_test();
    return;
  }
  say("no error");
}

/// One rank is in agree(), the others in a barrier or a message; all then agree, and go on.
void mismatch_and_on(Job& job, const Arguments&) {
  auto comm = job.communicator();
  steps(comm, 1);
  for (const bool message : {false, true}) {
    ErrorCode code = ErrorCode::ok;
    float value = 0;
    try {
      if (comm.rank() == 0)
        (void)comm.agree();
      else if (message)
        comm.recv(&value, 1, DataType::f32, 0);
      else
        comm.barrier();
    } catch (const Error& error) {
      code = error.code();
    }
    require(code == ErrorCode::mismatch, "mismatch is expected, not " + std::string(name_of(code)));
    const auto outcome = comm.agree();
    require(!outcome.committed() && !outcome.membership_changed(), "the step is done again by all");
    steps(comm, 2);
  }
}

/// Rank 0 aborts from a second thread while its first one waits in a collective that the last rank never
/// enters.
void abort_elsewhere(Job& job, const Arguments&) {
  auto comm = job.communicator();
  steps(comm, 1);
  const auto start = Clock::now();
  std::thread other;
  if (comm.rank() == 0) other = std::thread([&] { comm.abort("the operator asks for it"); });
  ErrorCode code = ErrorCode::ok;
  try {
    if (comm.rank() == comm.size() - 1) {
      while (comm.status().ok()) std::this_thread::yield();
      comm.check();
    } else {
      comm.barrier();
    }
  } catch (const Error& error) {
    code = error.code();
    std::fprintf(stderr, "%s\n", error.what());
  }
  if (other.joinable()) other.join();
  require(code == ErrorCode::aborted, "aborted is expected, not " + std::string(name_of(code)));
  say("took " + std::to_string(milliseconds_since(start)) + " ms");
  const auto outcome = comm.agree();
  require(!outcome.committed() && !outcome.membership_changed(), "an abort takes nobody away");
  steps(comm, 3);
}

pid_t fork_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  require(child >= 0, "fork");
  if (child == 0) {
    body();
    ::_exit(0);
  }
  return child;
}

/// Rank 0 forks children that know nothing of the job. One of them stays when the rank ends.
void forks(Job& job, const Arguments&) {
  auto comm = job.communicator();
  steps(comm, 3);
  if (comm.rank() == 0) {
    // Without their copies of the test's pipes.
    const auto stay = [] {
      for (int end = 0; end < 3; ++end) ::close(end);
      for (;;) ::pause();
    };
    ::waitpid(fork_child([] {}), nullptr, 0);
    ::waitpid(fork_child([] { std::exit(0); }), nullptr, 0);  // runs destructors of static objects
    const pid_t killed = fork_child(stay);
    ::kill(killed, SIGKILL);
    ::waitpid(killed, nullptr, 0);
    say("child " + std::to_string(fork_child(stay)));
  }
  steps(comm, 20);
  say("ready");
  wait_for_test();
}

/// Waits at the place that the argument names; the test kills some rank there, the others go on without it.
void wait_at(Job& job, const Arguments& arguments) {
  const std::string& place = arguments.at(0);
  const auto pause_here = [&](const std::string& here) {
    if (place != here) return;
    say("ready");
    wait_for_test();
  };
  pause_here("joined");
  auto comm = job.communicator();
  pause_here("communicator");
  if (place != "nowhere") steps(comm, 1);
  pause_here("loop");
  say("waiting");
  ErrorCode code = ErrorCode::ok;
  std::string text;
  const auto start = Clock::now();
  try {
    comm.barrier();
  } catch (const Error& error) {
    code = error.code();
    text = error.what();
  }
  say("took " + std::to_string(milliseconds_since(start)) + " ms");
  if (code != ErrorCode::ok) std::fprintf(stderr, "%s\n", text.c_str());
  const auto outcome = comm.agree();
  if (code == ErrorCode::ok && outcome.committed() && !outcome.membership_changed())
    return say("nobody was lost");
  require(code == ErrorCode::ok || code == ErrorCode::peer_lost,
          "peer_lost is expected, not " + std::string(name_of(code)));
  require(outcome.membership_changed(), "a rank is lost");
  require(code == ErrorCode::ok || !outcome.committed(), "what failed here is not committed");
  say(outcome.committed() ? "committed" : "aborted");
  for (const auto& lost : outcome.lost()) say("lost " + std::to_string(lost.rank));
  steps(comm, 3);
}

/// Sums in registered memory until a rank is killed; the others go on with it, and own it again at the end.
void registered(Job& job, const Arguments&) {
  constexpr std::size_t kCount = 1 << 18;
  auto* memory = static_cast<float*>(std::aligned_alloc(4096, kCount * sizeof(float)));
  const std::span<float> values(memory, kCount);
  auto registration = job.register_memory(memory, values.size_bytes());
  auto comm = job.communicator();
  const auto all_are_the_size = [&] {
    return std::all_of(values.begin(), values.end(),
                       [&](float v) { return v == static_cast<float>(comm.size()); });
  };
  const auto sum = [&] {
    std::fill(values.begin(), values.end(), 1.0f);
    comm.all_reduce(values, ReduceOp::sum);
    require(all_are_the_size(), "sum");
  };
  sum();
  say("ready");
  auto start = Clock::now();
  ErrorCode code = ErrorCode::ok;
  while (code == ErrorCode::ok) {
    start = Clock::now();
    try {
      sum();
    } catch (const Error& error) {
      code = error.code();
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
  say("took " + std::to_string(milliseconds_since(start)) + " ms");
  require(code == ErrorCode::peer_lost, "peer_lost is expected, not " + std::string(name_of(code)));
  wait_for_test();
  const auto outcome = comm.agree();
  require(!outcome.committed(), "what failed here is not committed");
  say("aborted");
  for (const auto& lost : outcome.lost()) say("lost " + std::to_string(lost.rank));
  sum();
  registration.deregister();
  require(all_are_the_size(), "contents at the end of a registration");
  registration = job.register_memory(memory, values.size_bytes());
  sum();
  registration.deregister();
  std::free(memory);
}

/// The first rank waits in agree(), the others for a message of the last one, which is killed.
void agree_beside_message(Job& job, const Arguments&) {
  auto comm = job.communicator();
  steps(comm, 1);
  const int last = comm.size() - 1;
  say("ready");
  if (comm.rank() == last) wait_for_test();
  ErrorCode code = ErrorCode::ok;
  std::vector<float> values(200'000, 1.0f);
  if (comm.rank() != 0) {
    try {
      comm.recv(values.data(), values.size(), DataType::f32, last);
    } catch (const Error& error) {
      code = error.code();
    }
    require(code == ErrorCode::peer_lost, "peer_lost is expected, not " + std::string(name_of(code)));
  }
  const auto outcome = comm.agree();
  require(outcome.lost().size() == 1 && outcome.lost()[0].rank == last, "the last rank is lost");
  require(!outcome.committed(), "an operation has failed");
  steps(comm, 3);
}

/// Ends right after its last operation, as a program may.
void leave_at_once(Job& job, const Arguments& arguments) {
  auto comm = job.communicator();
  const auto bytes = std::stoul(arguments.at(0));
  const auto members = everyone(comm);
  for (int kind = 0; kind < kKindCount; ++kind) {
    Operation operation({static_cast<Kind>(kind), DataType::f32, bytes, 3, false}, members,
                        static_cast<std::uint32_t>(comm.rank()));
    auto part = comm.split(0, 0);
    operation.run(part, Target());
    require(operation.is_right(), "kind " + std::to_string(kind));
  }
  Operation last({Kind::all_reduce, DataType::f32, bytes, 5, false}, members,
                 static_cast<std::uint32_t>(comm.rank()));
  last.run(comm, Target());
  require(last.is_right(), "sum");
  job.leave();
}

/// Waits, in a barrier or in agree(), for a rank that does not come, until the broker is gone.
void until_broker_lost(Job& job, const Arguments& arguments) {
  auto comm = job.communicator();
  steps(comm, 1);
  say("ready");
  if (comm.rank() == 0) {
    // One rank computes and never comes.
    while (comm.status().ok()) std::this_thread::yield();
    comm.check();
  }
  if (arguments.at(0) == "agree") (void)comm.agree();
  comm.barrier();
}

/// The last rank comes no more; the others wait for it in the place that is asked for.
void peer_stays_away(Job& job, const Arguments& arguments) {
  const std::string& place = arguments.at(0);
  auto comm = job.communicator();
  steps(comm, 1);
  say("ready");
  const int last = comm.size() - 1;
  if (comm.rank() == last) return wait_for_test();
  wait_for_test();
  std::vector<float> values(200'000, 1.0f);
  try {
    if (place == "barrier") comm.barrier();
    if (place == "reduction") comm.all_reduce(std::span<float>(values), ReduceOp::sum);
    if (place == "agree") (void)comm.agree();
    if (place == "message") comm.recv(values.data(), values.size(), DataType::f32, last);
    if (place == "group") {
      Group group;
      comm.recv(values.data(), values.size(), DataType::f32, last, group);
      comm.send(values.data(), values.size(), DataType::f32, last, group);
      group.run();
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    // Whoever left now would be what the others are told of.
    say("failed");
    wait_for_test();
  }
}

/// Start-up as a program sees it: from its first line to the first result.
void start_up(Job& job, const Arguments& arguments) {
  auto comm = job.communicator();
  say("made");
  arguments.empty() ? comm.barrier() : static_cast<void>(comm.agree());
  say("up");
  wait_for_test();
}

/// Asks for memory: an uncaught error is what the test wants.
void allocate(Job& job, const Arguments& arguments) {
  auto buffer = job.allocate<std::uint8_t>(std::stoull(arguments.at(0)));
  buffer.data()[buffer.size() - 1] = 1;
  say("allocated");
}

/// Publishes a version of a named buffer, and begins the next one, until it is killed.
void named_write(Job& job, const Arguments& arguments) {
  constexpr std::size_t kCount = 100'000;
  const auto version = std::stoull(arguments.at(0));
  auto buffer = job.named_buffer<std::uint32_t>("weights/" + std::to_string(job.rank()), kCount);
  const auto next = buffer.next();
  fill(next, static_cast<std::uint32_t>(job.rank()), version);
  buffer.publish(version);
  buffer.next()[0] = 12345;  // never published
  say("ready");
  wait_for_test();
}

void named_find(Job& job, const Arguments& arguments) {
  constexpr std::size_t kCount = 100'000;
  const auto version = std::stoull(arguments.at(0));
  for (std::uint32_t rank = 0; rank < std::stoul(arguments.at(1)); ++rank) {
    auto buffer = job.named_buffer<std::uint32_t>("weights/" + std::to_string(rank), kCount);
    require(buffer.version() == version, "version " + std::to_string(buffer.version()));
    require(is_sum(buffer.current(), {rank}, version, 0), "the elements of rank " + std::to_string(rank));
    buffer.next()[0] = 7;  // its writer is dead: this is the new one
    buffer.publish(version + 1);
  }
  say("found");
}

using Scenario = void (*)(Job&, const Arguments&);
const std::map<std::string, Scenario> kScenarios{
    {"collectives", collectives},
    {"mismatch", mismatch},
    {"mismatch_and_on", mismatch_and_on},
    {"cycle", cycle},
    {"abort", abort_elsewhere},
    {"fork", forks},
    {"wait_at", wait_at},
    {"registered", registered},
    {"agree_beside_message", agree_beside_message},
    {"leave_at_once", leave_at_once},
    {"until_broker_lost", until_broker_lost},
    {"peer_stays_away", peer_stays_away},
    {"start_up", start_up},
    {"allocate", allocate},
    {"named_write", named_write},
    {"named_find", named_find},
};

}  // namespace
}  // namespace tugline::process

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    const auto scenario = tugline::process::kScenarios.at(words.at(0));
    auto job = tugline::Job::join();
    scenario(job, {words.begin() + 1, words.end()});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
