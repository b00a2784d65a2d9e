// SPDX-License-Identifier: Apache-2.0
// A user's first program: one rank, one collective, one error.
#include <chrono>
#include <cstdio>
#include <span>
#include <tugline/tugline.hpp>
#include <vector>

int main() {
  auto job = tugline::Job::join();
  auto comm = job.communicator();
  auto stream = job.device().stream();
  std::vector<float> numbers{0, 1, 2, 3};
  comm.all_reduce(std::span(numbers), tugline::ReduceOp::sum, stream);
  stream.sync();
  try {
    (void)job.get("nobody puts this", std::chrono::milliseconds(1));
    std::printf("a value came from nowhere\n");
    return 1;
  } catch (const tugline::Error& error) {
    std::printf("%s\n", error.what());
  }
  std::printf("rank %d of %d: %.0f\n", job.rank(), job.size(), static_cast<double>(numbers[3]));
  return numbers[3] == 3.0F ? 0 : 1;
}
