// SPDX-License-Identifier: Apache-2.0
#include "broker/observer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "broker/connect.h"
#include "broker/identity.h"
#include "broker/place.h"
#include "tugline/error.h"

namespace tugline::broker {

Observer::Observer(const std::string& socket_path, const std::string& job, const std::string& token_hex,
                   std::chrono::milliseconds deadline)
    : deadline_(deadline) {
  const auto place = place_of(socket_path, job);
  auto found = find_broker(place, job, token_hex, WhenAbsent::fail, deadline_ns());
  core::AttachObserver message;
  message.token = token_for(found, place, token_hex);
  message.job = job;
  channel_ = std::make_unique<Channel>(std::move(found.socket), place.socket_path);
  base::UniqueFd control;
  const auto welcome =
      channel_->call<core::Welcome>(message, deadline_ns(), "attach as observer", -1, &control);
  job_ = welcome.job.empty() ? job : welcome.job;
  if (welcome.control_bytes == 0) return;
  if (!control || welcome.control_bytes != sizeof(core::ControlSegment))
    throw Error(ErrorCode::unsupported,
                fmt::format("the broker's control segment has {} bytes, this build's {}",
                            welcome.control_bytes, sizeof(core::ControlSegment)),
                "use the tugline that the job uses");
  base::check_sealed(control.get(), welcome.control_bytes);
  control_ = base::Mapping(control.get(), welcome.control_bytes, base::Access::read_only);
}

std::uint64_t Observer::deadline_ns() const {
  return base::running_deadline(deadline_);
}

JobAccount Observer::look() {
  JobAccount account;
  account.job = job_;
  const auto usage_of = [&](MemberId member) {
    return channel_->call<core::UsageReport>(core::Usage{member}, deadline_ns(), "usage");
  };
  if (control_) {
    const auto& control = *static_cast<const core::ControlSegment*>(control_.data());
    account.world_size = static_cast<int>(control.world_size);
    for (MemberId id = 0; id < core::kMaxMembers; ++id) {
      const auto& slot = control.members[id];
      const auto state = core::state_of(slot);
      if (state != core::MemberState::joining && state != core::MemberState::alive) continue;
      account.members.push_back({id, static_cast<int>(slot.rank.load(std::memory_order_relaxed)), state,
                                 slot.pid.load(std::memory_order_relaxed),
                                 slot.pid_namespace.load(std::memory_order_relaxed), usage_of(id)});
    }
  }
  std::sort(account.members.begin(), account.members.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  account.left = usage_of(core::Usage::kNobody);
  return account;
}

}  // namespace tugline::broker
