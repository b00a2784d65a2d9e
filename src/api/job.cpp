// SPDX-License-Identifier: Apache-2.0
#include "tugline/job.h"

#include <fmt/format.h>

#include <atomic>

#include "api/job_state.h"
#include "base/settings.h"
#include "comm/state.h"
#include "device/registry.h"

namespace tugline {
namespace {

// Every member of this process takes host devices of its own: blocking calls of a rank-thread run behind its
// device's default stream, and what is on that may wait for peers that are threads of the same process.
int take_device_indices(int count) {
  static std::atomic<int> next{0};
  return next.fetch_add(count);
}

int host_device_count(const JobOptions& options) {
  const int count = options.host_devices.value_or(static_cast<int>(base::settings().host_devices));
  constexpr int kMost = 64;
  if (count < 1 || count > kMost)
    throw Error(ErrorCode::invalid_argument, fmt::format("host_devices {} is outside 1..{}", count, kMost),
                "ask for at least one host device per process");
  return count;
}

}  // namespace

const api::JobState& api::require(const JobState* state, const char* operation) {
  if (state == nullptr)
    throw Error(ErrorCode::invalid_usage, "the Job that is used was moved from",
                "use the Job that it was moved to", {.operation = operation});
  return *state;
}

void api::require_member(const JobState* state, const char* operation) {
  require(state, operation).client->require_member(operation);
}

Job::Job(std::unique_ptr<api::JobState> state) noexcept : state_(std::move(state)) {}
Job::Job(Job&&) noexcept = default;

Job& Job::operator=(Job&& other) noexcept {
  if (this != &other) {
    leave();
    state_ = std::move(other.state_);
  }
  return *this;
}

Job::~Job() {
  leave();
}

Job Job::join(const JobOptions& options) {
  auto state = std::make_unique<api::JobState>();
  base::IdentityRequest who;
  who.rank = options.rank;
  who.size = options.size;
  who.job = options.job;
  state->identity = base::identity(who);
  const int devices = host_device_count(options);

  const auto& settings = base::settings();
  broker::JoinRequest request;
  request.job = state->identity.job;
  request.rank = state->identity.rank;
  request.size = state->identity.size;
  request.socket_path = options.socket_path.value_or(settings.socket_path);
  request.token = options.token.value_or(settings.token);
  request.deadline = options.deadline;
  request.spawn_broker = options.socket_path.has_value() || settings.spawn_broker;
  state->client = broker::Client::join(request);
  state->memory = memory::MemberMemory::of(state->client);

  const int first = take_device_indices(devices);
  for (int i = 0; i < devices; ++i) state->devices.push_back(&device::host_device(first + i));
  return Job(std::move(state));
}

int Job::rank() const {
  return api::require(state_.get(), "rank()").identity.rank;
}
int Job::size() const {
  return api::require(state_.get(), "size()").identity.size;
}
const std::string& Job::name() const {
  return api::require(state_.get(), "name()").client->job();
}
int Job::device_count() const {
  return static_cast<int>(api::require(state_.get(), "device_count()").devices.size());
}

Device& Job::device(int index) {
  if (index < 0 || index >= device_count())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("device {} is outside 0..{}", index, device_count() - 1),
                "raise JobOptions::host_devices or TUGLINE_HOST_DEVICES, or name a smaller index");
  return *state_->devices[static_cast<std::size_t>(index)];
}

Communicator Job::communicator() {
  api::require_member(state_.get(), "communicator()");
  std::lock_guard lock(state_->mutex);
  if (!state_->world) {
    comm::CommunicatorState::Identity identity;
    identity.name = "world";
    identity.rank = static_cast<std::uint32_t>(rank());
    identity.size = static_cast<std::uint32_t>(size());
    state_->world.emplace(comm::CommunicatorState::create(state_->client, device(), std::move(identity)));
  }
  return *state_->world;
}

void Job::put(std::string_view key, std::string_view value) {
  api::require_member(state_.get(), "put()");
  state_->client->put(key, value);
}

std::string Job::get(std::string_view key, std::chrono::milliseconds deadline) {
  api::require_member(state_.get(), "get()");
  return state_->client->get(key, deadline);
}

void Job::leave() noexcept {
  // A forked child is no member; a thread that is not there may hold the lock.
  if (!state_ || state_->client->standing() == broker::Standing::forked) return;
  {
    std::lock_guard lock(state_->mutex);
    state_->world.reset();
  }
  state_->client->leave();
}

}  // namespace tugline
