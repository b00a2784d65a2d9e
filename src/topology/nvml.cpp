// SPDX-License-Identifier: Apache-2.0
#include "topology/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <memory>
#include <utility>

#include "tugline/error.h"

namespace tugline::topology {
namespace {

using Gpu = void*;
constexpr int kSuccess = 0;

// Layouts of the library's ABI (its API reference): numbers are unsigned, texts end with 0.
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
enum Clock : int { kSmClock = 1, kMemoryClock = 2 };
constexpr int kTemperatureOfGpu = 0;
constexpr unsigned kMostLinks = 18;

struct Reason {
  unsigned long long bit;
  const char* text;
  bool fault;
};
constexpr std::array kReasons = {
    Reason{0x1, "idle", false},
    Reason{0x2, "clocks set by an application", false},
    Reason{0x4, "the power limit", true},
    Reason{0x8, "a slow-down of the hardware", true},
    Reason{0x10, "a sync boost group", false},
    Reason{0x20, "heat (software slow-down)", true},
    Reason{0x40, "heat (hardware slow-down)", true},
    Reason{0x80, "an external power brake", true},
    Reason{0x100, "clocks set for a display", false},
};

[[noreturn]] void refuse(std::string what_failed) {
  throw Error(ErrorCode::unsupported, std::move(what_failed),
              "install NVIDIA's driver with its management library, or do without the GPUs' state",
              {.operation = "reading of the GPUs' state"});
}

struct Closer {
  void operator()(void* library) const noexcept { ::dlclose(library); }
};

class Nvml {
 public:
  explicit Nvml(const char* name) : library_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      const char* reason = ::dlerror();
      refuse(fmt::format("{} cannot be opened ({})", name, reason == nullptr ? "?" : reason));
    }
    find(start_, "nvmlInit_v2");
    find(end, "nvmlShutdown");
    find(error_text, "nvmlErrorString");
    find(count, "nvmlDeviceGetCount_v2");
    find(by_index, "nvmlDeviceGetHandleByIndex_v2");
    find(uuid, "nvmlDeviceGetUUID");
    find(name_of_gpu, "nvmlDeviceGetName");
    find(pci, "nvmlDeviceGetPciInfo_v3");
    find(memory, "nvmlDeviceGetMemoryInfo");
    find(clock, "nvmlDeviceGetClockInfo");
    find(clock_limit, "nvmlDeviceGetMaxClockInfo");
    find(power, "nvmlDeviceGetPowerUsage");
    find(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    find(temperature, "nvmlDeviceGetTemperature");
    find(slowed_by, "nvmlDeviceGetCurrentClocksThrottleReasons");
    find(link_state, "nvmlDeviceGetNvLinkState");
    find(link_peer, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    if (const int result = start_(); result != kSuccess)
      refuse(fmt::format("{} does not start: {}", name, error_text(result)));
  }
  ~Nvml() { (void)end(); }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

 private:
  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library_.get(), name));
    if (function == nullptr) refuse(fmt::format("the management library lacks {}", name));
  }

  std::unique_ptr<void, Closer> library_;
  int (*start_)() = nullptr;

 public:
  int (*end)() = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Gpu*) = nullptr;
  int (*uuid)(Gpu, char*, unsigned) = nullptr;
  int (*name_of_gpu)(Gpu, char*, unsigned) = nullptr;
  int (*pci)(Gpu, PciInfo*) = nullptr;
  int (*memory)(Gpu, MemoryInfo*) = nullptr;
  int (*clock)(Gpu, int, unsigned*) = nullptr;
  int (*clock_limit)(Gpu, int, unsigned*) = nullptr;
  int (*power)(Gpu, unsigned*) = nullptr;
  int (*power_limit)(Gpu, unsigned*) = nullptr;
  int (*temperature)(Gpu, int, unsigned*) = nullptr;
  int (*slowed_by)(Gpu, unsigned long long*) = nullptr;
  int (*link_state)(Gpu, unsigned, int*) = nullptr;
  int (*link_peer)(Gpu, unsigned, PciInfo*) = nullptr;
};

template <class Ask>
std::optional<unsigned> number(Ask ask) {
  unsigned value = 0;
  return ask(&value) == kSuccess ? std::optional(value) : std::nullopt;
}

std::optional<double> thousandth(std::optional<unsigned> value) {
  return value ? std::optional(*value / 1000.0) : std::nullopt;
}

std::vector<NvLink> links_of(const Nvml& nvml, Gpu gpu) {
  std::vector<NvLink> links;
  for (unsigned i = 0; i < kMostLinks; ++i) {
    int active = 0;
    if (nvml.link_state(gpu, i, &active) != kSuccess) continue;  // not there
    NvLink link{.active = active != 0, .peer_bus_id = {}};
    PciInfo peer{};
    if (link.active && nvml.link_peer(gpu, i, &peer) == kSuccess) link.peer_bus_id = peer.bus_id;
    links.push_back(std::move(link));
  }
  return links;
}

GpuState state_of(const Nvml& nvml, Gpu gpu) {
  GpuState state;
  char text[96] = {};
  if (const int result = nvml.uuid(gpu, text, sizeof(text)); result != kSuccess)
    refuse(fmt::format("a GPU does not tell its UUID: {}", nvml.error_text(result)));
  state.uuid = text;
  if (nvml.name_of_gpu(gpu, text, sizeof(text)) == kSuccess) state.name = text;
  if (PciInfo place{}; nvml.pci(gpu, &place) == kSuccess) state.bus_id = place.bus_id;
  if (MemoryInfo memory{}; nvml.memory(gpu, &memory) == kSuccess) {
    state.memory_total_bytes = memory.total;
    state.memory_used_bytes = memory.used;
  }
  state.sm_clock_mhz = number([&](unsigned* value) { return nvml.clock(gpu, kSmClock, value); });
  state.sm_clock_limit_mhz = number([&](unsigned* value) { return nvml.clock_limit(gpu, kSmClock, value); });
  state.memory_clock_mhz = number([&](unsigned* value) { return nvml.clock(gpu, kMemoryClock, value); });
  state.power_watts = thousandth(number([&](unsigned* value) { return nvml.power(gpu, value); }));
  state.power_limit_watts = thousandth(number([&](unsigned* value) { return nvml.power_limit(gpu, value); }));
  state.temperature_celsius =
      number([&](unsigned* value) { return nvml.temperature(gpu, kTemperatureOfGpu, value); });
  unsigned long long reasons = 0;
  if (nvml.slowed_by(gpu, &reasons) == kSuccess) {
    for (const Reason& reason : kReasons) {
      if ((reasons & reason.bit) == 0) continue;
      state.slowed_by.emplace_back(reason.text);
      state.is_slowed_by_fault = state.is_slowed_by_fault || reason.fault;
    }
  }
  state.links = links_of(nvml, gpu);
  return state;
}

}  // namespace

std::vector<GpuState> read_gpu_states(const char* library) {
  const Nvml nvml(library);
  unsigned count = 0;
  if (const int result = nvml.count(&count); result != kSuccess)
    refuse(fmt::format("the GPUs cannot be counted: {}", nvml.error_text(result)));
  std::vector<GpuState> states;
  for (unsigned i = 0; i < count; ++i) {
    Gpu gpu = nullptr;
    // One that has fallen off the bus, or that this user may not see.
    if (nvml.by_index(i, &gpu) == kSuccess) states.push_back(state_of(nvml, gpu));
  }
  return states;
}

}  // namespace tugline::topology
