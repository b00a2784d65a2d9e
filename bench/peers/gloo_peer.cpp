// SPDX-License-Identifier: Apache-2.0
// Gloo over its TCP transport on the loopback interface, in the timing loop of bench/peers/timing_loop.h.
// Usage: gloo_peer RANKS FOLDER BUDGET_MS LIMIT_S CORES CASES...; FOLDER is empty, its ranks meet there. It
// forks them, for Gloo has no launcher.
//
// Options and buffers of a call are made once per case, as Gloo's own benchmark does. Reduce-scatter is an
// all-reduce of which a rank keeps its block: ReduceScatterHalvingDoubling, which is all that Gloo has,
// returns while its input is still being sent and then writes its result there, so that another rank's result
// is wrong from some MiB up.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <functional>

#include "peers/timing_loop.h"

namespace {

using peers::Collective;

class Gloo {
 public:
  Gloo(int rank, int size, const std::string& folder) {
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    gloo::transport::tcp::attr address;
    address.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(address);
    gloo::rendezvous::FileStore store(folder);
    context->connectFullMesh(store, device);
    context_ = context;
    barrier_.emplace_back(context_);
  }

  int rank() const { return context_->rank; }
  int size() const { return context_->size; }
  void barrier() { gloo::barrier(barrier_.front()); }
  void max(std::vector<std::uint64_t>& values) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(values.data(), values.size());
    options.setReduceFunction(function(&gloo::max<std::uint64_t>));
    gloo::allreduce(options);
  }

  peers::Places prepare(const peers::Shape& shape) {
    operation_ = nullptr;  // holds buffers of the case before
    bool in_place = shape.collective == Collective::broadcast;
    auto places = buffers_.make(in_place ? 0 : shape.send_count, shape.recv_count);
    if (in_place) places.input = places.output;
    operation_ = operation(shape, places);
    return places;
  }

  void operate() { operation_(); }

 private:
  using Reduction = void (*)(void*, const void*, const void*, std::size_t);
  static gloo::AllreduceOptions::Func function(Reduction reduction) { return {reduction}; }

  std::function<void()> operation(const peers::Shape& shape, const peers::Places& places) {
    switch (shape.collective) {
      case Collective::barrier:
        return [this] { barrier(); };
      case Collective::all_reduce:
        return all_reduce(places.input, places.output, shape.count);
      case Collective::all_gather: {
        auto options = std::make_shared<gloo::AllgatherOptions>(context_);
        options->setInput(places.input, shape.send_count);
        options->setOutput(places.output, shape.recv_count);
        return [options] { gloo::allgather(*options); };
      }
      case Collective::reduce_scatter:
        return reduce_scatter(shape, places);
      case Collective::broadcast: {
        auto options = std::make_shared<gloo::BroadcastOptions>(context_);
        options->setOutput(places.output, shape.count);
        options->setRoot(0);
        return [options] { gloo::broadcast(*options); };
      }
      case Collective::all_to_all: {
        auto options = std::make_shared<gloo::AlltoallOptions>(context_);
        options->setInput(places.input, shape.send_count);
        options->setOutput(places.output, shape.recv_count);
        return [options] { gloo::alltoall(*options); };
      }
      case Collective::send_recv:
        return send_recv(shape, places);
    }
    return nullptr;
  }

  std::function<void()> all_reduce(float* input, float* output, std::size_t count) {
    auto options = std::make_shared<gloo::AllreduceOptions>(context_);
    options->setInput(input, count);
    options->setOutput(output, count);
    options->setReduceFunction(function(&gloo::sum<float>));
    return [options] { gloo::allreduce(*options); };
  }

  std::function<void()> reduce_scatter(const peers::Shape& shape, const peers::Places& places) {
    auto sums = std::make_shared<std::vector<float>>(shape.send_count);
    auto reduce = all_reduce(places.input, sums->data(), shape.send_count);
    auto own = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rank()) * shape.count);
    return [=] {
      reduce();
      std::copy_n(sums->begin() + own, shape.count, places.output);
    };
  }

  std::function<void()> send_recv(const peers::Shape& shape, const peers::Places& places) {
    std::shared_ptr input = context_->createUnboundBuffer(places.input, shape.count * sizeof(float));
    std::shared_ptr output = context_->createUnboundBuffer(places.output, shape.count * sizeof(float));
    int next = (rank() + 1) % size();
    int before = (rank() + size() - 1) % size();
    constexpr std::uint64_t kSlot = 0x5045;  // collectives have their own prefix in the upper byte
    return [=] {
      output->recv(before, kSlot);
      input->send(next, kSlot);
      input->waitSend();
      output->waitRecv();
    };
  }

  std::shared_ptr<gloo::Context> context_;
  std::vector<gloo::BarrierOptions> barrier_;  // one; it needs the context
  peers::PrivateBuffers buffers_;
  std::function<void()> operation_;  // after the buffers it uses
};

int be_rank(int rank, int size, const std::string& folder, const peers::Order& order) try {
  peers::begin(order, rank);
  Gloo gloo(rank, size, folder);
  peers::run(gloo, order,
             std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." +
                 std::to_string(GLOO_VERSION_PATCH));
  gloo.barrier();  // nobody closes connections that others still read
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gloo_peer: %s\n", error.what());
  return 1;
}

/// Forks the ranks, waits for all and ends the others when one fails.
int launch(int size, const std::string& folder, const peers::Order& order) {
  std::vector<pid_t> ranks;
  pid_t parent = getpid();
  for (int rank = 0; rank < size; ++rank) {
    pid_t pid = fork();
    if (pid < 0)
      peers::fail(std::string("fork: ") + std::strerror(errno), "gloo_peer", "allow more processes");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) std::_Exit(1);
      int code = be_rank(rank, size, folder, order);
      std::fflush(stdout);
      std::_Exit(code);
    }
    ranks.push_back(pid);
  }
  int code = 0;
  for (int ended = 0; ended < size; ++ended) {
    int status = 0;
    pid_t pid = wait(&status);
    auto rank = std::find(ranks.begin(), ranks.end(), pid) - ranks.begin();
    ranks[static_cast<std::size_t>(rank)] = -1;
    if (status == 0) continue;
    if (code == 0 && WIFSIGNALED(status))
      std::fprintf(stderr, "gloo_peer: rank %td was ended by signal %d (%s)\n", rank, WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
    code = 1;
    for (pid_t other : ranks)
      if (other > 0) kill(other, SIGKILL);
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2)
    peers::fail("too few arguments", "the command line", "give the number of ranks and a folder");
  auto order = peers::order_of({words.begin() + 2, words.end()});
  return launch(std::atoi(words[0].c_str()), words[1], order);
} catch (const std::exception& error) {
  std::fprintf(stderr, "gloo_peer: %s\n", error.what());
  return 1;
}
