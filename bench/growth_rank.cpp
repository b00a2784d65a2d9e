// SPDX-License-Identifier: Apache-2.0
// One rank of scripts/growth: joins, meets the others, and says what that cost it as one line of JSON.
#include <tugline/tugline.hpp>

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

/// CLOCK_MONOTONIC, which is one for all processes.
double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// kB of a row of this process's smaps_rollup.
long row_kb(const std::string& row) {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);)
    if (line.starts_with(row + ":")) return std::atol(line.c_str() + row.size() + 1);
  return -1;
}

/// Time of processors that this process has used: unlike the others it does not depend on who else runs.
double processor_us() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
  };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

long descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return std::distance(begin(entries), end(entries)) - 1;  // the one that looks
}

const char* setting(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set: run scripts/growth");
  return value;
}

/// Median time of an 8-byte all-reduce, over batches, so that the clock costs nothing.
double all_reduce_us(tugline::Communicator& comm) {
  constexpr int kBatches = 15;
  const int batch = comm.size() <= 8 ? 200 : 20;
  double value = 1;
  std::vector<double> times;
  for (int i = 0; i < kBatches; ++i) {
    const auto begin = now_us();
    for (int j = 0; j < batch; ++j) {
      double sum = 0;
      comm.all_reduce(&value, &sum, 1, tugline::DataType::f64, tugline::ReduceOp::sum);
      if (sum != comm.size())
        throw std::runtime_error(fmt::format("the sum is {}, not {}", sum, comm.size()));
    }
    times.push_back((now_us() - begin) / batch);
  }
  std::nth_element(times.begin(), times.begin() + kBatches / 2, times.end());
  return times[kBatches / 2];
}

void run() {
  const double launched_us = std::atof(setting("GROWTH_LAUNCHED_US"));
  const double main_us = now_us();
  const double used_before_us = processor_us();
  auto job = tugline::Job::join();
  const double joined_us = now_us();
  auto comm = job.communicator();
  const double made_us = now_us();
  comm.barrier();
  const double met_us = now_us();
  const double used_us = processor_us() - used_before_us;
  const double reduce_us = all_reduce_us(comm);
  const auto line = fmt::format(
      R"({{"rank":{},"job":"{}","launch_us":{:.0f},"join_us":{:.0f},"communicator_us":{:.0f},"barrier_us":{:.0f},)"
      R"("start_us":{:.0f},"processor_us":{:.0f},"all_reduce_us":{:.3f},"pss_kb":{},"pss_shared_memory_kb":{},"rss_kb":{},"descriptors":{}}})",
      job.rank(), job.name(), main_us - launched_us, joined_us - main_us, made_us - joined_us,
      met_us - made_us, met_us - launched_us, used_us, reduce_us, row_kb("Pss"), row_kb("Pss_Shmem"),
      row_kb("Rss"), descriptors());
  std::printf("%s\n", line.c_str());
  if (std::fflush(stdout) != 0) throw std::runtime_error("standard output cannot be written");
  // Everybody stays until the broker has been looked at.
  if (job.rank() == 0) {
    std::ifstream hold(setting("GROWTH_HOLD"));
    hold.get();
  }
  comm.barrier();
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "growth_rank: %s\n", error.what());
    return 1;
  }
}
