// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>

#include "base/random.h"
#include "base/settings.h"

namespace tugline::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reading.reset(ends[0]);
    writing.reset(ends[1]);
  }
  base::UniqueFd reading;
  base::UniqueFd writing;
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const auto& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "tugline-test-XXXXXX").string();
  EXPECT_NE(::mkdtemp(name.data()), nullptr);
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Command::Command(std::vector<std::string> arguments, const Options& options)
    : mark_("MARK_OF_A_TEST=" + base::random_hex(16)) {
  Pipe input;
  Pipe output;
  Pipe error;
  auto variables = base::process_environment();
  variables["TUGLINE_RUNTIME_DIR"] = runtime_.path().string();
  for (const auto& [name, value] : options.environment) variables[name] = value;
  std::vector<std::string> environment{mark_};
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  arguments.insert(arguments.begin(), TUGLINE_COMMAND);
  if (options.foreign_proc)
    for (const char* word :
         {"--", "--kill-child", "--fork", "--pid", "--map-root-user", "--user", "/usr/bin/unshare"})
      arguments.insert(arguments.begin(), word);
  const auto write_to = [](Pipe& pipe, const std::string& path) {
    if (path.empty()) return;
    pipe.writing.reset(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    EXPECT_TRUE(pipe.writing) << path;
  };
  write_to(output, options.output_file);
  write_to(error, options.error_file);
  if (options.close_output_early) output.reading.reset();
  auto argv = pointers(arguments);
  auto envp = pointers(environment);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(input.reading.get(), 0);
    ::dup2(output.writing.get(), 1);
    if (options.no_output) ::close(1);
    ::dup2(error.writing.get(), 2);
    if (options.descriptors != 0) {
      rlimit limit{options.descriptors, options.descriptors};
      ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (options.file_bytes) {
      const rlimit limit{*options.file_bytes, *options.file_bytes};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(126);
  }
  EXPECT_GT(pid_, 0);
  // Inputs of tests fit into a pipe.
  EXPECT_EQ(::write(input.writing.get(), options.input.data(), options.input.size()),
            static_cast<ssize_t>(options.input.size()));
  output_ = std::move(output.reading);
  error_ = std::move(error.reading);
}

Command::~Command() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (pid_t pid : marked()) ::kill(pid, SIGKILL);
}

void Command::signal(int number) const {
  EXPECT_EQ(::kill(pid_, number), 0);
}

bool Command::read_some(int timeout_ms) {
  pollfd polled[2] = {{output_.get(), POLLIN, 0}, {error_.get(), POLLIN, 0}};
  ::poll(polled, 2, timeout_ms);
  auto take = [](base::UniqueFd& from, const pollfd& state, std::string& into) {
    if (!from || state.revents == 0) return;
    char block[65536];
    auto got = ::read(from.get(), block, sizeof block);
    if (got > 0) {
      into.append(block, static_cast<std::size_t>(got));
    } else {
      from.reset();
    }
  };
  take(output_, polled[0], ended_.output);
  take(error_, polled[1], ended_.error);
  return output_ || error_;
}

bool Command::wait_for(const std::string& text, int times) {
  auto deadline = Clock::now() + std::chrono::seconds(30);
  auto wanted = static_cast<std::size_t>(times);
  auto seen = [&] { return count(ended_.output, text) >= wanted || count(ended_.error, text) >= wanted; };
  while (!seen() && Clock::now() < deadline) {
    if (!read_some(100)) break;
  }
  return seen();
}

Ended Command::wait() {
  auto deadline = Clock::now() + std::chrono::seconds(60);
  while (read_some(100)) {
    if (Clock::now() < deadline) continue;
    ADD_FAILURE() << "still running after 60 s; so far:\n" << ended_.output << ended_.error;
    ::kill(pid_, SIGKILL);
    break;
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = 0;
  if (WIFEXITED(status)) ended_.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended_.signal = WTERMSIG(status);
  return ended_;
}

std::vector<pid_t> Command::marked() const {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    std::string name = entry.path().filename();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size())
      continue;
    std::ifstream file(entry.path() / "environ");
    std::stringstream text;
    text << file.rdbuf();
    if (text.str().find(mark_) != std::string::npos) found.push_back(pid);
  }
  return found;
}

bool Command::nothing_left() const {
  auto deadline = Clock::now() + std::chrono::seconds(10);
  while (!marked().empty()) {
    if (Clock::now() > deadline) return false;
    ::poll(nullptr, 0, 10);
  }
  return true;
}

std::vector<std::string> Command::files() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(runtime_.path())) {
    names.push_back(entry.path().string());
  }
  return names;
}

Ended run_command(std::vector<std::string> arguments) {
  return Command(std::move(arguments)).wait();
}

}  // namespace tugline::cli
