// SPDX-License-Identifier: Apache-2.0
// The public Communicator and Group: they pack arguments and forward.
#include "tugline/communicator.h"

#include <utility>
#include <vector>

#include "comm/group.h"
#include "comm/state.h"
#include "tugline/error.h"

namespace tugline {
namespace {

comm::Call make_call(core::Collective collective, const void* send, void* recv, std::size_t count,
                     DataType type, Reduction op = ReduceOp::sum, int root = 0) {
  comm::Call call;
  call.collective = collective;
  call.send = send;
  call.recv = recv;
  call.count = count;
  call.type = type;
  call.op = op.op();
  if (op.is_pre_multiplied()) call.factor = op;
  call.root = root;
  return call;
}

std::vector<std::size_t> to_vector(std::span<const std::size_t> values) {
  return {values.begin(), values.end()};
}

comm::Call make_call(core::Collective collective, const void* send, void* recv, comm::Counts counts,
                     DataType type, Reduction op = ReduceOp::sum) {
  std::size_t sum = 0;
  for (const std::size_t count : counts.send) sum += count;
  for (const std::size_t count : counts.recv) sum += count;
  auto call = make_call(collective, send, recv, sum, type, op);
  call.counts = std::make_shared<const comm::Counts>(std::move(counts));
  return call;
}

}  // namespace

comm::CommunicatorState& Communicator::state() const {
  if (state_ == nullptr)
    throw Error(ErrorCode::invalid_usage,
                "the Communicator that is used is empty: moved from, or of a split() with a negative color",
                "ask valid() before, or use the one that it was moved to");
  return *state_;
}

int Communicator::rank() const {
  return state().rank();
}
int Communicator::size() const {
  return state().size();
}
std::uint64_t Communicator::epoch() const {
  return state().generation();
}
const std::string& Communicator::name() const {
  return state().name();
}

void Communicator::all_reduce(const void* send, void* recv, std::size_t count, DataType type, Reduction op,
                              Target target) {
  state().submit(make_call(core::Collective::all_reduce, send, recv, count, type, op), target);
}

void Communicator::all_gather(const void* send, void* recv, std::size_t count, DataType type, Target target) {
  state().submit(make_call(core::Collective::all_gather, send, recv, count, type), target);
}

void Communicator::reduce_scatter(const void* send, void* recv, std::size_t count, DataType type,
                                  Reduction op, Target target) {
  state().submit(make_call(core::Collective::reduce_scatter, send, recv, count, type, op), target);
}

void Communicator::broadcast(const void* send, void* recv, std::size_t count, DataType type, int root,
                             Target target) {
  state().submit(make_call(core::Collective::broadcast, send, recv, count, type, ReduceOp::sum, root),
                 target);
}

void Communicator::reduce(const void* send, void* recv, std::size_t count, DataType type, Reduction op,
                          int root, Target target) {
  state().submit(make_call(core::Collective::reduce, send, recv, count, type, op, root), target);
}

void Communicator::gather(const void* send, void* recv, std::size_t count, DataType type, int root,
                          Target target) {
  state().submit(make_call(core::Collective::gather, send, recv, count, type, ReduceOp::sum, root), target);
}

void Communicator::scatter(const void* send, void* recv, std::size_t count, DataType type, int root,
                           Target target) {
  state().submit(make_call(core::Collective::scatter, send, recv, count, type, ReduceOp::sum, root), target);
}

void Communicator::all_to_all(const void* send, void* recv, std::size_t count, DataType type, Target target) {
  state().submit(make_call(core::Collective::all_to_all, send, recv, count, type), target);
}

void Communicator::all_gather_v(const void* send, void* recv, std::span<const std::size_t> counts,
                                DataType type, Target target) {
  state().submit(make_call(core::Collective::all_gather_v, send, recv, {.send = to_vector(counts)}, type),
                 target);
}

void Communicator::reduce_scatter_v(const void* send, void* recv, std::span<const std::size_t> counts,
                                    DataType type, Reduction op, Target target) {
  state().submit(
      make_call(core::Collective::reduce_scatter_v, send, recv, {.send = to_vector(counts)}, type, op),
      target);
}

void Communicator::all_to_all_v(const void* send, std::span<const std::size_t> send_counts,
                                std::span<const std::size_t> send_displacements, void* recv,
                                std::span<const std::size_t> recv_counts,
                                std::span<const std::size_t> recv_displacements, DataType type,
                                Target target) {
  comm::Counts counts{to_vector(send_counts), to_vector(send_displacements), to_vector(recv_counts),
                      to_vector(recv_displacements)};
  state().submit(make_call(core::Collective::all_to_all_v, send, recv, std::move(counts), type), target);
}

void Communicator::send(const void* buffer, std::size_t count, DataType type, int peer, Target target) {
  auto call = make_call(core::Collective::send_recv, buffer, nullptr, count, type, ReduceOp::sum, peer);
  call.direction = comm::Call::Direction::send;
  state().submit(std::move(call), target);
}

void Communicator::recv(void* buffer, std::size_t count, DataType type, int peer, Target target) {
  auto call = make_call(core::Collective::send_recv, nullptr, buffer, count, type, ReduceOp::sum, peer);
  call.direction = comm::Call::Direction::receive;
  state().submit(std::move(call), target);
}

void Communicator::barrier(Target target) {
  state().submit(make_call(core::Collective::barrier, nullptr, nullptr, 0, DataType::u8), target);
}

Outcome Communicator::agree() {
  return state().agree();
}

Outcome Communicator::agree(StreamRef stream) {
  // The stream's earlier errors of this communicator are what the agreement settles; any other error is the
  // caller's.
  try {
    stream.sync();
  } catch (const Error& error) {
    if (state().status().ok()) throw;
    (void)error;
  }
  return state().agree();
}

Communicator Communicator::split(int color, int key) {
  return Communicator(state().split(color, key));
}
void Communicator::abort(std::string_view reason) {
  state().abort(reason);
}
Status Communicator::status() const {
  return state().status();
}
void Communicator::check() const {
  state().check();
}

Group::Group() : state_(std::make_unique<comm::GroupState>()) {}
Group::~Group() = default;
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
comm::GroupState& Group::state() const {
  if (state_ == nullptr)
    throw Error(ErrorCode::invalid_usage, "the Group that is used was moved from",
                "use the Group that it was moved to");
  return *state_;
}
std::size_t Group::size() const {
  return state().calls.size();
}

void Group::run() {
  auto& calls = state().calls;
  for (const auto& entry : calls) entry.communicator->drain_requests();
  struct Emptying {
    decltype(calls) all;
    ~Emptying() { all.clear(); }
  } const emptying{calls};
  comm::run_group(calls);
}

void Group::run(Request& request) {
  auto calls = state().take();
  if (calls.empty()) return;
  const auto communicator = calls.front().communicator;
  for (auto& entry : calls) {
    if (entry.communicator != communicator)
      throw Error(ErrorCode::invalid_usage,
                  "a group that runs as a request has calls of several communicators",
                  "make a group and a request for each communicator, or run the group on a stream");
    // The request keeps it; a reference in the task could be the last one, dropped on its own stream.
    entry.communicator =
        std::shared_ptr<comm::CommunicatorState>(std::shared_ptr<void>(), communicator.get());
  }
  communicator->begin_request(request, [calls = std::move(calls)] { comm::run_group(calls); });
}

void Group::run(StreamRef stream) {
  for (const auto& entry : state().calls) entry.communicator->hold_back(stream);
  stream.launch([calls = state().take()]() -> Status {
    comm::run_group(calls);
    return {};
  });
}

}  // namespace tugline
