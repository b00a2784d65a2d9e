// SPDX-License-Identifier: Apache-2.0
#include "comm/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tugline/error.h"

namespace tugline::comm {
namespace {

/// In a descriptor's kind, beside the operator.
constexpr std::uint64_t kPreMultiplied = 0x800000;
/// In that of an all_gather, which has no operator.
constexpr std::uint64_t kOfSplit = 0x400000;

const std::byte* at(const void* base, std::uint64_t offset) noexcept {
  return static_cast<const std::byte*>(base) + offset;
}

bool overlap(const void* a, std::uint64_t a_bytes, const void* b, std::uint64_t b_bytes) noexcept {
  return at(a, 0) < at(b, b_bytes) && at(b, 0) < at(a, a_bytes);
}

// Behind the last element of all blocks.
std::uint64_t end_of(const std::vector<std::size_t>& counts,
                     const std::vector<std::size_t>& displacements) noexcept {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] != 0) end = std::max<std::uint64_t>(end, displacements[i] + counts[i]);
  return end;
}

std::uint64_t begin_of(const std::vector<std::size_t>& counts, std::uint32_t block) noexcept {
  return std::accumulate(counts.begin(), counts.begin() + block, std::uint64_t{0});
}

std::uint64_t mix(std::uint64_t value) noexcept {
  // The finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// Sizes of blocks, how many there must be, and how large all of them may be.
std::string problem_of(const Counts& counts, std::uint32_t rank, std::uint32_t ranks, std::uint64_t most) {
  auto list = [&](std::string_view name, const std::vector<std::size_t>& values) -> std::string {
    if (values.size() != ranks)
      return fmt::format("{} has {} values for {} ranks", name, values.size(), ranks);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] > most || (sum += values[i]) > most)
        return fmt::format("{}[{}] = {} exceeds {} (a negative value passed as unsigned?)", name, i,
                           values[i], most);
    }
    return {};
  };
  auto separate = [&](std::string_view name, const std::vector<std::size_t>& sizes,
                      const std::vector<std::size_t>& places) -> std::string {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (sizes[i] != 0) order.push_back(i);
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return places[a] < places[b]; });
    for (std::size_t i = 1; i < order.size(); ++i)
      if (places[order[i - 1]] + sizes[order[i - 1]] > places[order[i]])
        return fmt::format("the blocks of ranks {} and {} overlap in {}", order[i - 1], order[i], name);
    return {};
  };
  if (!counts.of_pairs()) return list("counts", counts.send);
  for (auto problem :
       {list("send_counts", counts.send), list("send_displacements", counts.send_displacements),
        list("recv_counts", counts.recv), list("recv_displacements", counts.recv_displacements)})
    if (!problem.empty()) return problem;
  if (counts.send[rank] != counts.recv[rank])
    return fmt::format("rank {} sends {} elements to itself and expects {}", rank, counts.send[rank],
                       counts.recv[rank]);
  return separate("recv", counts.recv, counts.recv_displacements);
}

std::string count_text(const Call& call, std::uint64_t bytes) {
  return call.counts ? fmt::format("{} bytes", bytes) : fmt::format("count {}", call.count);
}

template <class Refuse>
void validate_buffers(const Call& call, std::uint32_t rank, std::uint32_t ranks, const Refuse& refuse) {
  const std::uint64_t input = call.needs_send(rank) ? call.input_bytes(rank, ranks) : 0;
  const std::uint64_t output = call.needs_recv(rank) ? call.output_bytes(rank, ranks) : 0;
  if (input != 0 && call.send == nullptr)
    refuse(fmt::format("send is null with {}", count_text(call, input)), "pass the buffer to send");
  if (output != 0 && call.recv == nullptr)
    refuse(fmt::format("recv is null with {}", count_text(call, output)), "pass the buffer to receive into");
  if (input != 0 && output != 0 && !call.in_place(rank) && overlap(call.send, input, call.recv, output))
    refuse("send and recv overlap, but not as the in-place form does",
           "use separate buffers, or the in-place form that communicator.h gives for this collective");
}

}  // namespace

bool Call::needs_send(std::uint32_t rank) const noexcept {
  if (is_message()) return is_send();
  const bool root_only = collective == core::Collective::broadcast || collective == core::Collective::scatter;
  return !root_only || static_cast<std::uint32_t>(root) == rank;
}

bool Call::needs_recv(std::uint32_t rank) const noexcept {
  if (is_message()) return !is_send();
  const bool root_only = collective == core::Collective::reduce || collective == core::Collective::gather;
  return !root_only || static_cast<std::uint32_t>(root) == rank;
}

std::uint64_t Call::input_bytes(std::uint32_t rank, std::uint32_t ranks) const noexcept {
  switch (collective) {
    case core::Collective::barrier:
      return 0;
    case core::Collective::reduce_scatter:
    case core::Collective::all_to_all:
    case core::Collective::scatter:
      return bytes() * ranks;
    case core::Collective::all_gather_v:
      return counts->send[rank] * size_of(type);
    case core::Collective::all_to_all_v:
      return end_of(counts->send, counts->send_displacements) * size_of(type);
    default:
      return bytes();
  }
}

std::uint64_t Call::output_bytes(std::uint32_t rank, std::uint32_t ranks) const noexcept {
  switch (collective) {
    case core::Collective::barrier:
      return 0;
    case core::Collective::all_gather:
    case core::Collective::all_to_all:
    case core::Collective::gather:
      return bytes() * ranks;
    case core::Collective::reduce_scatter_v:
      return counts->send[rank] * size_of(type);
    case core::Collective::all_to_all_v:
      return end_of(counts->recv, counts->recv_displacements) * size_of(type);
    default:
      return bytes();
  }
}

bool Call::in_place(std::uint32_t rank) const noexcept {
  if (!needs_send(rank) || !needs_recv(rank)) return false;
  switch (collective) {
    case core::Collective::all_gather:
    case core::Collective::gather:
      return send == at(recv, rank * bytes());
    case core::Collective::reduce_scatter:
    case core::Collective::scatter:
      return recv == at(send, rank * bytes());
    case core::Collective::all_gather_v:
      return send == at(recv, begin_of(counts->send, rank) * size_of(type));
    case core::Collective::reduce_scatter_v:
      return recv == at(send, begin_of(counts->send, rank) * size_of(type));
    case core::Collective::all_to_all_v:
      return send == recv && counts->send == counts->recv &&
             counts->send_displacements == counts->recv_displacements;
    case core::Collective::all_reduce:
    case core::Collective::reduce:
    case core::Collective::broadcast:
    case core::Collective::all_to_all:
      return send == recv;
    default:
      return false;
  }
}

std::optional<std::uint64_t> factor_bits(const Call& call) noexcept {
  const Reduction& factor = *call.factor;
  const auto bits_of = [](auto value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(value));
    return bits;
  };
  switch (call.type) {
    case DataType::f64:
      return bits_of(factor.factor());
    case DataType::f16:
    case DataType::bf16:
    case DataType::f32:
      return bits_of(static_cast<float>(factor.factor()));
    default:
      break;
  }
  if (!factor.is_integer()) return std::nullopt;
  const bool is_signed =
      call.type == DataType::i8 || call.type == DataType::i32 || call.type == DataType::i64;
  const unsigned width = static_cast<unsigned>(size_of(call.type)) * 8;
  const std::uint64_t integer = factor.integer_factor();
  // What is left above the bits that the type has for a value: nothing, or the sign.
  const std::uint64_t above = integer >> (width - 1) >> (is_signed ? 0 : 1);
  const std::uint64_t sign = ~std::uint64_t{0} >> (width - 1);
  const bool fits = factor.is_negative() ? is_signed && above == sign : above == 0;
  return fits ? std::optional(integer) : std::nullopt;
}

Descriptor describe(const Call& call) noexcept {
  Descriptor descriptor;
  descriptor.kind = static_cast<std::uint64_t>(call.collective) + 1;
  if (call.collective != core::Collective::barrier) {
    descriptor.kind |= static_cast<std::uint64_t>(call.type) << 8;
    descriptor.count = call.count;
  }
  if (call.counts) {
    // What each pair exchanges is the pair's own business, and compared by PlanRun.
    descriptor.count = 0;
    if (!call.counts->of_pairs())
      for (const std::size_t count : call.counts->send) descriptor.count = mix(descriptor.count ^ mix(count));
  }
  if (call.reduces()) descriptor.kind |= static_cast<std::uint64_t>(call.op) << 16;
  if (call.factor) descriptor.kind |= kPreMultiplied;
  if (call.of_split) descriptor.kind |= kOfSplit;
  if (call.has_root()) descriptor.kind |= static_cast<std::uint64_t>(call.root) << 32;
  return descriptor;
}

Descriptor with_count(const Descriptor& descriptor, CountOf what, std::uint32_t peer,
                      std::uint64_t count) noexcept {
  return {descriptor.kind | std::uint64_t{peer} << 32 | static_cast<std::uint64_t>(what) << 48, count};
}

std::uint64_t hash_of_pair(std::uint32_t from, std::uint32_t to, std::uint64_t count) noexcept {
  return mix(mix(std::uint64_t{from} << 32 | to) ^ count);
}

std::string to_text(const Descriptor& descriptor, Call::Direction direction) {
  if (is_agreement(descriptor)) return "agree()";
  const auto collective = static_cast<core::Collective>((descriptor.kind & 0xff) - 1);
  if (collective == core::Collective::barrier) return "barrier()";
  if (collective == core::Collective::all_gather && (descriptor.kind & kOfSplit) != 0) return "split()";
  const std::string_view called = direction == Call::Direction::send          ? "send"
                                  : direction == Call::Direction::receive     ? "recv"
                                  : collective == core::Collective::send_recv ? "send/recv"
                                                                              : core::name_of(collective);
  std::string text = std::string(called) + "(";
  if (core::has_blocks(collective)) {
    const auto peer = descriptor.kind >> 32 & 0xffff;
    switch (static_cast<CountOf>(descriptor.kind >> 48)) {
      case CountOf::block:
        text += fmt::format("count {} of rank {}, ", descriptor.count, peer);
        break;
      case CountOf::sent:
        text += fmt::format("count {} to rank {}, ", descriptor.count, peer);
        break;
      case CountOf::expected:
        text += fmt::format("count {} from rank {}, ", descriptor.count, peer);
        break;
    }
  } else {
    text += fmt::format("count {}, ", descriptor.count);
  }
  text += name_of(static_cast<DataType>(descriptor.kind >> 8 & 0xff));
  if (core::reduces(collective))
    text += fmt::format(", {}{}", (descriptor.kind & kPreMultiplied) != 0 ? "pre-multiplied " : "",
                        name_of(static_cast<ReduceOp>(descriptor.kind >> 16 & 0x7f)));
  if (core::has_root(collective)) text += fmt::format(", root {}", descriptor.kind >> 32);
  return text + ")";
}

void validate(const Call& call, std::uint32_t rank, std::uint32_t ranks, const std::string& communicator) {
  auto refuse = [&](std::string what, std::string remedy) {
    ErrorContext context;
    context.operation = core::name_of(call.collective);
    context.communicator = communicator;
    context.rank = static_cast<int>(rank);
    throw Error(ErrorCode::invalid_argument, std::move(what), std::move(remedy), std::move(context));
  };
  if (call.collective == core::Collective::barrier) return;
  if (static_cast<int>(call.type) >= kDataTypeCount)
    refuse(fmt::format("type {} is no DataType", static_cast<int>(call.type)),
           "pass one of the DataType values");
  if (call.reduces() && static_cast<int>(call.op) >= kReduceOpCount)
    refuse(fmt::format("operator {} is no ReduceOp", static_cast<int>(call.op)),
           "pass one of the ReduceOp values");
  if (call.factor && !factor_bits(call))
    refuse(
        fmt::format("factor {} of a pre-multiplied sum is no {}", call.factor->factor(), name_of(call.type)),
        "pass a factor that the element type can hold, for integers as an integer");
  if ((call.has_root() || call.is_message()) &&
      (call.root < 0 || call.root >= static_cast<std::int32_t>(ranks)))
    refuse(fmt::format("{} {} is outside 0..{}", call.is_message() ? "peer" : "root", call.root, ranks - 1),
           "name a rank of this communicator");
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 46;
  if (call.counts) {
    if (auto problem = problem_of(*call.counts, rank, ranks, kLargest / size_of(call.type)); !problem.empty())
      refuse(std::move(problem),
             "pass one count (and displacement) of at least 0 for every rank of this "
             "communicator, in elements");
    validate_buffers(call, rank, ranks, refuse);
    return;
  }
  if (call.count > kLargest / size_of(call.type) / ranks)
    refuse(fmt::format("count {} of {} for {} ranks exceeds {} bytes (a negative count passed as unsigned?)",
                       call.count, name_of(call.type), ranks, kLargest),
           "pass the number of elements, at least 0");
  if (call.count == 0) return;
  validate_buffers(call, rank, ranks, refuse);
}

}  // namespace tugline::comm
