// SPDX-License-Identifier: Apache-2.0
#include "core/messages.h"

namespace tugline::core {
namespace {

// One description per message, used with FrameWriter (M const) and FrameReader (M mutable).
template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, Hello> {
  archive.block(m.token);
  archive.number(m.rank);
  archive.number(m.size);
  archive.text(m.job, kMaxJobNameBytes);
}

template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, Welcome> {
  archive.number(m.member);
  archive.number(m.incarnation);
  archive.number(m.control_bytes);
  archive.text(m.job, kMaxJobNameBytes);
}

template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, Failure> {
  auto code = static_cast<std::uint8_t>(m.code);
  archive.bounded(code, static_cast<std::uint8_t>(ErrorCode::internal));
  if constexpr (!std::is_const_v<M>) m.code = static_cast<ErrorCode>(code);
  archive.number(m.native_code);
  archive.text(m.what_failed, kMaxFailureBytes);
  archive.text(m.what_to_do, kMaxFailureBytes);
}

template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, DepositSegment> {
  archive.text(m.name, kMaxSegmentNameBytes);
  archive.number(m.bytes);
  archive.bounded(m.persistent, std::uint8_t{1});
  archive.bounded(m.exclusive, std::uint8_t{1});
  auto kind = static_cast<std::uint8_t>(m.kind);
  archive.bounded(kind, static_cast<std::uint8_t>(SegmentKind::named));
  if constexpr (!std::is_const_v<M>) m.kind = static_cast<SegmentKind>(kind);
}

template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, SegmentReply> {
  archive.number(m.id);
  archive.number(m.bytes);
  archive.bounded(m.created, std::uint8_t{1});
}

template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, OpenSegment> ||
    std::is_same_v<std::remove_const_t<M>, RemoveSegment> {
  archive.text(m.name, kMaxSegmentNameBytes);
}

template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, ImportSegment> ||
    std::is_same_v<std::remove_const_t<M>, ReleaseSegment> ||
    std::is_same_v<std::remove_const_t<M>, KeepSegment> {
  archive.number(m.id);
}

template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, PutValue> {
  archive.text(m.key, kMaxKeyBytes);
  archive.text(m.value, kMaxValueBytes);
}

template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, GetValue> {
  archive.text(m.key, kMaxKeyBytes);
  archive.number(m.wait_ms);
}

template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, Value> {
  archive.text(m.value, kMaxValueBytes);
}

template <class A, class M>
void describe(A&, M&) requires std::is_same_v<std::remove_const_t<M>, Done> ||
    std::is_same_v<std::remove_const_t<M>, Leave> {}

template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, Usage> {
  archive.number(m.member);
}

template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, UsageReport> {
  archive.number(m.scratch_bytes);
  archive.number(m.buffer_bytes);
  archive.number(m.named_bytes);
  archive.number(m.imported_bytes);
  archive.number(m.member_segments);
  archive.number(m.member_references);
  archive.number(m.member_limit_bytes);
  archive.number(m.job_bytes);
  archive.number(m.job_segments);
  archive.number(m.job_limit_bytes);
  archive.number(m.broker_pid);
  archive.number(m.broker_descriptors);
  archive.number(m.broker_descriptor_limit);
}

template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, AttachLauncher> ||
    std::is_same_v<std::remove_const_t<M>, AttachObserver> {
  archive.block(m.token);
  archive.text(m.job, kMaxJobNameBytes);
}

template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, RankEnded> {
  archive.number(m.rank);
  archive.number(m.exit_code);
  archive.number(m.signal);
}

template <class A, class M>
void describe(A& archive, M& m) requires std::is_same_v<std::remove_const_t<M>, RankStarts> {
  archive.number(m.rank);
}

}  // namespace

template <class Message>
bool encode(const Message& message, std::uint32_t request, FrameWriter& out) noexcept {
  out.begin(static_cast<std::uint16_t>(Message::kType), request);
  describe(out, message);
  return out.finish();
}

template <class Message>
bool decode(const FrameView& frame, Message& out) {
  if (frame.type != static_cast<std::uint16_t>(Message::kType)) return false;
  FrameReader reader(frame.body);
  describe(reader, out);
  return reader.finish();
}

#define TUGLINE_MESSAGE(Message)                                              \
  template bool encode(const Message&, std::uint32_t, FrameWriter&) noexcept; \
  template bool decode(const FrameView&, Message&)
TUGLINE_MESSAGE(Hello);
TUGLINE_MESSAGE(Welcome);
TUGLINE_MESSAGE(Failure);
TUGLINE_MESSAGE(Done);
TUGLINE_MESSAGE(OpenSegment);
TUGLINE_MESSAGE(DepositSegment);
TUGLINE_MESSAGE(ImportSegment);
TUGLINE_MESSAGE(SegmentReply);
TUGLINE_MESSAGE(ReleaseSegment);
TUGLINE_MESSAGE(KeepSegment);
TUGLINE_MESSAGE(RemoveSegment);
TUGLINE_MESSAGE(PutValue);
TUGLINE_MESSAGE(GetValue);
TUGLINE_MESSAGE(Value);
TUGLINE_MESSAGE(Leave);
TUGLINE_MESSAGE(Usage);
TUGLINE_MESSAGE(UsageReport);
TUGLINE_MESSAGE(AttachLauncher);
TUGLINE_MESSAGE(RankEnded);
TUGLINE_MESSAGE(RankStarts);
TUGLINE_MESSAGE(AttachObserver);
#undef TUGLINE_MESSAGE

}  // namespace tugline::core
