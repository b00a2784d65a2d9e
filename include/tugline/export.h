// SPDX-License-Identifier: Apache-2.0
// Marks what libtugline.so exports; everything else is hidden.
#pragma once

#define TUGLINE_EXPORT __attribute__((visibility("default")))
