// SPDX-License-Identifier: Apache-2.0
// The frame decoder: any bytes either are no message, or are exactly what the encoder writes for it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "core/messages.h"

namespace {

using namespace tugline::core;

template <class Message>
void check(const FrameView& view, std::span<const std::byte> whole) {
  Message message;
  if (!decode(view, message)) return;
  FrameWriter frame;
  if (!encode(message, view.request, frame)) std::abort();
  const auto written = frame.bytes();
  if (written.size() != whole.size() || std::memcmp(written.data(), whole.data(), whole.size()) != 0)
    std::abort();
}

template <class... Messages>
void check_all(const FrameView& view, std::span<const std::byte> whole) {
  (check<Messages>(view, whole), ...);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  // An allocation of exactly this size: reading past it is an error that AddressSanitizer sees.
  const std::unique_ptr<std::byte[]> copy(new std::byte[bytes]);
  if (bytes > 0) std::memcpy(copy.get(), data, bytes);
  const std::span<const std::byte> whole(copy.get(), bytes);
  FrameView view;
  if (parse_frame(whole, view) != FrameFault::none) return 0;
  check_all<Hello, Welcome, Failure, Done, OpenSegment, DepositSegment, ImportSegment, SegmentReply,
            ReleaseSegment, KeepSegment, RemoveSegment, PutValue, GetValue, Value, Leave, Usage, UsageReport,
            AttachLauncher, RankEnded, RankStarts, AttachObserver>(view, whole);
  return 0;
}
