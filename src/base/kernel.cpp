// SPDX-License-Identifier: Apache-2.0
#include "base/kernel.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/settings.h"

namespace tugline::base {
namespace {

using Version = std::pair<int, int>;

Version parse(const char* text) {
  Version version{0, 0};
  // A text without two numbers leaves 0.0, which switches every newer feature off.
  if (std::sscanf(text, "%d.%d", &version.first, &version.second) != 2) version = {0, 0};
  return version;
}

Version effective_version() {
  utsname names{};
  Version version = ::uname(&names) == 0 ? parse(names.release) : Version{0, 0};
  if (!settings().kernel.empty()) version = std::min(version, parse(settings().kernel.c_str()));
  return version;
}

}  // namespace

bool kernel_at_least(int major, int minor) {
  static const Version kVersion = effective_version();
  return kVersion >= Version{major, minor};
}

}  // namespace tugline::base
