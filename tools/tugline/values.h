// SPDX-License-Identifier: Apache-2.0
// Values as they are written on the command line: sizes with suffix, type and operator names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/plan/plan.h"
#include "tugline/types.h"

namespace tugline::cli {

/// "8", "64K", "16M", "1G" (powers of 1024, an i and a B may follow); none if it is no size.
std::optional<std::uint64_t> parse_bytes(std::string_view text) noexcept;
/// "f32" and nccl-tests' "float" alike.
std::optional<DataType> parse_type(std::string_view text) noexcept;
std::optional<ReduceOp> parse_operator(std::string_view text) noexcept;
/// Names with underscores, and nccl-tests' spellings (alltoall, sendrecv).
std::optional<core::Collective> parse_collective(std::string_view text) noexcept;
/// nccl-tests' name of a type, for its columns.
std::string_view column_name(DataType type) noexcept;
/// "512 B", "64 KiB", "1.5 MiB".
std::string human_bytes(std::uint64_t bytes);

}  // namespace tugline::cli
