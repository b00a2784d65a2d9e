// SPDX-License-Identifier: Apache-2.0
#include "device/load.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tugline::device {
namespace {

constexpr const char* kLibrary = "libtugline_cuda.so";

[[noreturn]] void refuse(std::string what_failed, std::string what_to_do) {
  throw Error(ErrorCode::unsupported, std::move(what_failed), std::move(what_to_do),
              {.operation = "loading of the CUDA backend"});
}

std::vector<std::string> places() {
  std::vector<std::string> found;
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&load_cuda), &here) != 0 && here.dli_fname != nullptr) {
    std::error_code ignored;  // a path that cannot be resolved is one where nothing is found
    const auto folder = std::filesystem::canonical(here.dli_fname, ignored).parent_path();
    if (!folder.empty()) {
      found.push_back(folder / kLibrary);
      found.push_back(folder / ".." / "lib" / kLibrary);
    }
  }
  found.emplace_back(kLibrary);
  return found;
}

std::unique_ptr<Backend> open_cuda() {
  std::string tried;
  for (const std::string& place : places()) {
    void* library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* reason = ::dlerror();
      tried += fmt::format("{}{}", tried.empty() ? "" : "; ", reason == nullptr ? place : reason);
      continue;
    }
    const auto entry = reinterpret_cast<BackendEntry>(::dlsym(library, kCudaEntry));
    if (entry == nullptr)
      refuse(fmt::format("{} lacks {}", place, kCudaEntry),
             "install the library of the same version as this one");
    return std::unique_ptr<Backend>(entry(TUGLINE_VERSION));
  }
  refuse(fmt::format("no CUDA backend in this installation: {}", tried),
         "build with TUGLINE_CUDA=ON, or use host devices");
}

}  // namespace

Backend& load_cuda() {
  struct Loaded {
    Backend* backend = nullptr;
    std::optional<Error> error;
  };
  static const Loaded* loaded = [] {
    auto* result = new Loaded;
    try {
      auto backend = open_cuda();
      result->backend = backend.get();
      add_backend(std::move(backend));
    } catch (const Error& error) {
      result->error = error;
    }
    return result;
  }();
  if (loaded->error) throw Error(*loaded->error);
  return *loaded->backend;
}

}  // namespace tugline::device
