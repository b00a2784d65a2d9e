// SPDX-License-Identifier: Apache-2.0
#include "broker/broker_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "broker/connect.h"
#include "broker/identity.h"
#include "broker/seqpacket.h"
#include "broker/spawn.h"
#include "tugline/error.h"

namespace tugline::broker {

BrokerProcess::BrokerProcess(const std::string& job, const std::string& socket_path,
                             std::chrono::milliseconds deadline)
    : place_(place_of(socket_path, job)), token_hex_(base::random_hex(core::kTokenBytes)) {
  try {
    start(job, base::running_deadline(deadline));
  } catch (...) {
    remove_if_dead(place_, made_);
    throw;
  }
}

void BrokerProcess::start(const std::string& job, std::uint64_t deadline_ns) {
  auto directory = claim_directory(place_, &made_);
  spawn_broker({place_, job, token_hex_, std::move(directory), own_pidfd()}, deadline_ns);
  const auto found = find_broker(place_, job, token_hex_, WhenAbsent::fail, deadline_ns);
  pid_ = peer_identity(found.socket.get()).pid;
  pidfd_ = pidfd_of(pid_);
  if (!pidfd_)
    throw Error(ErrorCode::broker_lost, fmt::format("the broker at {} ended at once", place_.socket_path),
                fmt::format("run `tugline broker --job {}` by hand to see why", job));
}

BrokerProcess::~BrokerProcess() {
  stop();
}

bool BrokerProcess::running() const noexcept {
  return pidfd_ && !has_ended(pidfd_.get());
}

void BrokerProcess::stop(std::chrono::milliseconds deadline) noexcept {
  if (!pidfd_) return;
  const auto signal = [this](int number) {
    // ESRCH: it has ended already.
    if (::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0) != 0 && errno != ESRCH)
      base::log(base::LogLevel::warn, "cannot signal the broker {}: {}", pid_, std::strerror(errno));
  };
  signal(SIGTERM);
  signal(SIGCONT);  // a stopped process takes SIGTERM only when it goes on
  if (!wait_for(pidfd_.get(), POLLIN, base::running_deadline(deadline))) {
    base::log(base::LogLevel::warn, "the broker {} does not end and is killed", pid_);
    signal(SIGKILL);
  }
  // Only a child subreaper has anything to collect here.
  siginfo_t info;
  constexpr auto kPidfd = static_cast<idtype_t>(3);  // P_PIDFD
  ::waitid(kPidfd, static_cast<id_t>(pidfd_.get()), &info, WEXITED);
  pidfd_.reset();
  // It has done so itself, unless it was killed.
  remove_if_dead(place_, made_);
}

}  // namespace tugline::broker
