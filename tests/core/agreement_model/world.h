// SPDX-License-Identifier: Apache-2.0
// A small world in which members run the decided record one memory access at a time. The exhaustive explorer
// and the seeded simulator both drive it; production's own protocol steps run inside, or mutants of them.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/agreement.h"

namespace tugline::core::model {

inline constexpr int kMaxRanks = 8;
inline constexpr int kMaxAgreements = 12;
inline constexpr int kMaxWords = kAgreementRecords + kMaxRanks + kMaxRanks * kAgreementRecords * 3;
inline constexpr int kMaxLog = 20;  ///< accesses of one call

enum class CallKind : std::uint8_t { none, post_complete, post_failed, advance, give_up };

/// Where a call's accesses go. May throw Paused.
class Hook {
 public:
  virtual ~Hook() = default;
  virtual std::uint64_t load(const AgreementBoard::Word& word) = 0;
  virtual void store(AgreementBoard::Word& word, std::uint64_t value) = 0;
  virtual bool swap(AgreementBoard::Word& word, std::uint64_t& expected, std::uint64_t desired) = 0;
};

/// The protocol's steps, or a mutant's.
class Protocol {
 public:
  virtual ~Protocol() = default;
  virtual Decision run(AgreementBoard& board, AgreementState& self, CallKind call, const RankSet& gone,
                       Hook& hook) const = 0;
};

/// A promise of the protocol was broken.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  int ranks = 3;
  int agreements = 2;
  int records = 2;              ///< window
  int crashes = 0;              ///< members that stop for ever, at any access
  int zombies = 0;              ///< members that are taken for dead but run on
  std::uint32_t may_fail = 0;   ///< bit per rank: may post `failed`
  std::uint32_t may_abort = 0;  ///< bit per rank: may give up instead of waiting
};

enum class Phase : std::uint8_t { computing, waiting, in_call, done, removed, crashed };

/// One member. Plain bytes: states are hashed and compared as memory.
struct Member {
  Phase phase = Phase::computing;
  CallKind call = CallKind::none;
  std::uint8_t known_gone = 0;  ///< what it has seen so far; only grows
  std::uint8_t log_size = 0;    ///< accesses of the call done so far
  // AgreementState as it was before the call.
  std::uint8_t seen = 0;
  std::uint8_t any_failed = 0;
  std::uint8_t current = 0;
  std::uint8_t verdict = 0;
  std::uint8_t agreement = 0;
  std::uint8_t epoch = 0;
  std::uint8_t lost = 0;
  std::uint8_t unused = 0;
  std::uint32_t log[kMaxLog] = {};  ///< what those accesses gave
};

/// What was decided, taken down at the moment of the swap.
struct Truth {
  std::uint8_t verdict = 0;  ///< 0: not decided yet
  std::uint8_t epoch = 0;
  std::uint8_t lost = 0;
  std::uint8_t complete = 0;  ///< ranks that posted this number complete
  std::uint8_t failed = 0;    ///< ranks that posted it failed
  std::uint8_t given_up = 0;  ///< ranks that gave up in it
};

struct State {
  std::uint8_t marked = 0;  ///< reported dead, truly or not
  std::uint8_t crashed = 0;
  std::uint8_t crashes_left = 0;
  std::uint8_t zombies_left = 0;
  Truth truth[kMaxAgreements + 1];
  Member members[kMaxRanks];
  std::uint32_t words[kMaxWords] = {};
};

/// One thing that can happen next.
struct Action {
  enum class Kind : std::uint8_t { step, crash, zombie } kind = Kind::step;
  std::uint8_t rank = 0;
  CallKind call = CallKind::none;  ///< of a step that starts a call
  std::uint8_t learns = 0;         ///< what advance() is told is gone, with what it knew
};

class World {
 public:
  World(const Protocol& protocol, const Options& options);

  State initial() const;
  /// All that can happen in `state`; faults last.
  void actions(const State& state, std::vector<Action>& result) const;
  /// Applies an action: a step goes on by up to `accesses` accesses to shared memory. Throws Violation.
  void apply(State& state, const Action& action, int accesses = 1);
  /// Every member that runs has read its last decision or knows that it was removed.
  bool finished(const State& state) const;
  std::uint64_t hash(const State& state, std::uint64_t seed) const;
  static std::string describe(const Action& action);

 private:
  class StepHook;
  void step(State& state, const Action& action, int accesses);
  void complete(State& state, int rank, const AgreementState& self, const Decision& decision);
  void decided(State& state, int rank, std::uint64_t before, std::uint64_t after);
  void forget(State& state) const;
  void load_board(const State& state);
  void save_board(State& state) const;

  const Protocol& protocol_;
  const Options options_;
  std::unique_ptr<AgreementBoard> board_;
  std::vector<AgreementBoard::Word*> words_;
};

/// Protocols under test: the true one first, then the mutants.
struct NamedProtocol {
  std::string name;
  std::unique_ptr<Protocol> protocol;
};
std::vector<NamedProtocol>& mutants();
const Protocol& true_protocol();

}  // namespace tugline::core::model
