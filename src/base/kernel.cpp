// SPDX-License-Identifier: Apache-2.0
#include "base/kernel.h"

#include <sys/utsname.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "base/settings.h"

namespace tugline::base {
namespace {

using Version = std::pair<int, int>;

Version parse(std::string_view text) noexcept {
  Version version{0, 0};
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.first);
  if (major.ec != std::errc{} || major.ptr == end || *major.ptr != '.') return {0, 0};
  const auto minor = std::from_chars(major.ptr + 1, end, version.second);
  return minor.ec == std::errc{} ? version : Version{0, 0};
}

std::string running_release() {
  utsname names{};
  return ::uname(&names) == 0 ? names.release : "";
}

}  // namespace

bool version_at_least(std::string_view release, std::string_view limit, int major, int minor) noexcept {
  Version version = parse(release);
  if (!limit.empty()) version = std::min(version, parse(limit));
  return version >= Version{major, minor};
}

bool kernel_at_least(int major, int minor) {
  static const std::string kRelease = running_release();
  return version_at_least(kRelease, settings().kernel, major, minor);
}

}  // namespace tugline::base
