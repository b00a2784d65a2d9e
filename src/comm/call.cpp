// SPDX-License-Identifier: Apache-2.0
#include "comm/call.h"

#include <fmt/format.h>

#include "tugline/error.h"

namespace tugline::comm {
namespace {

const std::byte* at(const void* base, std::uint64_t offset) noexcept {
  return static_cast<const std::byte*>(base) + offset;
}

bool overlap(const void* a, std::uint64_t a_bytes, const void* b, std::uint64_t b_bytes) noexcept {
  return at(a, 0) < at(b, b_bytes) && at(b, 0) < at(a, a_bytes);
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

std::uint64_t Call::input_bytes(std::uint32_t ranks) const noexcept {
  switch (collective) {
    case core::Collective::barrier:
      return 0;
    case core::Collective::reduce_scatter:
    case core::Collective::all_to_all:
    case core::Collective::scatter:
      return bytes() * ranks;
    default:
      return bytes();
  }
}

std::uint64_t Call::output_bytes(std::uint32_t ranks) const noexcept {
  switch (collective) {
    case core::Collective::barrier:
      return 0;
    case core::Collective::all_gather:
    case core::Collective::all_to_all:
    case core::Collective::gather:
      return bytes() * ranks;
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
    case core::Collective::all_reduce:
    case core::Collective::reduce:
    case core::Collective::broadcast:
    case core::Collective::all_to_all:
      return send == recv;
    default:
      return false;
  }
}

Descriptor describe(const Call& call) noexcept {
  Descriptor descriptor;
  descriptor.kind = static_cast<std::uint64_t>(call.collective) + 1;
  if (call.collective != core::Collective::barrier) {
    descriptor.kind |= static_cast<std::uint64_t>(call.type) << 8;
    descriptor.count = call.count;
  }
  if (call.reduces()) descriptor.kind |= static_cast<std::uint64_t>(call.op) << 16;
  if (call.has_root()) descriptor.kind |= static_cast<std::uint64_t>(call.root) << 32;
  return descriptor;
}

std::string to_text(const Descriptor& descriptor) {
  if (is_agreement(descriptor)) return "agree()";
  const auto collective = static_cast<core::Collective>((descriptor.kind & 0xff) - 1);
  if (collective == core::Collective::barrier) return "barrier()";
  std::string text = fmt::format("{}(count {}, {}", core::name_of(collective), descriptor.count,
                                 name_of(static_cast<DataType>(descriptor.kind >> 8 & 0xff)));
  if (core::reduces(collective))
    text += fmt::format(", {}", name_of(static_cast<ReduceOp>(descriptor.kind >> 16 & 0xff)));
  if (core::has_root(collective)) text += fmt::format(", root {}", descriptor.kind >> 32);
  return text + ")";
}

void validate(const Call& call, std::uint32_t rank, std::uint32_t ranks, const std::string& communicator) {
  const std::string operation(core::name_of(call.collective));
  auto refuse = [&](std::string what, std::string remedy) {
    ErrorContext context;
    context.operation = operation;
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
  if ((call.has_root() || call.is_message()) &&
      (call.root < 0 || call.root >= static_cast<std::int32_t>(ranks)))
    refuse(fmt::format("{} {} is outside 0..{}", call.is_message() ? "peer" : "root", call.root, ranks - 1),
           "name a rank of this communicator");
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 46;
  if (call.count > kLargest / size_of(call.type) / ranks)
    refuse(fmt::format("count {} of {} for {} ranks exceeds {} bytes (a negative count passed as unsigned?)",
                       call.count, name_of(call.type), ranks, kLargest),
           "pass the number of elements, at least 0");
  if (call.count == 0) return;
  if (call.needs_send(rank) && call.send == nullptr)
    refuse(fmt::format("send is null with count {}", call.count), "pass the buffer to send");
  if (call.needs_recv(rank) && call.recv == nullptr)
    refuse(fmt::format("recv is null with count {}", call.count), "pass the buffer to receive into");
  if (call.needs_send(rank) && call.needs_recv(rank) && !call.in_place(rank) &&
      overlap(call.send, call.input_bytes(ranks), call.recv, call.output_bytes(ranks)))
    refuse("send and recv overlap, but not as the in-place form does",
           "use separate buffers, or the in-place form that communicator.h gives for this collective");
}

}  // namespace tugline::comm
