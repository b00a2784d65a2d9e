// SPDX-License-Identifier: Apache-2.0
#include "self_exec.h"

#include <cblas.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tugline/error.h"

namespace train_fashion {
namespace {

constexpr const char* kCoreType = "OPENBLAS_CORETYPE";
constexpr const char* kThreads = "OPENBLAS_NUM_THREADS";
constexpr const char* kThisProgram = "/proc/self/exe";

[[noreturn]] void fail(const std::string& program) {
  tugline::ErrorContext context;
  context.operation = "start a program";
  context.native_code = errno;
  throw tugline::Error(tugline::ErrorCode::system, fmt::format("cannot start {}", program),
                       "install tugline, or start the ranks by \"tugline run -n N -- train_fashion\"",
                       context);
}

}  // namespace

void choose_blas_kernels(char** argv) {
  if (std::getenv(kCoreType) != nullptr || std::string_view(openblas_get_corename()) != "Prescott") return;
  const char* better = nullptr;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) better = "HASWELL";
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    better = "SKYLAKEX";
  }
  if (better == nullptr) return;
  setenv(kCoreType, better, 1);
  setenv(kThreads, "1", 0);  // spares each rank a pool of threads that it never uses
  execv(kThisProgram, argv);
  fail(kThisProgram);
}

void launch_ranks(int ranks, int argc, char** argv) {
  for (const char* set_by_launcher :
       {"TUGLINE_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (std::getenv(set_by_launcher) != nullptr) return;
  }
  const auto self = std::filesystem::read_symlink(kThisProgram);
  const auto beside = self.parent_path() / "tugline";
  std::vector<std::string> words{std::filesystem::exists(beside) ? beside.string() : "tugline",
                                 "run",
                                 "-n",
                                 std::to_string(ranks),
                                 "--",
                                 self.string()};
  words.insert(words.end(), argv + 1, argv + argc);
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  fail(words[0]);
}

}  // namespace train_fashion
