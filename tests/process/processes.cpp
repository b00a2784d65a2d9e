// SPDX-License-Identifier: Apache-2.0
#include "processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

extern char** environ;

namespace tugline::process {
namespace {

using Clock = std::chrono::steady_clock;

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  return ends;
}

std::map<std::string, std::string> clean_environment() {
  std::map<std::string, std::string> result;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry = *at;
    const auto equals = entry.find('=');
    const auto name = entry.substr(0, equals);
    if (name.starts_with("TUGLINE_") && name != "TUGLINE_KERNEL") continue;
    result[name] = equals == std::string::npos ? "" : entry.substr(equals + 1);
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  // Not by an iterator: that throws where a process ends while its file in /proc is read.
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

bool eventually(const std::function<bool()>& condition, Milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

Process::Process(const Launch& launch) {
  auto variables = clean_environment();
  for (const auto& [name, value] : launch.environment) variables[name] = value;
  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  auto command = launch.command;
  const auto argv = pointers(command);
  const auto envp = pointers(environment);
  const auto input = make_pipe();
  const auto output = make_pipe();
  const auto error = make_pipe();
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    ::dup2(input[0], 0);
    ::dup2(output[1], 1);
    ::dup2(error[1], 2);
    if (launch.before_exec) launch.before_exec();
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(126);
  }
  for (const int end : {input[0], output[1], error[1]}) ::close(end);
  input_ = input[1];
  output_ = output[0];
  error_ = error[0];
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      input_(std::exchange(other.input_, -1)),
      output_(std::exchange(other.output_, -1)),
      error_(std::exchange(other.error_, -1)),
      ended_(std::move(other.ended_)) {}

Process::~Process() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const int end : {input_, output_, error_})
    if (end >= 0) ::close(end);
}

void Process::kill(int signal) const {
  EXPECT_EQ(::kill(pid_, signal), 0);
}

bool Process::sleeps() const {
  const auto text = content_of("/proc/" + std::to_string(pid_) + "/stat");
  const auto name_end = text.rfind(')');
  return name_end != std::string::npos && text.compare(name_end, 3, ") S") == 0;
}

void Process::say(const std::string& line) {
  const auto text = line + "\n";
  EXPECT_EQ(::write(input_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

bool Process::read_some(int timeout_ms) {
  pollfd ends[2] = {{output_, POLLIN, 0}, {error_, POLLIN, 0}};
  ::poll(ends, 2, timeout_ms);
  const auto take = [](int& end, const pollfd& state, std::string& into) {
    if (end < 0 || state.revents == 0) return;
    std::array<char, 65536> block;
    const auto bytes = ::read(end, block.data(), block.size());
    if (bytes > 0) {
      into.append(block.data(), static_cast<std::size_t>(bytes));
    } else {
      ::close(std::exchange(end, -1));
    }
  };
  take(output_, ends[0], ended_.output);
  take(error_, ends[1], ended_.error);
  return output_ >= 0 || error_ >= 0;
}

bool Process::has_said(const std::string& line, Milliseconds limit) {
  const auto end = Clock::now() + limit;
  const auto wanted = "\n" + line + "\n";
  const auto seen = [&] {
    return ("\n" + ended_.output).find(wanted) != std::string::npos ||
           ("\n" + ended_.error).find(wanted) != std::string::npos;
  };
  while (!seen()) {
    if (Clock::now() > end || !read_some(10)) return seen();
  }
  return true;
}

Ended Process::wait(Milliseconds limit) {
  const auto end = Clock::now() + limit;
  int status = 0;
  // By its own end: a child that it forked may hold the pipes for longer.
  pid_t ended = 0;
  while ((ended = ::waitpid(pid_, &status, WNOHANG)) == 0) {
    if (Clock::now() > end) {
      ADD_FAILURE() << "process " << pid_ << " still runs after " << limit.count() << " ms; so far:\n"
                    << ended_.output << ended_.error;
      ::kill(pid_, SIGKILL);
      ended = ::waitpid(pid_, &status, 0);
      break;
    }
    if (output_ >= 0 || error_ >= 0)
      read_some(5);
    else
      std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(ended, pid_);
  pid_ = 0;
  for (int left = 1; left != 0;) {
    const auto before = ended_.output.size() + ended_.error.size();
    read_some(0);
    left = ended_.output.size() + ended_.error.size() != before;
  }
  if (WIFEXITED(status)) ended_.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended_.signal = WTERMSIG(status);
  return ended_;
}

Surroundings::Surroundings() {
  static std::atomic<int> last{0};
  job_ = "process-test-" + std::to_string(::getpid()) + "-" + std::to_string(++last);
  auto name = (std::filesystem::temp_directory_path() / "tugline-process-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  folder_ = name;
}

Surroundings::~Surroundings() {
  for (const auto pid : brokers()) ::kill(pid, SIGKILL);
  std::error_code ignored;  // what a failed test left behind
  std::filesystem::remove_all(folder_, ignored);
}

Launch Surroundings::rank(int rank, int size, std::vector<std::string> scenario) const {
  Launch launch;
  launch.command = std::move(scenario);
  launch.command.insert(launch.command.begin(), TUGLINE_SCENARIO_PROGRAM);
  launch.environment = {{"TUGLINE_RUNTIME_DIR", runtime().string()},
                        {"TUGLINE_JOB", job_},
                        {"TUGLINE_RANK", std::to_string(rank)},
                        {"TUGLINE_SIZE", std::to_string(size)},
                        {"TUGLINE_BROKER_BIN", TUGLINE_COMMAND}};
  return launch;
}

std::vector<std::unique_ptr<Process>> Surroundings::ranks(
    int size, const std::vector<std::string>& scenario, const std::function<void()>& before_exec,
    const std::map<std::string, std::string>& environment) const {
  std::vector<std::unique_ptr<Process>> result;
  for (int number = 0; number < size; ++number) {
    auto launch = rank(number, size, scenario);
    launch.before_exec = before_exec;
    for (const auto& [name, value] : environment) launch.environment[name] = value;
    result.push_back(std::make_unique<Process>(launch));
  }
  return result;
}

Launch Surroundings::broker_launch() const {
  return {.command = {TUGLINE_COMMAND, "broker", "--job", job_},
          .environment = {{"TUGLINE_RUNTIME_DIR", runtime().string()}},
          .before_exec = {}};
}

std::unique_ptr<Process> Surroundings::broker() const {
  auto process = std::make_unique<Process>(broker_launch());
  EXPECT_TRUE(process->has_said(socket_path())) << process->output() << process->error();
  return process;
}

std::vector<pid_t> Surroundings::brokers() const {
  const std::string mark = std::string(1, '\0') + job_ + std::string(1, '\0');
  std::vector<pid_t> found;
  std::error_code ignored;  // processes come and go
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const auto name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (content_of(entry.path() / "cmdline").find(mark) != std::string::npos)
      found.push_back(std::stoi(name));
  }
  return found;
}

std::vector<std::string> Surroundings::files() const {
  std::vector<std::string> found;
  std::error_code ignored;  // not there, or just going
  for (const auto& entry : std::filesystem::recursive_directory_iterator(runtime(), ignored))
    found.push_back(entry.path().string());
  return found;
}

bool Surroundings::nothing_left() const {
  return eventually([this] { return brokers().empty() && files().empty(); }, 10s);
}

std::vector<Ended> wait_for_all(std::vector<std::unique_ptr<Process>>& processes, int code) {
  std::vector<Ended> ends;
  for (auto& process : processes) {
    ends.push_back(process->wait());
    EXPECT_EQ(ends.back().exit_code, code)
        << "rank " << ends.size() - 1 << ", signal " << ends.back().signal << "\n"
        << ends.back().output << ends.back().error;
  }
  return ends;
}

std::string expect_three_lines(const std::string& text, const std::string& code) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  // Log lines stand beside the error's text.
  for (std::string line; std::getline(stream, line);)
    if (line.find(" tugline WARN ") == std::string::npos) lines.push_back(line);
  EXPECT_EQ(lines.size(), 3U) << text;
  lines.resize(3);
  EXPECT_EQ(lines[0].rfind("tugline: " + code + ": ", 0), 0U) << text;
  EXPECT_EQ(lines[1].rfind("  where: ", 0), 0U) << text;
  EXPECT_EQ(lines[2].rfind("  do: ", 0), 0U) << text;
  return lines[0];
}

double took_ms(const std::string& output) {
  const auto at = output.find("took ");
  EXPECT_NE(at, std::string::npos) << output;
  return at == std::string::npos ? 1e9 : std::stod(output.substr(at + 5));
}

}  // namespace tugline::process
