/* SPDX-License-Identifier: Apache-2.0 */
/* A management library of two GPUs for tests: one that tells all, hot and with two NVLinks, one that tells
 * little. */
#include <string.h>

enum { kSuccess = 0, kNotSupported = 3, kNotFound = 6 };
typedef struct {
  unsigned long long total, free, used;
} Memory;
typedef struct {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
} Pci;
static char gpus[2];
static int tells_all(void* gpu) {
  return gpu == (void*)&gpus[0];
}

#ifdef BROKEN
int nvmlInit_v2(void) {
  return 9;
}
#else
int nvmlInit_v2(void) {
  return kSuccess;
}
#endif
int nvmlShutdown(void) {
  return kSuccess;
}
const char* nvmlErrorString(int result) {
  return result == 9 ? "Driver Not Loaded" : "Not Supported";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3; /* the third has fallen off the bus */
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** gpu) {
  if (index > 1) return kNotFound;
  *gpu = &gpus[index];
  return kSuccess;
}
int nvmlDeviceGetUUID(void* gpu, char* text, unsigned bytes) {
  strncpy(text, tells_all(gpu) ? "GPU-0001" : "GPU-0002", bytes);
  return kSuccess;
}
int nvmlDeviceGetName(void* gpu, char* text, unsigned bytes) {
  strncpy(text, tells_all(gpu) ? "Hot" : "Silent", bytes);
  return kSuccess;
}
int nvmlDeviceGetPciInfo_v3(void* gpu, Pci* pci) {
  strcpy(pci->bus_id, tells_all(gpu) ? "00000000:1B:00.0" : "00000000:1C:00.0");
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void* gpu, Memory* memory) {
  if (!tells_all(gpu)) return kNotSupported;
  memory->total = 80;
  memory->free = 50;
  memory->used = 30;
  return kSuccess;
}
static int only_first(void* gpu, unsigned* value, unsigned what) {
  if (!tells_all(gpu)) return kNotSupported;
  *value = what;
  return kSuccess;
}
int nvmlDeviceGetClockInfo(void* gpu, int clock, unsigned* value) {
  return only_first(gpu, value, clock == 1 ? 1200 : 2600);
}
int nvmlDeviceGetMaxClockInfo(void* gpu, int clock, unsigned* value) {
  return only_first(gpu, value, clock == 1 ? 1980 : 2700);
}
int nvmlDeviceGetPowerUsage(void* gpu, unsigned* value) {
  return only_first(gpu, value, 500250);
}
int nvmlDeviceGetEnforcedPowerLimit(void* gpu, unsigned* value) {
  return only_first(gpu, value, 700000);
}
int nvmlDeviceGetTemperature(void* gpu, int sensor, unsigned* value) {
  return only_first(gpu, value, sensor == 0 ? 91 : 0);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* gpu, unsigned long long* reasons) {
  if (!tells_all(gpu)) return kNotSupported;
  *reasons = 0x40 | 0x2;
  return kSuccess;
}
int nvmlDeviceGetNvLinkState(void* gpu, unsigned link, int* active) {
  if (!tells_all(gpu) || link > 1) return kNotSupported;
  *active = link == 0;
  return kSuccess;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* gpu, unsigned link, Pci* pci) {
  if (!tells_all(gpu) || link != 0) return kNotSupported;
  strcpy(pci->bus_id, "00000000:1C:00.0");
  return kSuccess;
}
