// SPDX-License-Identifier: Apache-2.0
// The messages between a member and its broker. Each body is written and read by one description
// (messages.cpp), so the two cannot differ. A request is answered by exactly one reply with its request
// number: the type named below, or Failure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/frame.h"
#include "tugline/error.h"

namespace tugline::core {

inline constexpr std::size_t kTokenBytes = 32;
inline constexpr std::size_t kMaxJobNameBytes = 64;
inline constexpr std::size_t kMaxSegmentNameBytes = 255;
inline constexpr std::size_t kMaxKeyBytes = 255;
inline constexpr std::size_t kMaxValueBytes = 3072;
inline constexpr std::size_t kMaxFailureBytes = 1500;  ///< of each of its two texts

enum class MessageType : std::uint16_t {
  hello = 1,
  welcome,
  failure,
  done,
  open_segment,
  deposit_segment,
  import_segment,
  segment,
  release_segment,
  remove_segment,
  put_value,
  get_value,
  value,
  leave,
  usage,
  usage_report,
  attach_launcher,
  rank_ended,
  rank_starts,
  attach_observer,
  keep_segment,
};

/// What a segment is for: how the accounts are divided.
enum class SegmentKind : std::uint8_t {
  scratch,  ///< the library's own: communicators
  buffer,   ///< memory that the user allocated, or registered
  named,    ///< named memory
};

/// First frame of a connection, with a pidfd of the sender. Reply: Welcome with the control segment.
struct Hello {
  static constexpr auto kType = MessageType::hello;
  std::array<std::uint8_t, kTokenBytes> token{};
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::string job;  ///< empty: whatever job the broker serves
  friend bool operator==(const Hello&, const Hello&) = default;
};

struct Welcome {
  static constexpr auto kType = MessageType::welcome;
  std::uint32_t member = 0;
  std::uint32_t incarnation = 0;
  std::uint64_t control_bytes = 0;
  std::string job;
  friend bool operator==(const Welcome&, const Welcome&) = default;
};

/// Any request's other reply; becomes an Error at the member.
struct Failure {
  static constexpr auto kType = MessageType::failure;
  ErrorCode code = ErrorCode::internal;
  std::int32_t native_code = 0;
  std::string what_failed;
  std::string what_to_do;
  friend bool operator==(const Failure&, const Failure&) = default;
};

struct Done {
  static constexpr auto kType = MessageType::done;
  friend bool operator==(const Done&, const Done&) = default;
};

/// Opens by name. Reply: SegmentReply with the descriptor.
struct OpenSegment {
  static constexpr auto kType = MessageType::open_segment;
  std::string name;
  friend bool operator==(const OpenSegment&, const OpenSegment&) = default;
};

/// Hands over a sealed memfd. Reply: SegmentReply; carries a descriptor only when another member's segment
/// of that name was there first.
struct DepositSegment {
  static constexpr auto kType = MessageType::deposit_segment;
  std::string name;  ///< empty: anonymous
  std::uint64_t bytes = 0;
  std::uint8_t persistent = 0;
  std::uint8_t exclusive = 0;  ///< 1: an existing name is an error
  SegmentKind kind = SegmentKind::buffer;
  friend bool operator==(const DepositSegment&, const DepositSegment&) = default;
};

struct ImportSegment {
  static constexpr auto kType = MessageType::import_segment;
  std::uint64_t id = 0;
  friend bool operator==(const ImportSegment&, const ImportSegment&) = default;
};

struct SegmentReply {
  static constexpr auto kType = MessageType::segment;
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
  std::uint8_t created = 0;
  friend bool operator==(const SegmentReply&, const SegmentReply&) = default;
};

/// Gives back one reference. Reply: Done.
struct ReleaseSegment {
  static constexpr auto kType = MessageType::release_segment;
  std::uint64_t id = 0;
  friend bool operator==(const ReleaseSegment&, const ReleaseSegment&) = default;
};

/// The segment, which has a name, outlives its references from now on; nothing if its name was taken away.
/// Reply: Done.
struct KeepSegment {
  static constexpr auto kType = MessageType::keep_segment;
  std::uint64_t id = 0;
  friend bool operator==(const KeepSegment&, const KeepSegment&) = default;
};

/// Takes the name away; the memory goes with the last reference. Reply: Done.
struct RemoveSegment {
  static constexpr auto kType = MessageType::remove_segment;
  std::string name;
  friend bool operator==(const RemoveSegment&, const RemoveSegment&) = default;
};

/// Reply: Done.
struct PutValue {
  static constexpr auto kType = MessageType::put_value;
  std::string key;
  std::string value;
  friend bool operator==(const PutValue&, const PutValue&) = default;
};

/// Reply: Value, at once or when the key is there; Failure{timed_out} after wait_ms; with 0
/// Failure{not_found} at once.
struct GetValue {
  static constexpr auto kType = MessageType::get_value;
  std::string key;
  std::uint32_t wait_ms = 0;
  friend bool operator==(const GetValue&, const GetValue&) = default;
};

struct Value {
  static constexpr auto kType = MessageType::value;
  std::string value;
  friend bool operator==(const Value&, const Value&) = default;
};

/// Good-bye. Reply: Done, then the broker closes.
struct Leave {
  static constexpr auto kType = MessageType::leave;
  friend bool operator==(const Leave&, const Leave&) = default;
};

/// Asks what a member holds; kNobody: what is left of members that are gone. Also from an observer. Reply:
/// UsageReport.
struct Usage {
  static constexpr auto kType = MessageType::usage;
  static constexpr auto kNobody = static_cast<std::uint32_t>(-1);
  std::uint32_t member = 0;
  friend bool operator==(const Usage&, const Usage&) = default;
};

struct UsageReport {
  static constexpr auto kType = MessageType::usage_report;
  std::uint64_t scratch_bytes = 0;  ///< its share of those that it and others refer to
  std::uint64_t buffer_bytes = 0;   ///< of living segments that this member deposited, by kind
  std::uint64_t named_bytes = 0;
  std::uint64_t imported_bytes = 0;  ///< of buffers of others that it refers to
  std::uint64_t member_segments = 0;
  std::uint64_t member_references = 0;
  std::uint64_t member_limit_bytes = 0;  ///< on what one member may deposit; 0: none
  std::uint64_t job_bytes = 0;           ///< of all segments of the job
  std::uint64_t job_segments = 0;
  std::uint64_t job_limit_bytes = 0;  ///< 0: none
  std::uint32_t broker_pid = 0;       ///< in the broker's PID namespace
  std::uint32_t broker_descriptors = 0;
  std::uint32_t broker_descriptor_limit = 0;

  constexpr std::uint64_t member_bytes() const noexcept { return scratch_bytes + buffer_bytes + named_bytes; }
  friend bool operator==(const UsageReport&, const UsageReport&) = default;
};

/// First frame of a launcher's connection. What it says holds for as long as the connection does. Reply:
/// Done.
struct AttachLauncher {
  static constexpr auto kType = MessageType::attach_launcher;
  std::array<std::uint8_t, kTokenBytes> token{};
  std::string job;  ///< empty: whatever job the broker serves
  friend bool operator==(const AttachLauncher&, const AttachLauncher&) = default;
};

/// From a launcher: the process that was to be this rank has ended. If it never joined, it will not come.
/// Reply: Done.
struct RankEnded {
  static constexpr auto kType = MessageType::rank_ended;
  std::int32_t rank = 0;
  std::uint8_t exit_code = 0;
  std::uint8_t signal = 0;
  friend bool operator==(const RankEnded&, const RankEnded&) = default;
};

/// From a launcher: a new process is about to be this rank; takes RankEnded back. Reply: Done.
struct RankStarts {
  static constexpr auto kType = MessageType::rank_starts;
  std::int32_t rank = 0;
  friend bool operator==(const RankStarts&, const RankStarts&) = default;
};

/// First frame of an observer's connection, which may only ask for usage and keeps nobody alive. Reply:
/// Welcome without a member (kMaxMembers), with the control segment if the job has members.
struct AttachObserver {
  static constexpr auto kType = MessageType::attach_observer;
  std::array<std::uint8_t, kTokenBytes> token{};
  std::string job;  ///< empty: whatever job the broker serves
  friend bool operator==(const AttachObserver&, const AttachObserver&) = default;
};

/// Encodes a whole frame. False when a text is too long; the writer's bytes must not be sent then.
template <class Message>
bool encode(const Message& message, std::uint32_t request, FrameWriter& out) noexcept;

/// Decodes the body of a frame whose type is Message::kType. False when it is not exactly one such body.
template <class Message>
bool decode(const FrameView& frame, Message& out);

}  // namespace tugline::core
