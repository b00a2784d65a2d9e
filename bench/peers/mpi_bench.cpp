// SPDX-License-Identifier: Apache-2.0
// The peer of `tugline bench`: MPI_Barrier and MPI_Allreduce (float, sum) in the same timing loop.
//   - The input is rewritten before every operation: outside the timed part behind a barrier, or, for up to
//   64
//     bytes, inside it, 100 operations to a time stamp, by the same short copy.
//   - One verified operation comes first.
//   - A time stamp counts for its slowest rank; printed is the median over time stamps.
// Usage: mpi_bench barrier|all_reduce BYTES ROUNDS WARMUP CORES...
// Rank r runs on the r-th of CORES, round robin, as `tugline bench --bind core` does it.
// Prints: version of the library, median and mean in microseconds, number of wrong elements.
#include <mpi.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kShortBytes = 64;

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

/// Must come before MPI_Init, which looks at the binding; the launcher says which rank this is.
void bind_to_core(const std::vector<int>& cores) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr || cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cores[static_cast<std::size_t>(std::atoi(rank)) % cores.size()]), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) std::perror("mpi_bench: sched_setaffinity");
}

class Bench {
 public:
  Bench(bool barrier, std::size_t bytes)
      : barrier_(barrier), input_(bytes / sizeof(float)), output_(input_.size()) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    for (std::size_t i = 0; i < short_inputs_.size(); ++i)
      std::fill(short_inputs_[i].begin(), short_inputs_[i].end(), static_cast<float>(1 + i % 3));
  }

  long check() {
    if (barrier_) return 0;
    for (std::size_t i = 0; i < input_.size(); ++i) input_[i] = static_cast<float>((i * 7 + rank_) % 101);
    operate();
    long wrong = 0;
    for (std::size_t i = 0; i < output_.size(); ++i) {
      float expected = 0;
      for (int r = 0; r < size_; ++r)
        expected += static_cast<float>((i * 7 + static_cast<std::size_t>(r)) % 101);
      wrong += output_[i] != expected;
    }
    long all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
  }

  std::vector<std::uint64_t> time(int rounds, int warmup, int batch) {
    std::vector<std::uint64_t> stamps;
    std::uint64_t written = 0;
    for (int round = 0; round < warmup + rounds; ++round) {
      rewrite(++written);
      MPI_Barrier(MPI_COMM_WORLD);
      std::uint64_t start = monotonic_ns();
      operate();
      for (int i = 1; i < batch; ++i) {
        rewrite(++written);
        operate();
      }
      std::uint64_t end = monotonic_ns();
      if (round >= warmup) stamps.push_back(end - start);
    }
    std::vector<std::uint64_t> slowest(stamps.size());
    MPI_Allreduce(stamps.data(), slowest.data(), static_cast<int>(stamps.size()), MPI_UINT64_T, MPI_MAX,
                  MPI_COMM_WORLD);
    return slowest;
  }

  int rank() const { return rank_; }

 private:
  void operate() {
    if (barrier_) {
      MPI_Barrier(MPI_COMM_WORLD);
    } else {
      MPI_Allreduce(input_.data(), output_.data(), static_cast<int>(input_.size()), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    }
  }

  void rewrite(std::uint64_t round) {
    std::size_t bytes = input_.size() * sizeof(float);
    if (bytes <= kShortBytes) {
      std::memcpy(input_.data(), short_inputs_[round % short_inputs_.size()].data(), bytes);
    } else {
      std::fill(input_.begin(), input_.end(), static_cast<float>(1 + round % 3));
    }
  }

  bool barrier_;
  std::vector<float> input_;
  std::vector<float> output_;
  std::array<std::array<float, kShortBytes / sizeof(float)>, 4> short_inputs_{};
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: mpi_bench barrier|all_reduce BYTES ROUNDS WARMUP CORES...\n");
    return 2;
  }
  std::vector<int> cores;
  for (int i = 5; i < argc; ++i) cores.push_back(std::atoi(argv[i]));
  bind_to_core(cores);
  MPI_Init(&argc, &argv);
  auto bytes = static_cast<std::size_t>(std::strtoull(argv[2], nullptr, 10));
  int batch = bytes <= kShortBytes ? 100 : 1;
  Bench bench(std::string(argv[1]) == "barrier", bytes);
  long wrong = bench.check();
  auto stamps = bench.time(std::atoi(argv[3]), std::atoi(argv[4]), batch);
  std::sort(stamps.begin(), stamps.end());
  double sum = 0;
  for (auto stamp : stamps) sum += static_cast<double>(stamp);
  auto middle = static_cast<std::size_t>(0.5 * static_cast<double>(stamps.size() - 1) + 0.5);
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  if (char* comma = std::strchr(version, ',')) *comma = '\0';
  if (bench.rank() == 0) {
    std::printf("%s; %.4f %.4f %ld\n", version, static_cast<double>(stamps[middle]) * 1e-3 / batch,
                sum * 1e-3 / batch / static_cast<double>(stamps.size()), wrong);
  }
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
