// SPDX-License-Identifier: Apache-2.0
// Tasks of the host in a CUDA stream. CUDA's own host functions may run one after the other on one thread, so
// that one which waits for another stream's work would hang both. Here the host function only hands the task
// to a thread of our own, and the stream waits for the word that this thread writes when the task is done.
#pragma once

#include <memory>
#include <string>

#include "device/cuda/failure_scope.h"

namespace tugline::device::cuda {

/// One task and where it tells of its end. An eager one runs once; a graph's runs at every replay.
struct Task {
  HostTask work;
  std::shared_ptr<FailureScope> scope;
  Ticket ticket = 0;
  std::shared_ptr<Cell> done;
  std::uint32_t done_value = 1;
  std::string where;
  const void* stream = nullptr;  ///< whose order it runs in; a graph's: null
  bool repeats = false;          ///< owned by a graph
  bool always = false;           ///< runs even where its scope has failed before
};

/// For cuLaunchHostFunc: hands the task (a Task*) to a thread that runs it unless its scope has failed
/// before. A task that does not repeat is deleted.
void CUDA_CB post_task(void* task);

/// True on a thread that runs a task of this stream just now, which cannot wait for the stream's end.
bool is_running_task_of(const void* stream) noexcept;

}  // namespace tugline::device::cuda
