// SPDX-License-Identifier: Apache-2.0
// Prints docs/settings.md.
#include <cstdio>

#include "base/settings.h"

int main() {
  const auto page = tugline::base::describe_settings_markdown();
  return std::fwrite(page.data(), 1, page.size(), stdout) == page.size() ? 0 : 1;
}
