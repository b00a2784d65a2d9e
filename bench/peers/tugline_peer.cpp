// SPDX-License-Identifier: Apache-2.0
// tugline in the timing loop that its rivals run, through the public interface with default settings.
// Usage: tugline run -n N -- tugline_peer private|library blocking|stream BUDGET_MS LIMIT_S CORES CASES...
#include <optional>

#include "peers/timing_loop.h"
#include "tugline/tugline.hpp"

namespace {

using peers::Collective;

class Tugline {
 public:
  Tugline(bool library_buffers, bool on_stream)
      : job_(tugline::Job::join()), world_(job_.communicator()), library_buffers_(library_buffers) {
    if (on_stream) stream_.emplace(job_.device().stream());
  }

  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  void barrier() { world_.barrier(); }
  void max(std::vector<std::uint64_t>& values) { world_.all_reduce(values, tugline::ReduceOp::max); }

  peers::Places prepare(const peers::Shape& shape) {
    shape_ = shape;
    // Broadcast works in place, as MPI's does.
    std::size_t input = shape.collective == Collective::broadcast ? 0 : shape.send_count;
    if (library_buffers_ && shape.recv_count > 0) {
      shared_output_.emplace(job_.allocate<float>(shape.recv_count));
      places_.output = shared_output_->data();
      if (input > 0) {
        shared_input_.emplace(job_.allocate<float>(input));
        places_.input = shared_input_->data();
      }
    } else {
      places_ = private_.make(input, shape.recv_count);
    }
    if (input == 0) places_.input = places_.output;
    return places_;
  }

  void operate() {
    if (shape_.collective == Collective::send_recv) return send_recv();
    call(stream_ ? tugline::Target(*stream_) : tugline::Target());
    if (stream_) stream_->sync();
  }

 private:
  void call(tugline::Target target) {
    constexpr auto kType = tugline::DataType::f32;
    constexpr auto kSum = tugline::ReduceOp::sum;
    switch (shape_.collective) {
      case Collective::barrier:
        return world_.barrier(target);
      case Collective::all_reduce:
        return world_.all_reduce(places_.input, places_.output, shape_.count, kType, kSum, target);
      case Collective::all_gather:
        return world_.all_gather(places_.input, places_.output, shape_.count, kType, target);
      case Collective::reduce_scatter:
        return world_.reduce_scatter(places_.input, places_.output, shape_.count, kType, kSum, target);
      case Collective::broadcast:
        return world_.broadcast(places_.input, places_.output, shape_.count, kType, 0, target);
      case Collective::all_to_all:
        return world_.all_to_all(places_.input, places_.output, shape_.count, kType, target);
      case Collective::send_recv:
        return;  // a group of two calls
    }
  }

  void send_recv() {
    tugline::Group group;
    int next = (rank() + 1) % size();
    int before = (rank() + size() - 1) % size();
    world_.send(places_.input, shape_.count, tugline::DataType::f32, next, group);
    world_.recv(places_.output, shape_.count, tugline::DataType::f32, before, group);
    if (!stream_) return group.run();
    group.run(*stream_);
    stream_->sync();
  }

  tugline::Job job_;
  tugline::Communicator world_;
  bool library_buffers_;
  std::optional<tugline::Stream> stream_;
  std::optional<tugline::Buffer<float>> shared_input_;
  std::optional<tugline::Buffer<float>> shared_output_;
  peers::PrivateBuffers private_;
  peers::Shape shape_;
  peers::Places places_;
};

}  // namespace

int main(int argc, char** argv) try {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2) peers::fail("too few arguments", "the command line", "name buffers and call");
  auto order = peers::order_of({words.begin() + 2, words.end()});
  peers::begin(order, peers::rank_from("TUGLINE_RANK"));
  Tugline tugline(words[0] == "library", words[1] == "stream");
  peers::run(tugline, order, TUGLINE_VERSION);
} catch (const std::exception& error) {
  std::fprintf(stderr, "tugline_peer: %s\n", error.what());
  return 1;
}
