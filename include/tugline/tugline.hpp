// SPDX-License-Identifier: Apache-2.0
// Everything: the eight words of tugline in one include.
#pragma once

#include "tugline/buffer.h"
#include "tugline/communicator.h"
#include "tugline/device.h"
#include "tugline/error.h"
#include "tugline/job.h"
#include "tugline/outcome.h"
#include "tugline/pool.h"
#include "tugline/types.h"
