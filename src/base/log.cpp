// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/file.h"
#include "base/settings.h"
#include "base/unique_fd.h"

namespace tugline::base {
namespace {

struct LogState {
  std::mutex mutex;
  UniqueFd file;  // none: stderr
  std::string path;
  LogCallback callback;
};

LogState& state() noexcept {
  // Never destroyed: threads may still log while the process ends.
  static auto* instance = new LogState;
  return *instance;
}

constexpr int kNotConfigured = -1;
std::atomic<int> current_level{kNotConfigured};

const std::string& host_name() {
  static const std::string kName = [] {
    char buffer[256] = {};
    if (::gethostname(buffer, sizeof buffer - 1) != 0) return std::string("host");
    return std::string(buffer, std::strcspn(buffer, "."));
  }();
  return kName;
}

/// The limit on the size of files would end the process by a signal at a write beyond it.
bool within_file_limit(int descriptor, std::size_t bytes) noexcept {
  rlimit limit{};
  struct stat info {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) return true;
  return static_cast<rlim_t>(info.st_size) + bytes <= limit.rlim_cur;
}

/// False, with errno, when not all could be written.
bool write_line(int descriptor, std::string_view text) noexcept {
  if (!within_file_limit(descriptor, text.size())) {
    errno = EFBIG;
    return false;
  }
  errno = write_all(descriptor, text);
  return errno == 0;
}

std::string_view label_of(LogLevel level) noexcept {
  constexpr std::string_view kLabels[] = {"ERROR", "WARN", "INFO", "DEBUG", "TRACE"};
  return kLabels[static_cast<std::size_t>(level)];
}

std::string expand(const std::string& pattern) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'h') {
      path += host_name();
    } else if (next == 'p') {
      path += std::to_string(::getpid());
    } else if (next == '%') {
      path += '%';
    } else {
      path += pattern[i];
      continue;
    }
    ++i;
  }
  return path;
}

}  // namespace

std::string_view name_of(LogLevel level) noexcept {
  constexpr std::string_view kNames[] = {"error", "warn", "info", "debug", "trace"};
  const auto index = static_cast<std::size_t>(level);
  return index < std::size(kNames) ? kNames[index] : "?";
}

bool log_enabled(LogLevel level) noexcept {
  int limit = current_level.load(std::memory_order_relaxed);
  if (limit == kNotConfigured) {
    try {
      settings();  // configures the log
    } catch (const std::exception& failure) {
      // The same error reaches whoever needs a setting; logging goes on with what is always right.
      current_level.store(static_cast<int>(LogLevel::warn), std::memory_order_relaxed);
      log_text(LogLevel::error, failure.what());
    }
    limit = current_level.load(std::memory_order_relaxed);
  }
  return static_cast<int>(level) <= limit;
}

void log_text(LogLevel level, std::string_view text) noexcept {
  try {
    auto& log_state = state();
    const std::lock_guard lock(log_state.mutex);
    if (log_state.callback) {
      log_state.callback(level, text);
      return;
    }
    std::string line =
        fmt::format("{}:{}:{} tugline {} ", host_name(), ::getpid(), ::syscall(SYS_gettid), label_of(level));
    for (const char c : text) {
      line += c;
      if (c == '\n') line += "    ";
    }
    line += '\n';
    if (log_state.file && !write_line(log_state.file.get(), line)) {
      // Rather twice than not at all: a part of it may be in the file.
      line =
          fmt::format("{}:{}:{} tugline ERROR log file {} cannot be written: {}; using stderr\n", host_name(),
                      ::getpid(), ::syscall(SYS_gettid), log_state.path, std::strerror(errno)) +
          line;
      log_state.file.reset();
    } else if (log_state.file) {
      return;
    }
    write_line(STDERR_FILENO, line);  // nowhere left to say that it failed
  } catch (const std::exception&) {
    write_line(STDERR_FILENO, "tugline ERROR a log line was lost: out of memory\n");
  }
}

void set_log_callback(LogCallback callback) {
  auto& log_state = state();
  const std::lock_guard lock(log_state.mutex);
  log_state.callback = std::move(callback);
}

void configure_log(LogLevel level, const std::string& file) {
  UniqueFd opened;
  std::string failure;
  std::string path;
  if (!file.empty()) {
    path = expand(file);
    opened = open_to_write(path, O_CREAT | O_APPEND, 0600);
    if (!opened)
      failure =
          fmt::format("log file {} cannot be opened: {}; using stderr", path, why_not_written(path, errno));
  }
  {
    auto& log_state = state();
    const std::lock_guard lock(log_state.mutex);
    log_state.file = std::move(opened);
    log_state.path = std::move(path);
  }
  current_level.store(static_cast<int>(level), std::memory_order_relaxed);
  if (!failure.empty()) log_text(LogLevel::error, failure);
}

}  // namespace tugline::base
