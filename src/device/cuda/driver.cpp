// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <optional>

#include "base/fork.h"

namespace tugline::device::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

[[noreturn]] void refuse(std::string what_failed, std::string what_to_do, long native_code = 0) {
  throw Error(ErrorCode::unsupported, std::move(what_failed), std::move(what_to_do),
              {.operation = "start of the CUDA driver", .native_code = native_code});
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::atomic<std::uint32_t> opened_after_forks = 0;

Driver open_driver() {
  opened_after_forks = base::fork_count();
  // Never closed: the driver's threads may run until the process ends.
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    refuse(
        fmt::format("no CUDA driver: {} cannot be opened ({})", kLibrary, reason == nullptr ? "?" : reason),
        "install NVIDIA's driver, give this container access to the GPUs, or use host devices");
  }
  using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  const auto get = reinterpret_cast<GetProcAddress>(::dlsym(library, "cuGetProcAddress_v2"));
  const auto get_version = reinterpret_cast<CUresult (*)(int*)>(::dlsym(library, "cuDriverGetVersion"));
  Driver found;
  if (get_version != nullptr) (void)get_version(&found.version);
  if (get == nullptr || found.version < kOldestDriver) {
    refuse(fmt::format("the CUDA driver is of version {}, at least {} is needed", version_text(found.version),
                       version_text(kOldestDriver)),
           "install a newer NVIDIA driver, or use host devices");
  }
#define TUGLINE_CUDA_FIND(function, since)                                                                \
  if (get(#function, reinterpret_cast<void**>(&found.function), since, CU_GET_PROC_ADDRESS_DEFAULT,       \
          nullptr) != CUDA_SUCCESS ||                                                                     \
      found.function == nullptr)                                                                          \
    refuse(fmt::format("the CUDA driver of version {} lacks {}", version_text(found.version), #function), \
           "install a newer NVIDIA driver, or use host devices");
  TUGLINE_CUDA_FUNCTIONS(TUGLINE_CUDA_FIND)
#undef TUGLINE_CUDA_FIND
  const CUresult started = found.cuInit(0);
  if (started != CUDA_SUCCESS) {
    const char* name = "?";
    (void)found.cuGetErrorName(started, &name);
    refuse(fmt::format("the CUDA driver of version {} does not start: {}", version_text(found.version), name),
           started == CUDA_ERROR_NO_DEVICE ? "make a GPU visible (CUDA_VISIBLE_DEVICES), or use host devices"
                                           : "look at nvidia-smi and the kernel's log, or use host devices",
           started);
  }
  return found;
}

/// What kind of error a result is.
ErrorCode code_of(CUresult result) noexcept {
  switch (result) {
    case CUDA_SUCCESS:
      return ErrorCode::ok;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return ErrorCode::out_of_memory;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_DEVICE:
      return ErrorCode::invalid_argument;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
    case CUDA_ERROR_CAPTURED_EVENT:
    case CUDA_ERROR_ILLEGAL_STATE:
    case CUDA_ERROR_NOT_READY:
      return ErrorCode::invalid_usage;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
      return ErrorCode::unsupported;
    case CUDA_ERROR_NOT_PERMITTED:
      return ErrorCode::permission_denied;
    default:
      return ErrorCode::system;
  }
}

}  // namespace

const Driver& driver() {
  struct Opened {
    Driver driver;
    std::optional<Error> error;
  };
  static const Opened* opened = [] {
    auto* result = new Opened;
    try {
      result->driver = open_driver();
    } catch (const Error& error) {
      result->error = error;
    }
    return result;
  }();
  if (opened->error) throw Error(*opened->error);
  return opened->driver;
}

bool is_forked() noexcept {
  return base::fork_count() != opened_after_forks;
}

void require_not_forked() {
  if (!is_forked()) return;
  throw Error(ErrorCode::invalid_usage, "work with a GPU in a forked child of the process that opened it",
              "start the child as a program of its own (exec, spawn): CUDA does not work across fork()",
              {.operation = "use of a GPU"});
}

std::string text_of(CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  (void)driver().cuGetErrorName(result, &name);
  (void)driver().cuGetErrorString(result, &text);
  return fmt::format("{} ({})",
                     name == nullptr ? fmt::format("CUDA error {}", static_cast<int>(result)) : name,
                     text == nullptr ? "unknown" : text);
}

void check(CUresult result, const char* operation, const std::string& device) {
  if (result == CUDA_SUCCESS) return;
  const ErrorCode code = code_of(result);
  // After these the context is lost, and with it everything that was made in it.
  const bool lost = code == ErrorCode::system;
  throw Error(code, lost ? Remedy::restart : default_remedy(code),
              fmt::format("{}: {}", operation, text_of(result)),
              lost ? "restart the process: work of the device failed, and its context with it; "
                     "compute-sanitizer names the kernel"
                   : "see the name of the error",
              {.operation = operation, .device = device, .native_code = static_cast<long>(result)});
}

}  // namespace tugline::device::cuda
