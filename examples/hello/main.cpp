// SPDX-License-Identifier: Apache-2.0
// The README's program: a sum over all ranks, and an agreement that it was right everywhere.
#include <tugline/tugline.hpp>

#include <cstdio>

int main() {
  try {
    auto job = tugline::Job::join();
    auto comm = job.communicator();
    float sum = static_cast<float>(comm.rank());
    comm.all_reduce(&sum, &sum, 1, tugline::DataType::f32, tugline::ReduceOp::sum);
    auto outcome = comm.agree();
    std::printf("rank %d of %d: sum %g, %s\n", comm.rank(), comm.size(), static_cast<double>(sum),
                outcome.committed() ? "committed" : "aborted");
    if (std::fflush(stdout) != 0) {
      std::perror("hello: cannot write standard output");
      return 1;
    }
  } catch (const tugline::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
