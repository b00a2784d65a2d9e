// SPDX-License-Identifier: Apache-2.0
// The job's memory: what Job's templates call.
#include "api/job_state.h"
#include "memory/allocation.h"
#include "memory/named_memory.h"
#include "memory/pool.h"
#include "memory/registration.h"
#include "tugline/job.h"

namespace tugline {

std::shared_ptr<memory::SharedAllocation> Job::allocate_bytes(std::size_t bytes) {
  api::require_member(state_.get(), "allocate()");
  return memory::allocate(state_->client, bytes);
}

RegisteredMemory Job::register_memory(void* address, std::size_t bytes) {
  api::require_member(state_.get(), "register_memory()");
  return RegisteredMemory(memory::register_memory(state_->client, address, bytes));
}

MemoryPool& Job::pool() {
  api::require_member(state_.get(), "pool()");
  std::lock_guard lock(state_->mutex);
  if (!state_->pool) state_->pool = memory::HostPool::make(state_->client);
  return *state_->pool;
}

std::shared_ptr<memory::NamedMemory> Job::named_buffer_bytes(std::string_view name, std::size_t bytes,
                                                             const NamedBufferOptions& options) {
  api::require_member(state_.get(), "named_buffer()");
  return memory::open_named(state_->client, name, bytes, options);
}

}  // namespace tugline
