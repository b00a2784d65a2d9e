// SPDX-License-Identifier: Apache-2.0
#include "bench/call.h"

namespace tugline::cli {
namespace {

void issue_send_recv(Communicator& communicator, const Call& call, Target target) {
  int size = communicator.size();
  int next = (communicator.rank() + 1) % size;
  int before = (communicator.rank() + size - 1) % size;
  Group group;
  communicator.send(call.send, call.count, call.type, next, group);
  communicator.recv(call.recv, call.count, call.type, before, group);
  if (target.has_stream()) {
    group.run(target.stream());
  } else {
    group.run();
  }
}

}  // namespace

void issue(Communicator& communicator, const Call& call, Target target) {
  using core::Collective;
  switch (call.collective) {
    case Collective::barrier:
      return communicator.barrier(target);
    case Collective::all_reduce:
      return communicator.all_reduce(call.send, call.recv, call.count, call.type, call.op, target);
    case Collective::all_gather:
      return communicator.all_gather(call.send, call.recv, call.count, call.type, target);
    case Collective::reduce_scatter:
      return communicator.reduce_scatter(call.send, call.recv, call.count, call.type, call.op, target);
    case Collective::broadcast:
      return communicator.broadcast(call.send, call.recv, call.count, call.type, call.root, target);
    case Collective::reduce:
      return communicator.reduce(call.send, call.recv, call.count, call.type, call.op, call.root, target);
    case Collective::gather:
      return communicator.gather(call.send, call.recv, call.count, call.type, call.root, target);
    case Collective::scatter:
      return communicator.scatter(call.send, call.recv, call.count, call.type, call.root, target);
    case Collective::all_to_all:
      return communicator.all_to_all(call.send, call.recv, call.count, call.type, target);
    case Collective::all_gather_v:
      return communicator.all_gather_v(call.send, call.recv, call.blocks, call.type, target);
    case Collective::reduce_scatter_v:
      return communicator.reduce_scatter_v(call.send, call.recv, call.blocks, call.type, call.op, target);
    case Collective::all_to_all_v:
      return communicator.all_to_all_v(call.send, call.blocks, call.displacements, call.recv, call.blocks,
                                       call.displacements, call.type, target);
    case Collective::send_recv:
      return issue_send_recv(communicator, call, target);
  }
}

}  // namespace tugline::cli
