// SPDX-License-Identifier: Apache-2.0
// Communicators: collectives and send/recv among the ranks of a job.
//
// Every call names its buffers, the number of elements, the type, and where it runs (`Target`): without one
// it blocks and throws its own error; with a stream it is enqueued, never blocks the host, is capturable, and
// its error becomes the stream's and the communicator's; with a Request it runs beside the caller, who waits
// for it later; with a Group it is collected and runs with the rest of the group. A blocking call runs after
// the work that the communicator has enqueued on its device's default stream only; order it against other
// streams by events.
//
// All ranks make the same calls in the same order. A difference (collective, count, type, operator, root,
// order) is Error{mismatch} on every rank, of a message on its receiver at least; it names both sides' calls.
// Who needs nobody's data (the root of a broadcast or scatter, everybody but the root of a reduce or gather)
// may return before the others have called; it hears of a difference at a later call, at the latest at
// agree(). Copies of a communicator mean the same one. Thread safety: one operation of it runs at a time; a
// second at once is Error{invalid_usage}. Operations of different communicators run at once, in threads or on
// streams of their own, in any order on each rank. abort() and status() may be called from any thread at any
// time.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tugline/device.h"
#include "tugline/error.h"
#include "tugline/export.h"
#include "tugline/outcome.h"
#include "tugline/types.h"

namespace tugline {

namespace comm {
class CommunicatorState;
class GroupState;
class RequestState;
}  // namespace comm

/// An operation that goes on beside its caller, as MPI's non-blocking calls: `comm.all_reduce(..., request)`,
/// other work, `request.wait()`. The buffers belong to the operation until it is done. Operations that one
/// communicator has begun so run one after the other, in the order of the calls, on one thread that the
/// communicator keeps for them, and need no help of the caller; what must go on at once, such as a send and a
/// receive, goes into a Group. Blocking calls, agree(), split(), streams and groups that come later run
/// behind them. Not thread-safe.
class TUGLINE_EXPORT Request {
 public:
  Request() noexcept;
  /// Waits for the operation: it uses the caller's buffers. Its error, if nobody has asked, stays the
  /// communicator's.
  ~Request();
  Request(Request&&) noexcept;
  Request& operator=(Request&&) noexcept;
  /// True while an operation was begun whose end nobody has waited for.
  bool valid() const noexcept { return state_ != nullptr; }
  /// True when wait() would not block. Never blocks.
  bool is_done() const noexcept;
  /// Blocks until the operation is done, and throws its error if it has one. The request is empty afterwards.
  void wait();

  comm::RequestState* state() const noexcept { return state_.get(); }
  /// For Communicator and Group. Throws invalid_usage when another operation is in flight.
  void begin(std::shared_ptr<comm::RequestState> state);

 private:
  std::shared_ptr<comm::RequestState> state_;
};

/// Calls over one or many communicators that run together: none of them waits for another one to finish
/// first, so a rank may send and receive at once, and one thread may drive several ranks. Not thread-safe.
class TUGLINE_EXPORT Group {
 public:
  Group();
  ~Group();
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  /// Runs all collected calls and blocks until all are done; throws the first error after all have ended.
  void run();
  /// Enqueues all collected calls as one unit. The group is empty afterwards.
  void run(StreamRef stream);
  /// Begins all collected calls as one operation that goes on beside the caller. They are of one
  /// communicator.
  void run(Request& request);
  std::size_t size() const;
  comm::GroupState& state() const;

 private:
  std::unique_ptr<comm::GroupState> state_;
};

/// Where a call runs: nowhere named (blocking), a stream, a group, or beside the caller.
class Target {
 public:
  Target() noexcept = default;
  Target(StreamRef stream) noexcept : device_(&stream.device()), stream_(stream.get()) {}
  Target(const Stream& stream) noexcept : Target(stream.ref()) {}
  Target(Group& group) noexcept : group_(&group) {}
  Target(Request& request) noexcept : request_(&request) {}
  bool blocking() const noexcept { return device_ == nullptr && group_ == nullptr && request_ == nullptr; }
  Request* request() const noexcept { return request_; }
  Group* group() const noexcept { return group_; }
  bool has_stream() const noexcept { return device_ != nullptr; }
  StreamRef stream() const noexcept { return {*device_, stream_}; }

 private:
  Device* device_ = nullptr;
  std::uintptr_t stream_ = 0;
  Group* group_ = nullptr;
  Request* request_ = nullptr;
};

class TUGLINE_EXPORT Communicator {
 public:
  explicit Communicator(std::shared_ptr<comm::CommunicatorState> state) noexcept : state_(std::move(state)) {}

  int rank() const;  ///< 0 .. size()-1; changes when an agreement shrinks the communicator
  int size() const;
  std::uint64_t epoch() const;
  const std::string& name() const;

  /// output[i] = op over all ranks of input[i]. `send == recv` is in place. Here and below `op` is a
  /// ReduceOp, or Reduction::pre_mul_sum(factor), and buffers may begin at any address.
  void all_reduce(const void* send, void* recv, std::size_t count, DataType type, Reduction op,
                  Target target = {});
  /// recv holds size() blocks of `count` elements, block r from rank r. In place: send == recv + rank() *
  /// count.
  void all_gather(const void* send, void* recv, std::size_t count, DataType type, Target target = {});
  /// send holds size() blocks of `count` elements; recv = op over all ranks of block rank(). In place: recv
  /// == send + rank() * count.
  void reduce_scatter(const void* send, void* recv, std::size_t count, DataType type, Reduction op,
                      Target target = {});
  /// At the root, recv[i] = op over all ranks of send[i]; the others' recv is not touched and may be null. In
  /// place: send == recv at the root.
  void reduce(const void* send, void* recv, std::size_t count, DataType type, Reduction op, int root,
              Target target = {});
  /// At the root, recv holds size() blocks of `count` elements, block r from rank r; the others' recv is not
  /// touched and may be null. In place: send == recv + root * count at the root.
  void gather(const void* send, void* recv, std::size_t count, DataType type, int root, Target target = {});
  /// At the root, send holds size() blocks of `count` elements; recv = block rank(). The others' send is not
  /// read and may be null. In place: recv == send + root * count at the root.
  void scatter(const void* send, void* recv, std::size_t count, DataType type, int root, Target target = {});
  /// recv = root's send. `send` is read at the root only, and may be null elsewhere. In place: send == recv.
  void broadcast(const void* send, void* recv, std::size_t count, DataType type, int root,
                 Target target = {});
  /// Block r of send goes to rank r; block r of recv comes from rank r; `count` elements a block. In place
  /// allowed.
  void all_to_all(const void* send, void* recv, std::size_t count, DataType type, Target target = {});
  /// As all_gather, with blocks of different sizes: `counts` has one value for every rank, the same on all
  /// ranks, and recv holds the blocks one behind the other. In place: send == recv + the counts before
  /// rank().
  void all_gather_v(const void* send, void* recv, std::span<const std::size_t> counts, DataType type,
                    Target target = {});
  /// As reduce_scatter, with blocks of different sizes, likewise. In place: recv == send + the counts before
  /// rank().
  void reduce_scatter_v(const void* send, void* recv, std::span<const std::size_t> counts, DataType type,
                        Reduction op, Target target = {});
  /// Rank r gets send_counts[r] elements from send + send_displacements[r]; recv_counts[r] elements of rank r
  /// come to recv + recv_displacements[r], where blocks do not overlap. What r sends to this rank must be
  /// what this rank expects of r: a difference is Error{mismatch} on every rank. In place: send == recv with
  /// equal counts and displacements both ways.
  void all_to_all_v(const void* send, std::span<const std::size_t> send_counts,
                    std::span<const std::size_t> send_displacements, void* recv,
                    std::span<const std::size_t> recv_counts, std::span<const std::size_t> recv_displacements,
                    DataType type, Target target = {});
  /// Matches the receiver's recv in order. Use a Group to send and receive at once.
  void send(const void* buffer, std::size_t count, DataType type, int peer, Target target = {});
  void recv(void* buffer, std::size_t count, DataType type, int peer, Target target = {});
  /// Returns (or lets the stream go on) when all ranks have come.
  void barrier(Target target = {});

  /// The same in place, for anything with contiguous elements: a Buffer, std::span, std::vector, array.
  template <ElementRange Elements>
  void all_reduce(Elements&& inout, Reduction op, Target target = {}) {
    all_reduce(std::data(inout), std::data(inout), std::size(inout), kDataTypeOf<Elements>, op, target);
  }
  template <ElementRange Elements>
  void reduce(Elements&& inout, Reduction op, int root, Target target = {}) {
    reduce(std::data(inout), std::data(inout), std::size(inout), kDataTypeOf<Elements>, op, root, target);
  }
  template <ElementRange Elements>
  void broadcast(Elements&& inout, int root, Target target = {}) {
    broadcast(std::data(inout), std::data(inout), std::size(inout), kDataTypeOf<Elements>, root, target);
  }

  /// Settles all operations since the last agreement, of this communicator and all split from it: same
  /// outcome at every survivor. After a loss the communicator is smaller, in a new epoch, and usable at once;
  /// after an abort it is in a new epoch too. Blocks until decided. Throws stale_epoch at a rank that was
  /// removed, broker_lost, and mismatch when another rank is in an operation that this one has passed over.
  /// All enqueued operations of the family must have ended: sync their streams, or name the stream.
  Outcome agree();
  /// As agree(), after the work enqueued on `stream` has ended. Errors of this communicator's operations on
  /// that stream are settled by the outcome and not thrown.
  Outcome agree(StreamRef stream);

  /// Ranks of equal `color` form a new communicator, ordered by `key`, then rank. Collective. color < 0:
  /// none, the returned communicator is empty (valid() is false).
  Communicator split(int color, int key);
  bool valid() const noexcept { return state_ != nullptr; }

  /// Ends all operations of this communicator, here and at all other ranks, with Error{aborted} that carries
  /// `reason`. Callable from any thread. Afterwards every call fails so until all ranks have called agree().
  void abort(std::string_view reason);
  /// Asynchronous error of this communicator, ok if none. Never blocks.
  Status status() const;
  /// Throws the asynchronous error in full text, if there is one.
  void check() const;

  comm::CommunicatorState& state() const;

 private:
  std::shared_ptr<comm::CommunicatorState> state_;
};

}  // namespace tugline
