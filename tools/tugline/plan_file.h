// SPDX-License-Identifier: Apache-2.0
// Hand-written plans as files: read and looked at alike by `plan --check` and by `bench --plan`.
#pragma once

#include <string>

#include "core/plan/plan.h"

namespace tugline::cli {

/// The plan in the file. Throws UsageError when there is no such file, Error{invalid_argument} that names the
/// file and the place in it when it holds no plan.
core::Plan read_plan(const std::string& path);

enum class Proof : std::uint8_t {
  whole,      ///< the plan does what its collective promises
  structure,  ///< it stays within its buffers
};
/// What is wrong with the plan as far as `proof` goes, else why no communicator of here can run it (scratch);
/// empty when nothing is.
struct Objection {
  std::string problem;  ///< "is wrong: rank 0, step 3: ..."
  std::string remedy;
};
Objection objection_to(const core::Plan& plan, Proof proof);
/// Throws it, if there is one, as an error that names the file.
void require_right(const core::Plan& plan, Proof proof, const std::string& path);

}  // namespace tugline::cli
