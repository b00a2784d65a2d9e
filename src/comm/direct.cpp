// SPDX-License-Identifier: Apache-2.0
#include "comm/direct.h"

#include <fmt/format.h>

namespace tugline::comm {
namespace {

struct Touched {
  bool send = false;
  bool recv = false;
};

/// What a direct plan lets others touch of `rank`; see core/plan/direct.cpp.
Touched touched(const Call& call, std::uint32_t rank) noexcept {
  const bool is_root = static_cast<std::uint32_t>(call.root) == rank;
  switch (call.collective) {
    case core::Collective::all_reduce:
      return {.send = true, .recv = true};
    case core::Collective::all_gather:
      return {.recv = true};
    case core::Collective::reduce_scatter:
    case core::Collective::all_to_all:
    case core::Collective::reduce:
      return {.send = true};
    case core::Collective::broadcast:
    case core::Collective::scatter:
      return {.send = is_root};
    case core::Collective::gather:
      return {.recv = is_root};
    default:
      return {};
  }
}

}  // namespace

std::optional<Offer> make_offer(const Call& call, std::uint32_t rank, std::uint32_t ranks,
                                const memory::Windows& windows) noexcept {
  const Touched needs = touched(call, rank);
  Offer offer;
  if (needs.send) {
    const auto found = windows.find(call.send, call.input_bytes(rank, ranks));
    if (!found) return std::nullopt;
    offer.send = *found;
  }
  if (needs.recv) {
    const auto found = windows.find(call.recv, call.output_bytes(rank, ranks));
    if (!found) return std::nullopt;
    offer.recv = *found;
  }
  return offer;
}

PeerBuffers::PeerBuffers(const Epoch& epoch, std::uint64_t sequence, const Call& call,
                         memory::ImportCache& imports)
    : buffers_(epoch.size) {
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank) {
    if (rank == epoch.rank) {
      buffers_[rank] = {static_cast<std::byte*>(const_cast<void*>(call.send)),
                        static_cast<std::byte*>(call.recv)};
      continue;
    }
    const auto& line = epoch.bank.offer(rank, sequence);
    const auto word = [](const std::atomic<std::uint64_t>& from) {
      return from.load(std::memory_order_relaxed);
    };
    buffers_[rank] = {
        reach(imports, word(line.send_segment), word(line.send_offset), base::Access::read_only),
        reach(imports, word(line.recv_segment), word(line.recv_offset), base::Access::read_write)};
  }
}

std::byte* PeerBuffers::reach(memory::ImportCache& imports, std::uint64_t segment, std::uint64_t offset,
                              base::Access needed) {
  if (segment == 0) return nullptr;
  leases_.push_back(imports.map(segment));
  // A store would be a fault.
  if (needed == base::Access::read_write && leases_.back().access() == base::Access::read_only)
    throw Error(ErrorCode::permission_denied, fmt::format("segment {} can only be read here", segment),
                "receive into a buffer that others may write to");
  return leases_.back().data() + offset;
}

}  // namespace tugline::comm
