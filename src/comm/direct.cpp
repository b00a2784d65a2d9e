// SPDX-License-Identifier: Apache-2.0
#include "comm/direct.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace tugline::comm {
namespace {

// The word OfferLine::reach: Offer::Reach, whether there is a limit of bytes, and the limit of mappings, 0:
// none.
constexpr std::uint64_t kReachMask = 0xff;
constexpr std::uint64_t kHasByteLimit = 0x100;
constexpr unsigned kMappingLimitShift = 16;

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
    case core::Collective::all_gather_v:
      return {.recv = true};
    case core::Collective::reduce_scatter:
    case core::Collective::reduce_scatter_v:
    case core::Collective::all_to_all:
    case core::Collective::all_to_all_v:
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

/// Which buffers of each rank the programs of `rank` touch. Only these wait for it: the others may be freed
/// by the time it looks.
std::vector<Touched> touched_by(const core::Plan& plan, std::uint32_t rank) {
  std::vector<Touched> touched(static_cast<std::size_t>(plan.ranks));
  const auto look_at = [&](const core::Place& place) {
    auto& one = touched[static_cast<std::size_t>(place.rank)];
    one.send = one.send || place.space == core::Space::input;
    one.recv = one.recv || place.space == core::Space::output;
  };
  for (const auto& program : plan.programs[rank]) {
    for (const auto& step : program) {
      const bool moves = step.kind == core::StepKind::copy || step.kind == core::StepKind::put ||
                         step.kind == core::StepKind::reduce;
      if (!moves) continue;
      look_at(step.destination);
      look_at(step.source);
      if (step.kind != core::StepKind::reduce) continue;
      look_at(step.second);
      for (const auto& place : step.more) look_at(place);
    }
  }
  return touched;
}

std::uint64_t word_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}
std::byte* address_of(const std::atomic<std::uint64_t>& word) noexcept {
  return reinterpret_cast<std::byte*>(word.load(std::memory_order_relaxed));
}

}  // namespace

Offer make_offer(const Call& call, std::uint32_t rank, std::uint32_t ranks, const memory::Windows& windows,
                 bool one_process) noexcept {
  const Touched needs = touched(call, rank);
  const Offer otherwise{one_process ? Offer::Reach::threads : Offer::Reach::none, {}, {}};
  Offer offer{Offer::Reach::everyone, {}, {}};
  // Of nothing, nothing has to be reached.
  if (needs.send && call.input_bytes(rank, ranks) > 0) {
    const auto found = windows.find(call.send, call.input_bytes(rank, ranks));
    if (!found) return otherwise;
    offer.send = *found;
  }
  if (needs.recv) {
    const auto found = windows.find(call.recv, call.output_bytes(rank, ranks));
    if (!found) return otherwise;
    offer.recv = *found;
  }
  return offer;
}

void publish_offer(const Epoch& epoch, std::uint64_t sequence, const Call& call, const Offer& offer,
                   std::uint64_t process, const memory::ImportLimits& limits) noexcept {
  auto& line = epoch.bank.offer(epoch.rank, sequence);
  const auto put = [](std::atomic<std::uint64_t>& to, std::uint64_t value) {
    to.store(value, std::memory_order_relaxed);
  };
  put(line.reach, static_cast<std::uint64_t>(offer.reach) | (limits.bytes != 0 ? kHasByteLimit : 0) |
                      limits.mappings << kMappingLimitShift);
  if (offer.reach == Offer::Reach::none) return;
  put(line.send_segment, offer.send.segment);
  put(line.send_offset, offer.send.offset);
  put(line.recv_segment, offer.recv.segment);
  put(line.recv_offset, offer.recv.offset);
  put(line.process, process);
  put(line.send_address, word_of(call.send));
  put(line.recv_address, word_of(call.recv));
  // Mapped is the whole segment, whose end is that of the window.
  const auto bytes_of = [](const memory::Window& window) { return window.offset + window.bytes_left; };
  const bool two =
      offer.send.segment != 0 && offer.recv.segment != 0 && offer.send.segment != offer.recv.segment;
  put(line.bytes, two ? bytes_of(offer.send) + bytes_of(offer.recv)
                      : std::max(bytes_of(offer.send), bytes_of(offer.recv)));
  put(line.mappings, two ? 2 : offer.send.segment != 0 || offer.recv.segment != 0 ? 1 : 0);
  put(line.limit_bytes, limits.bytes);
  offer_buffers(buffers_of(call));
}

namespace {

/// Whether every rank may map what all others offer in operation `sequence`.
bool imports_fit(const Epoch& epoch, std::uint64_t sequence) noexcept {
  const auto word = [](const std::atomic<std::uint64_t>& from) {
    return from.load(std::memory_order_relaxed);
  };
  std::uint64_t bytes = 0;
  std::uint64_t mappings = 0;
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank) {
    const auto& line = epoch.bank.offer(rank, sequence);
    bytes += word(line.bytes);
    mappings += word(line.mappings);
  }
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank) {
    const auto& line = epoch.bank.offer(rank, sequence);
    const auto fits = [](std::uint64_t wanted, std::uint64_t limit) { return limit == 0 || wanted <= limit; };
    if (fits(bytes - word(line.bytes), word(line.limit_bytes)) &&
        fits(mappings - word(line.mappings), word(line.reach) >> kMappingLimitShift))
      continue;
    static std::atomic<bool> said{false};
    if (rank == epoch.rank && !said.exchange(true, std::memory_order_relaxed))
      base::log(
          base::LogLevel::warn,
          "an operation goes through scratch: the other ranks' buffers are {} bytes in {} mappings, and "
          "TUGLINE_IMPORT_LIMIT_BYTES is {}, TUGLINE_IMPORT_LIMIT_MAPPINGS {}; said once",
          bytes - word(line.bytes), mappings - word(line.mappings), word(line.limit_bytes),
          word(line.reach) >> kMappingLimitShift);
    return false;
  }
  return true;
}

}  // namespace

Offer::Reach common_reach(const Epoch& epoch, std::uint64_t sequence) noexcept {
  const auto process = epoch.bank.offer(epoch.rank, sequence).process.load(std::memory_order_relaxed);
  bool by_address = true;
  bool by_segment = true;
  bool may_exceed = false;
  const std::uint64_t most_mappings = 2 * std::uint64_t{epoch.size - 1};
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank) {
    const auto& line = epoch.bank.offer(rank, sequence);
    const auto word = line.reach.load(std::memory_order_relaxed);
    const auto reach = static_cast<Offer::Reach>(word & kReachMask);
    if (reach == Offer::Reach::none) return reach;
    const auto mappings = word >> kMappingLimitShift;
    may_exceed = may_exceed || (word & kHasByteLimit) != 0 || (mappings != 0 && mappings < most_mappings);
    by_address = by_address && line.process.load(std::memory_order_relaxed) == process;
    by_segment = by_segment && reach == Offer::Reach::everyone;
  }
  if (by_address) return Offer::Reach::threads;
  return by_segment && (!may_exceed || imports_fit(epoch, sequence)) ? Offer::Reach::everyone
                                                                     : Offer::Reach::none;
}

PeerBuffers::PeerBuffers(const Epoch& epoch, std::uint64_t sequence, const Call& call,
                         Offer::Reach reach_of_all, const core::Plan& plan, memory::ImportCache& imports)
    : buffers_(epoch.size) {
  const auto touched = touched_by(plan, epoch.rank);
  for (std::uint32_t rank = 0; rank < epoch.size; ++rank) {
    if (rank == epoch.rank) {
      buffers_[rank] = buffers_of(call);
      continue;
    }
    const auto& line = epoch.bank.offer(rank, sequence);
    const auto [sends, receives] = touched[rank];
    if (reach_of_all == Offer::Reach::threads) {
      if (sends) buffers_[rank].send = address_of(line.send_address);
      if (receives) buffers_[rank].recv = address_of(line.recv_address);
      continue;
    }
    const auto map = [&](const auto& segment, const auto& offset, base::Access needed) {
      return reach(imports, segment.load(std::memory_order_relaxed), offset.load(std::memory_order_relaxed),
                   needed);
    };
    if (sends) buffers_[rank].send = map(line.send_segment, line.send_offset, base::Access::read_only);
    if (receives) buffers_[rank].recv = map(line.recv_segment, line.recv_offset, base::Access::read_write);
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
