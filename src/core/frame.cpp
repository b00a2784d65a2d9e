// SPDX-License-Identifier: Apache-2.0
#include "core/frame.h"

namespace tugline::core {

FrameFault parse_frame(std::span<const std::byte> bytes, FrameView& out) noexcept {
  if (bytes.size() < kFrameHeaderBytes) return FrameFault::too_short;
  if (bytes.size() > kMaxFrameBytes) return FrameFault::too_long;
  FrameReader header(bytes.first(kFrameHeaderBytes));
  std::uint32_t magic = 0;
  std::uint32_t body_bytes = 0;
  FrameView view;
  header.number(magic);
  header.number(view.version);
  header.number(view.type);
  header.number(view.request);
  header.number(body_bytes);
  if (magic != kFrameMagic) return FrameFault::magic;
  if (body_bytes != bytes.size() - kFrameHeaderBytes) return FrameFault::body_length;
  view.body = bytes.subspan(kFrameHeaderBytes);
  out = view;
  return view.version == kFrameVersion ? FrameFault::none : FrameFault::version;
}

void FrameWriter::begin(std::uint16_t type, std::uint32_t request, std::uint16_t version) noexcept {
  used_ = 0;
  failed_ = false;
  number(kFrameMagic);
  number(version);
  number(type);
  number(request);
  number(std::uint32_t{0});
}

bool FrameWriter::finish() noexcept {
  if (failed_) return false;
  const auto end = used_;
  used_ = kFrameHeaderBytes - sizeof(std::uint32_t);
  number(static_cast<std::uint32_t>(end - kFrameHeaderBytes));
  used_ = end;
  return true;
}

void FrameWriter::text(const std::string& value, std::size_t max_bytes) noexcept {
  if (value.size() > max_bytes || value.size() > kMaxFrameBytes) {
    failed_ = true;
    return;
  }
  number(static_cast<std::uint16_t>(value.size()));
  if (!room(value.size())) return;
  std::memcpy(buffer_.data() + used_, value.data(), value.size());
  used_ += value.size();
}

void FrameReader::text(std::string& value, std::size_t max_bytes) {
  std::uint16_t length = 0;
  number(length);
  if (length > max_bytes) failed_ = true;
  std::span<const std::byte> bytes;
  if (take(length, bytes)) value.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace tugline::core
