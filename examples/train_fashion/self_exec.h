// SPDX-License-Identifier: Apache-2.0
// Two reasons to start this program again, in the same process.
#pragma once

namespace train_fashion {

/// OpenBLAS picks its kernels when it is loaded, and an old one falls back to kernels from before AVX on a
/// processor it does not know (Debian 12's 0.3.21 does on Sapphire Rapids: five times slower). Then starts
/// the program again with OPENBLAS_CORETYPE set to what the processor can do, unless the user has set it.
void choose_blas_kernels(char** argv);

/// Starts `ranks` ranks of this program by `tugline run`, found beside this program or in PATH, unless a
/// launcher has started this process. Returns when there is nothing to do; throws tugline::Error{system} when
/// it cannot be started.
void launch_ranks(int ranks, int argc, char** argv);

}  // namespace train_fashion
