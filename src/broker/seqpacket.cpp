// SPDX-License-Identifier: Apache-2.0
#include "broker/seqpacket.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/clock.h"

namespace tugline::broker {
namespace {

// The kernel's SCM_MAX_FD: with room for all of them nothing is cut off unless our own table is full.
constexpr std::size_t kMaxDescriptorsInMessage = 253;

void take_descriptors(msghdr& header, std::vector<base::UniqueFd>& out) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const auto count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      out.emplace_back(descriptor);
    }
  }
}

}  // namespace

Received receive_message(int socket, FrameBuffer& buffer) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptorsInMessage * sizeof(int))> control;
  Received result;
  // A peer that closes with unread input makes one read fail with ECONNRESET before the frames that it did
  // send can be read; those matter (they say why).
  bool seen_reset = false;
  for (;;) {
    iovec part{buffer.data(), buffer.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const auto bytes = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (bytes < 0) {
      if (errno == EINTR) continue;
      if (errno == ECONNRESET && !seen_reset) {
        seen_reset = true;
        continue;
      }
      result.outcome =
          errno == EAGAIN || errno == EWOULDBLOCK ? ReceiveOutcome::nothing : ReceiveOutcome::closed;
      return result;
    }
    take_descriptors(header, result.descriptors);
    result.bytes = static_cast<std::size_t>(bytes);
    // An empty message reads like the end of the stream; the protocol has none.
    result.outcome = bytes == 0 ? ReceiveOutcome::closed : ReceiveOutcome::message;
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
      result.descriptors.clear();
      result.outcome =
          (header.msg_flags & MSG_TRUNC) != 0 ? ReceiveOutcome::malformed : ReceiveOutcome::cut_off;
    }
    return result;
  }
}

SendOutcome send_message(int socket, std::span<const std::byte> bytes, int descriptor) noexcept {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  }
  for (;;) {
    if (::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return SendOutcome::sent;
    switch (errno) {
      case EINTR:
        continue;
      case EAGAIN:
      case ENOBUFS:
        return SendOutcome::full;
      case ETOOMANYREFS:
      case ENOMEM:
        return SendOutcome::too_many_descriptors;
      default:
        return SendOutcome::closed;
    }
  }
}

bool wait_for(int socket, short events, std::uint64_t deadline_ns) noexcept {
  for (;;) {
    const auto sleep = base::sleep_until(deadline_ns);
    // Rounded up, so that the last millisecond is not spent spinning.
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(sleep).count();
    pollfd entry{socket, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(milliseconds));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the following read or write reports what is wrong
    if (milliseconds == 0) return false;
  }
}

}  // namespace tugline::broker
