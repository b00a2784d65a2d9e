// SPDX-License-Identifier: Apache-2.0
#include "broker/spawn.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/settings.h"
#include "broker/start_report.h"
#include "tugline/error.h"

namespace tugline::broker {
namespace {

bool is_program(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

std::string absolute(const std::string& path) {
  std::array<char, PATH_MAX> resolved;
  return ::realpath(path.c_str(), resolved.data()) != nullptr ? std::string(resolved.data()) : path;
}

std::string folder_of(const std::string& path) {
  const auto slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

/// Everything that the child needs, made before the fork: after it nothing may be allocated.
struct Recipe {
  std::string program;
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  std::vector<char*> argv;
  std::vector<char*> envp;
  int null = -1;
  int directory = -1;
  int owner = -1;
  int report = -1;
  int text = -1;  // becomes standard error
};

void add_pointers(std::vector<std::string>& texts, std::vector<char*>& out) {
  for (auto& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
}

// Async-signal-safe from here to exec.

void close_from(unsigned first) noexcept {
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  rlimit limit{};  // a seccomp profile that does not know the call
  ::getrlimit(RLIMIT_NOFILE, &limit);
  for (rlim_t fd = first; fd < limit.rlim_cur; ++fd) ::close(static_cast<int>(fd));
}

void reset_process_state() noexcept {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &standard, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // All processors that the control group leaves; the rank that spawns may be pinned to one.
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof(all));
  ::sched_setaffinity(0, sizeof(all), &all);
  const sched_param normal{};
  ::sched_setscheduler(0, SCHED_OTHER, &normal);
  constexpr int kDefaultPolicy = 0;  // MPOL_DEFAULT
  ::syscall(SYS_set_mempolicy, kDefaultPolicy, nullptr, 0);
  ::umask(077);
}

[[noreturn]] void report_and_exit(const Recipe& recipe, int socket, StartStage stage) noexcept {
  const int reason = errno;
  // This copy would hold the lock for a moment longer than the starter, who tidies up.
  ::flock(stage == StartStage::execve ? kLockedDirectoryDescriptor : recipe.directory, LOCK_UN);
  report_stage(socket, stage, reason);
  ::_exit(127);
}

// As many descriptors as allowed: the soft limit is the starter's affair, the broker raises its own too.
void raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

[[noreturn]] void become_broker(const Recipe& recipe) noexcept {
  reset_process_state();
  raise_descriptor_limit();
  // Out of the way of the numbers that they get below.
  constexpr int kAbove = kReportDescriptor + 1;
  const auto duplicate = [](int descriptor) {
    const int result = ::fcntl(descriptor, F_DUPFD, kAbove);
    if (result < 0 && errno == EINVAL) errno = EMFILE;  // the limit is below kAbove
    return result;
  };
  const int report = duplicate(recipe.report);
  if (report < 0) report_and_exit(recipe, recipe.report, StartStage::descriptors);
  const int null = duplicate(recipe.null);
  const int directory = duplicate(recipe.directory);
  const int owner = recipe.owner < 0 ? null : duplicate(recipe.owner);
  const int text = duplicate(recipe.text);
  if (null < 0 || directory < 0 || owner < 0 || text < 0 || ::dup2(null, 0) < 0 || ::dup2(null, 1) < 0 ||
      ::dup2(text, 2) < 0 || ::dup2(directory, kLockedDirectoryDescriptor) < 0 ||
      ::dup2(owner, kOwnerDescriptor) < 0 || ::dup2(report, kReportDescriptor) < 0 || ::chdir("/") != 0)
    report_and_exit(recipe, report, StartStage::descriptors);
  close_from(kReportDescriptor + 1);
  ::execve(recipe.program.c_str(), recipe.argv.data(), recipe.envp.data());
  report_and_exit(recipe, kReportDescriptor, StartStage::execve);
}

[[noreturn]] void leave_session_and_fork(const Recipe& recipe) noexcept {
  ::setsid();
  const pid_t child = ::fork();
  if (child < 0) report_and_exit(recipe, recipe.report, StartStage::fork);
  if (child == 0) become_broker(recipe);
  ::_exit(0);
}

}  // namespace

std::string find_broker_program() {
  const auto& set = base::settings().broker_bin;
  if (!set.empty()) {
    if (is_program(set)) return absolute(set);
    throw Error(ErrorCode::not_found, fmt::format("TUGLINE_BROKER_BIN={} is not a program", set),
                "set it to the path of `tugline`, or leave it unset");
  }
  std::vector<std::string> tried;
  Dl_info library{};
  if (::dladdr(reinterpret_cast<const void*>(&find_broker_program), &library) != 0 &&
      library.dli_fname != nullptr) {
    const auto folder = folder_of(absolute(library.dli_fname));
    tried.push_back(folder + "/tugline");
    tried.push_back(folder + "/../bin/tugline");
  }
  const auto own_folder = folder_of(absolute("/proc/self/exe"));
  tried.push_back(own_folder + "/tugline");
  tried.push_back(own_folder + "/../bin/tugline");
  if (const char* path = std::getenv("PATH")) {
    std::string_view rest(path);
    while (!rest.empty()) {
      const auto colon = rest.find(':');
      const auto folder = rest.substr(0, colon);
      // An empty entry means the working directory; a broker is not taken from there.
      if (!folder.empty() && folder.front() == '/') tried.push_back(std::string(folder) + "/tugline");
      rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
    }
  }
  for (const auto& candidate : tried)
    if (is_program(candidate)) return absolute(candidate);
  throw Error(ErrorCode::not_found,
              fmt::format("the program `tugline`, which serves as broker, is not in {}, ../bin or PATH",
                          tried.empty() ? std::string("PATH") : folder_of(tried.front())),
              "install it, set TUGLINE_BROKER_BIN to its path, or start the job with `tugline run`");
}

void spawn_broker(SpawnRequest request, std::uint64_t deadline_ns) {
  Recipe recipe;
  recipe.program = find_broker_program();
  recipe.arguments = {"tugline", "broker", "--job-scoped"};
  recipe.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
  if (!request.job.empty()) recipe.arguments.insert(recipe.arguments.end(), {"--job", request.job});
  if (request.place.derived_from_job)
    recipe.environment.push_back("TUGLINE_RUNTIME_DIR=" + absolute(request.place.runtime_directory));
  else
    recipe.arguments.insert(recipe.arguments.end(), {"--socket", absolute(request.place.directory) + "/" +
                                                                     request.place.socket_name});
  // Not as an argument: those can be read by other users.
  if (!request.token_hex.empty()) recipe.environment.push_back("TUGLINE_TOKEN=" + request.token_hex);
  for (const char* name : {"TUGLINE_DEBUG", "TUGLINE_LOG_FILE", "TUGLINE_KERNEL",
                           "TUGLINE_MEMBER_LIMIT_BYTES", "TUGLINE_JOB_LIMIT_BYTES"})
    if (const char* value = std::getenv(name))
      recipe.environment.push_back(fmt::format("{}={}", name, value));
  add_pointers(recipe.arguments, recipe.argv);
  add_pointers(recipe.environment, recipe.envp);

  const auto fail = [&recipe](const char* call, int reason) {
    ErrorContext context{.operation = call, .native_code = reason};
    if (reason == EMFILE || reason == ENFILE)
      throw Error(ErrorCode::out_of_memory, Remedy::fix_call, "no descriptor left to start a broker",
                  "close descriptors, or raise the limit: ulimit -n", std::move(context));
    if (reason == EAGAIN || reason == ENOMEM)
      throw Error(ErrorCode::out_of_memory, "no room for the broker's process",
                  "raise the limit of processes (ulimit -u), or free memory", std::move(context));
    throw Error(ErrorCode::system, fmt::format("cannot start the broker {}", recipe.program),
                "check that it can be executed, or set TUGLINE_BROKER_BIN", std::move(context));
  };
  base::UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) fail("open /dev/null", errno);
  StartChannel channel;
  int report[2];
  int text[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, report) != 0) fail("socketpair", errno);
  channel.report.reset(report[0]);
  base::UniqueFd report_end(report[1]);
  if (::pipe2(text, O_CLOEXEC) != 0) fail("pipe2", errno);
  channel.text.reset(text[0]);
  base::UniqueFd text_end(text[1]);
  recipe.null = null.get();
  recipe.directory = request.locked_directory.get();
  recipe.owner = request.owner.get();
  recipe.report = report_end.get();
  recipe.text = text_end.get();

  const pid_t child = ::fork();
  if (child < 0) fail("fork", errno);
  if (child == 0) leave_session_and_fork(recipe);
  report_end.reset();
  text_end.reset();
  // The child only forks; that it may have been reaped by a SIGCHLD handler of the program is no matter.
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  wait_until_it_serves(channel, recipe.program, request.place.socket_path, deadline_ns);
}

}  // namespace tugline::broker
