// SPDX-License-Identifier: Apache-2.0
// Creation, submission and execution. Failure is in failure.cpp, agreement in agree.cpp.
#include "comm/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/fork.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/shared_memory.h"
#include "comm/protocol.h"
#include "comm/same_settings.h"
#include "comm/selection.h"
#include "core/plan/builders.h"

namespace tugline::comm {
namespace {

// Plans kept per communicator; programs of odd sizes are built again.
constexpr std::size_t kPlanCacheSize = 256;

class Exclusive {
 public:
  explicit Exclusive(std::atomic<bool>& busy) noexcept
      : busy_(busy), held_(!busy.exchange(true, std::memory_order_acquire)) {}
  ~Exclusive() {
    if (held_) busy_.store(false, std::memory_order_release);
  }
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;
  bool held() const noexcept { return held_; }

 private:
  std::atomic<bool>& busy_;
  bool held_;
};

// Plans have their blocks one behind the other; the caller's lie where the displacements say.
void displace(core::Plan& plan, std::int32_t own, const Counts& counts, std::uint64_t element_bytes) {
  const auto move = [&](core::Place& place, const std::vector<std::size_t>& sizes,
                        const std::vector<std::size_t>& displacements) {
    std::uint64_t begin = 0;
    for (std::size_t block = 0; block < sizes.size(); ++block) {
      const std::uint64_t bytes = sizes[block] * element_bytes;
      if (place.offset < begin + bytes) {
        place.offset = displacements[block] * element_bytes + (place.offset - begin);
        return;
      }
      begin += bytes;
    }
  };
  for (auto& channels : plan.programs)
    for (auto& program : channels)
      for (core::Step& step : program)
        for (core::Place* place : {&step.destination, &step.source}) {
          if (step.bytes == 0 || place->rank != own) continue;  // others' lie where these have said
          if (place->space == core::Space::input) move(*place, counts.send, counts.send_displacements);
          if (place->space == core::Space::output) move(*place, counts.recv, counts.recv_displacements);
        }
}

}  // namespace

std::shared_ptr<CommunicatorState> CommunicatorState::create(std::shared_ptr<broker::Client> client,
                                                             Device& device, Identity identity) {
  return std::shared_ptr<CommunicatorState>(
      new CommunicatorState(std::move(client), device, std::move(identity)));
}

CommunicatorState::CommunicatorState(std::shared_ptr<broker::Client> client, Device& device,
                                     Identity identity)
    : client_(std::move(client)),
      memory_(memory::MemberMemory::of(client_)),
      device_(device),
      identity_(std::move(identity)),
      control_(&client_->control()),
      requests_(device) {
  if (identity_.process == 0) identity_.process = base::process_identity();
  register_for_naps();
  place_.own_core = identity_.own_core;
  waiting_decided_ = !identity_.members.empty();
  place_.control = control_;
  place_.communicator = identity_.name;
  place_.member = client_->member();
  place_.member_of = [this](std::int32_t rank) {
    const auto epoch = current();
    return member_of(epoch->originals[static_cast<std::size_t>(rank)]);
  };
  place_.about_rank = [this](std::int32_t rank) { return not_yet_joined(rank); };
  scratch_bytes_ = rank_scratch_bytes(identity_.size, base::settings().scratch_bytes);
  std::vector<std::uint32_t> everyone(identity_.size);
  std::iota(everyone.begin(), everyone.end(), 0u);
  enter_first_epoch(std::move(everyone));
}

CommunicatorState::~CommunicatorState() = default;

std::shared_ptr<const MappedBoard> CommunicatorState::open_board(const std::string& name) {
  auto segment = client_->open_or_create(name, sizeof(Board), broker::Lifetime::referenced);
  memory::SegmentReference reference(client_, segment.id);  // before anything can fail
  base::Mapping mapping(segment.descriptor.get(), sizeof(Board), base::Access::read_write);
  auto board = std::make_shared<MappedBoard>(MappedBoard{std::move(reference), std::move(mapping)});
  publish_cores(board->get());
  board->get().processes[identity_.rank].store(identity_.process, std::memory_order_relaxed);
  note_settings(board->get(), identity_.rank);
  board->get().members[identity_.rank].store(client_->member() + 1, std::memory_order_seq_cst);
  // Before anything is made whose size follows from them.
  const bool differs = compare_settings(board->get(), identity_.rank, identity_.size);
  const auto different = different_settings(board->get());
  std::optional<std::string> what;
  // The board goes with those who find out; a rank that makes the next one asks for what they have left.
  const std::string key = fmt::format("{}/different_settings", name);
  if (different) what = describe(board->get(), *different);
  if (segment.created && !different) what = client_->try_get(key);
  if (differs) {
    client_->put(key, *what);
    raise_alarm();
    for (std::uint32_t rank = 0; rank < identity_.size; ++rank) ring(board->get().doorbells[rank]);
  }
  if (what)
    throw settings_error(*what, {.operation = "making the communicator",
                                 .communicator = identity_.name,
                                 .rank = static_cast<int>(identity_.rank)});
  return board;
}

std::shared_ptr<Epoch> CommunicatorState::make_epoch(std::shared_ptr<const MappedBoard> board, EpochId id,
                                                     std::vector<std::uint32_t> originals) {
  const auto ranks = static_cast<std::uint32_t>(originals.size());
  const auto layout = BankLayout::make(ranks, scratch_bytes_, pair_scratch_bytes(ranks));
  auto segment = client_->open_or_create(fmt::format("comm/{}/bank/{}", identity_.name, id.path),
                                         layout.total, broker::Lifetime::referenced);
  memory::SegmentReference reference(client_, segment.id);  // before anything can fail
  base::Mapping mapping(segment.descriptor.get(), layout.total, base::Access::read_write);
  const auto rank = static_cast<std::uint32_t>(std::find(originals.begin(), originals.end(), identity_.rank) -
                                               originals.begin());
  auto epoch =
      std::make_shared<Epoch>(std::move(board), std::move(reference), Bank(std::move(mapping), layout),
                              std::move(id), rank, std::move(originals));
  // Pages are populated by the rank that writes them: they are charged to it and lie in its memory, and a
  // shortage is an error here instead of a signal later.
  base::populate(epoch->bank.base(), layout.control_end);
  base::populate(epoch->bank.scratch(rank), layout.rank_bytes);
  epoch->bank.progress(rank).present.store(1, std::memory_order_release);
  if (anybody_sleeps(epoch->bank.header().sleepers)) ring_everyone(*epoch);
  return epoch;
}

void CommunicatorState::enter_first_epoch(std::vector<std::uint32_t> originals) {
  own_decisions_ = 0;
  settlements_ = 0;
  EpochId id{"0", 0};
  std::string name = fmt::format("comm/{}", identity_.name);
  if (identity_.parent) {
    const auto above = identity_.parent->current();
    id = {above->path + ".0", above->generation << 16};
    name += fmt::format("/board/{}", id.path);
  }
  const auto previous = current();  // agreement_ is about to leave its board
  enter_epoch(make_epoch(open_board(name), std::move(id), std::move(originals)));
  agreement_.emplace(board().agreements, identity_.rank, identity_.size);
  place_.doorbell = &board().doorbells[identity_.rank];
}

void CommunicatorState::enter_next_epoch(std::vector<std::uint32_t> originals) {
  ++own_decisions_;
  const auto& path = epoch_->path;
  const auto last = path.rfind('.');
  const std::string above = last == std::string::npos ? std::string() : path.substr(0, last + 1);
  EpochId id{fmt::format("{}{}", above, own_decisions_), epoch_->generation + 1};
  enter_epoch(make_epoch(epoch_->board, std::move(id), std::move(originals)));
}

void CommunicatorState::enter_epoch(std::shared_ptr<Epoch> next) {
  const auto previous = current();
  {
    std::lock_guard lock(epoch_mutex_);
    position_.store(&positions_.emplace_back(Position{next->rank, next->size, next->generation}),
                    std::memory_order_release);
    epoch_ = next;
  }
  plans_.clear();
  splits_ = 0;
  place_.sleepers = &next->bank.header().sleepers;
  place_.epoch = next.get();
  {
    std::lock_guard lock(status_mutex_);
    status_ = {};
    failed_.store(false, std::memory_order_release);
  }
}

void CommunicatorState::submit(Call call, const Target& target) {
  client_->require_member(core::name_of(call.collective));
  const Position& epoch = position();
  validate(call, epoch.rank, epoch.size, name());
  call.generation = epoch.generation;
  if (call.is_message() && static_cast<std::uint32_t>(call.root) == epoch.rank && target.group() == nullptr)
    throw Error(ErrorCode::invalid_usage,
                fmt::format("rank {} sends to or receives from itself outside a group", epoch.rank),
                "put the send and the recv into one Group",
                {.operation = to_text(describe(call), call.direction),
                 .communicator = name(),
                 .rank = static_cast<int>(epoch.rank),
                 .peer = static_cast<int>(epoch.rank)});
  if (target.group() != nullptr) {
    add_to_group(target.group()->state(), shared_from_this(), std::move(call));
    return;
  }
  if (target.request() != nullptr) {
    begin_request(*target.request(), [this, call] {
      if (Status status = execute(call); !status.ok()) throw to_error(status, call);
    });
    return;
  }
  if (target.has_stream()) {
    requests_.hold_back(target.stream());
    // The task throws the whole error, so that the stream can tell it; the communicator keeps its status for
    // agree().
    target.stream().launch([self = shared_from_this(), call]() -> Status {
      if (Status status = self->execute(call); !status.ok()) throw self->to_error(status, call);
      return {};
    });
    return;
  }
  requests_.drain();
  // Behind the stream's work, but not on it: another thread of this rank may be in another communicator,
  // whose peers wait for it before they come to this call.
  const auto behind = []() -> Status { return {}; };
  if (Status status = device_.run(device_.default_stream().get(), behind); !status.ok())
    throw to_error(status, call);
  if (Status status = execute(call); !status.ok()) throw to_error(status, call);
}

void CommunicatorState::begin_request(Request& request, std::function<void()> operation) {
  if (request.valid() && !request.is_done())
    throw Error(ErrorCode::invalid_usage, "the request's earlier operation is still running",
                "call wait() first, or use another Request", {.communicator = name()});
  request.begin(std::make_shared<RequestState>(shared_from_this(), requests_.launch(std::move(operation))));
}

Status CommunicatorState::execute(const Call& call) {
  Exclusive exclusive(busy_);
  if (!exclusive.held()) return {ErrorCode::invalid_usage};
  return execute_exclusively(call);
}

Status CommunicatorState::execute_exclusively(const Call& call) {
  // Enqueued before this rank left.
  if (client_->standing() != broker::Standing::member) return {ErrorCode::invalid_usage};
  Epoch& epoch = *epoch_;  // only agree() replaces it, which holds the busy word too
  if (call.generation != epoch.generation) return {ErrorCode::stale_epoch, -1};
  if (failed_.load(std::memory_order_acquire)) return status();
  if (epoch.size == 1) return run_alone(call);
  if (!waiting_decided_) decide_how_to_wait();

  // The executor sees to it that nobody leaves a bank's first packet behind and goes.
  const bool all_hold_the_bank = epoch.sequence != 0 || !call.has_root();
  if (const auto& settings = base::settings();
      fits_one_shot_packet(call, epoch.size) && all_hold_the_bank && !forced_plan_ && settings.plan.empty()) {
    auto alarm = [&](std::uint64_t sequence) { return look_at_alarm({sequence}); };
    PacketResult result = run_one_shot_packet(epoch, board(), place_, alarm, call);
    if (result.difference)
      raise_mismatch(FailureKind::mismatch, *result.difference);
    else if (result.status.code == ErrorCode::mismatch)
      raise_passed_over(epoch.sequence, result.status, describe(call));
    if (!result.status.ok()) remember(result.status);
    return result.status;
  }
  AnyRun room;
  Run& run = *make_run(call, room);
  auto poll = [&] {
    const Poll result = run.advance();
    return run.has_failed() ? Poll::done : result;
  };
  auto subject = [&] { return run.subject(); };
  auto alarm = [&] {
    run.look_for_mismatch();
    return look_at_alarm(run.pending());
  };
  return settle(run, wait(place_, poll, alarm, subject));
}

Status CommunicatorState::settle(const Run& run, Status status) {
  if (const auto& difference = run.difference()) {
    status = {ErrorCode::mismatch, difference->peer};
    const bool message = run.pending().peer >= 0;
    raise_mismatch(message ? FailureKind::pair_mismatch : FailureKind::mismatch, *difference);
  } else if (run.mapping_error()) {
    abort(
        fmt::format("a buffer of a peer cannot be mapped for a direct plan: {}; set TUGLINE_ZERO_COPY to "
                    "false to go on without",
                    run.mapping_error()->what_failed()));
    return this->status();
  } else if (status.code == ErrorCode::mismatch) {
    // By the record of another rank, which stands, or because a rank is in agree().
    raise_passed_over(run.sequence(), status, run.descriptor());
  }
  if (run.is_direct()) direct_operations_.fetch_add(1, std::memory_order_relaxed);
  if (!status.ok()) remember(status);
  return status;
}

// One rank: every collective is a copy of the input to the output.
Status CommunicatorState::run_alone(const Call& call) noexcept {
  if (call.count == 0 || call.send == nullptr || call.recv == nullptr) return {};
  const auto* from = static_cast<const std::byte*>(call.send);
  auto* to = static_cast<std::byte*>(call.recv);
  std::uint64_t bytes = call.bytes();
  if (call.counts && call.counts->of_pairs()) {
    from += call.counts->send_displacements[0] * size_of(call.type);
    to += call.counts->recv_displacements[0] * size_of(call.type);
    bytes = call.counts->send[0] * size_of(call.type);
  }
  if (call.factor) {
    multiply_kernel(call.type)(to, from, call.count, *factor_bits(call));
  } else if (from != to) {
    std::memmove(to, from, bytes);
  }
  return {};
}

Run* CommunicatorState::make_run(const Call& call, AnyRun& room) {
  Epoch& epoch = *epoch_;
  if (call.is_message()) return &room.emplace<MessageRun>(epoch, board(), call, message_reach(call, epoch));
  if (epoch.size == 1) {
    (void)run_alone(call);
    return nullptr;
  }
  return &room.emplace<PlanRun>(epoch, board(), plan_source(call, epoch), call, direct_option(call, epoch));
}

void CommunicatorState::begin_exclusive(const Call& call) {
  client_->require_member(core::name_of(call.collective));
  if (busy_.exchange(true, std::memory_order_acquire)) throw to_error({ErrorCode::invalid_usage}, call);
  Status status = failed_.load(std::memory_order_acquire) ? this->status() : Status{};
  if (status.ok() && call.generation != epoch_->generation) status = {ErrorCode::stale_epoch, -1};
  if (!status.ok()) {
    end_exclusive();
    throw to_error(status, call);
  }
  if (epoch_->size > 1 && !waiting_decided_) decide_how_to_wait();
}

std::optional<DirectOption> CommunicatorState::direct_option(const Call& call, Epoch& epoch) {
  // What pairs exchange may be much at one rank and little at another: then all look.
  const bool pairs = call.counts && call.counts->of_pairs();
  if (call.bytes() < kDirectFromBytes && !pairs) return std::nullopt;
  memory_->imports().drop_retired();  // what peers have freed goes, also where nothing is reached any more
  DirectOption option;
  const auto& settings = base::settings();
  const bool other_plan = forced_plan_ != nullptr || !(settings.plan.empty() || settings.plan == "direct");
  if (!settings.zero_copy || other_plan) return option;
  option.offer = make_offer(call, epoch.rank, epoch.size, memory_->windows(), all_in_one_process(epoch));
  if (!option.offers()) return option;
  if (pairs) {
    // In place, blocks would have to change places through something.
    if (call.in_place(epoch.rank)) option.offer = {};
    option.later = [this, &epoch](const Call& own, std::uint64_t sequence) {
      return direct_pairs_plan(own, epoch, sequence);
    };
  } else {
    option.plan = plan_for(call, epoch, Reach::all_buffers);
    if (!option.plan || !option.plan->direct) option.offer = {};
  }
  option.imports = &memory_->imports();
  option.limits = option.imports->limits();
  option.process = identity_.process;
  option.may_store = who_may_store(epoch);
  return option;
}

MessageReach CommunicatorState::message_reach(const Call& call, Epoch& epoch) {
  MessageReach reach;
  if (call.bytes() < kDirectMessageBytes) return reach;
  memory_->imports().drop_retired();
  reach.imports = &memory_->imports();
  reach.process = identity_.process;
  const auto& settings = base::settings();
  const bool other_plan = !(settings.plan.empty() || settings.plan == "direct");
  if (!call.is_send() || !settings.zero_copy || other_plan) return reach;
  const auto& board = epoch.board->get();
  const auto peer = epoch.originals[static_cast<std::size_t>(call.root)];
  if (const auto found = memory_->windows().find(call.send, call.bytes())) {
    reach.reach = Offer::Reach::everyone;
    reach.window = *found;
  } else if (board.members[peer].load(std::memory_order_acquire) != 0 &&
             board.processes[peer].load(std::memory_order_relaxed) == identity_.process) {
    reach.reach = Offer::Reach::threads;
  }
  if (reach.reach != Offer::Reach::none) reach.may_store = who_may_store(epoch);
  return reach;
}

bool CommunicatorState::all_in_one_process(Epoch& epoch) const noexcept {
  if (epoch.one_process) return *epoch.one_process;
  const auto& board = epoch.board->get();
  for (const auto original : epoch.originals) {
    if (board.members[original].load(std::memory_order_acquire) == 0) return false;
    if (board.processes[original].load(std::memory_order_relaxed) != identity_.process)
      return *(epoch.one_process = false);
  }
  return *(epoch.one_process = true);
}

std::shared_ptr<const core::Plan> CommunicatorState::direct_pairs_plan(const Call& call, const Epoch& epoch,
                                                                       std::uint64_t sequence) const {
  const std::uint64_t element = size_of(call.type);
  core::PlanRequest request{.collective = call.collective,
                            .ranks = static_cast<std::int32_t>(epoch.size),
                            .element_bytes = element,
                            .direct = true,
                            .only_rank = static_cast<std::int32_t>(epoch.rank)};
  for (const auto* counts : {&call.counts->send, &call.counts->recv})
    for (const std::size_t count : *counts) request.bytes += request.blocks.emplace_back(count * element);
  for (std::uint32_t peer = 0; peer < epoch.size; ++peer)
    request.peer_begins.push_back(
        epoch.bank.counts(peer, sequence)[2 * epoch.size + epoch.rank].load(std::memory_order_relaxed) *
        element);
  auto plan = std::make_shared<core::Plan>(core::build_direct(request));
  displace(*plan, request.only_rank, *call.counts, element);
  return plan;
}

PlanSource CommunicatorState::plan_source(const Call& call, Epoch& epoch) {
  PlanSource source{.plan = plan_for(call, epoch)};
  if (!source.plan) source.later = [this, &epoch](const Call& own) { return plan_for(own, epoch); };
  return source;
}

std::shared_ptr<const core::Plan> CommunicatorState::plan_for(const Call& call, Epoch& epoch, Reach reach) {
  core::PlanRequest request;
  request.collective = call.collective;
  request.ranks = static_cast<std::int32_t>(epoch.size);
  request.root = call.has_root() ? call.root : 0;
  request.element_bytes = size_of(call.type);
  request.bytes = call.bytes();
  request.in_place = call.in_place(epoch.rank);
  request.average = call.reduces() && call.op == ReduceOp::avg;
  request.pre_multiplied = call.factor.has_value();
  request.direct = reach == Reach::all_buffers;
  request.only_rank = static_cast<std::int32_t>(epoch.rank);
  request.scratch_bytes = epoch.bank.layout().scratch_bytes / kHalves;
  if (forced_plan_ && forced_plan_->collective == request.collective &&
      forced_plan_->ranks == request.ranks && forced_plan_->bytes == request.bytes &&
      forced_plan_->root == request.root && forced_plan_->average == request.average &&
      (forced_plan_->in_place == request.in_place || !call.needs_send(epoch.rank) ||
       !call.needs_recv(epoch.rank)))
    return forced_plan_;

  if (call.counts) {
    const std::uint64_t element = size_of(call.type);
    for (const std::size_t count : call.counts->send) request.blocks.push_back(count * element);
    for (const std::size_t count : call.counts->recv) request.blocks.push_back(count * element);
    request.bytes = std::accumulate(request.blocks.begin(), request.blocks.end(), std::uint64_t{0});
  }
  const Descriptor descriptor = describe(call);
  // With counts only a place to look: same_counts() decides.
  std::uint64_t sizes = descriptor.count;
  for (const std::uint64_t bytes : request.blocks) sizes = (sizes ^ bytes) * 0x9e3779b97f4a7c15u;
  const PlanKey key{descriptor.kind & ~std::uint64_t{0xff0000}, sizes,
                    static_cast<std::uint64_t>(request.in_place) |
                        static_cast<std::uint64_t>(request.average) << 1 |
                        static_cast<std::uint64_t>(request.direct) << 2 |
                        static_cast<std::uint64_t>(request.pre_multiplied) << 3};
  const auto same_counts = [&](const CachedPlan& cached) {
    return cached.counts == call.counts || (call.counts && cached.counts && *cached.counts == *call.counts);
  };
  if (auto found = plans_.find(key); found != plans_.end() && same_counts(found->second))
    return found->second.plan;
  core::CostModel where;
  const auto rules = rules_of_settings();
  if (depends_on_machine(request, rules)) {
    const auto* known = machine(epoch);
    if (known == nullptr) return nullptr;
    where = *known;
    request.groups = where.groups;
  }
  const Choice choice = choose_builder(request, where, rules);
  base::log(base::LogLevel::debug, "{} of {} bytes: plan {}", name_of(request.collective), request.bytes,
            choice.builder);
  auto plan = std::make_shared<core::Plan>(core::build(choice.builder, request));
  if (call.counts && call.counts->of_pairs())
    displace(*plan, request.only_rank, *call.counts, request.element_bytes);
  if (plans_.size() >= kPlanCacheSize) plans_.clear();
  plans_.insert_or_assign(key, CachedPlan{plan, call.counts});
  return plan;
}

}  // namespace tugline::comm
