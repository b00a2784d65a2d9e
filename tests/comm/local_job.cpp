// SPDX-License-Identifier: Apache-2.0
#include "local_job.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"
#include "base/futex.h"
#include "device/registry.h"

namespace tugline::comm::test {
namespace {

class LocalClient final : public broker::Client {
 public:
  LocalClient(LocalJob& job, int rank) : job_(job), rank_(rank) {}

  broker::MemberId member() const noexcept override { return static_cast<broker::MemberId>(rank_); }
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return job_.size(); }
  const std::string& job() const noexcept override { return name_; }
  const std::string& socket_path() const noexcept override { return name_; }
  core::ControlSegment& control() const noexcept override { return job_.control(); }
  broker::Segment open_or_create(std::string_view name, std::uint64_t bytes, broker::Lifetime,
                                 broker::SegmentKind) override {
    return job_.open_or_create(name, bytes);
  }
  broker::Segment open(std::string_view name) override { return job_.open_or_create(name, 0); }
  broker::Segment create(std::string_view name, std::uint64_t bytes, broker::Lifetime,
                         broker::SegmentKind) override {
    return job_.open_or_create(name, bytes);
  }
  broker::Segment import(broker::SegmentId id) override {
    if (id < kFirstOfTheDead) throw unused("import");
    job_.count_refused_import();
    throw Error(ErrorCode::not_found, "segment " + std::to_string(id) + " is not held any more", "");
  }
  void keep(broker::SegmentId) override { throw unused("keep"); }
  void release(broker::SegmentId id) override { job_.release(id); }
  void give_back(broker::SegmentId id) noexcept override { job_.release(id); }
  void remove(std::string_view) override { throw unused("remove"); }
  core::UsageReport usage(broker::MemberId) override { throw unused("usage"); }
  void put(std::string_view, std::string_view) override { throw unused("put"); }
  std::string get(std::string_view, std::chrono::milliseconds) override { throw unused("get"); }
  std::optional<std::string> try_get(std::string_view) override { return std::nullopt; }  // see put()
  void leave() noexcept override {
    mark_left();
    core::change_state(job_.control().members[rank_], core::MemberState::alive, core::MemberState::left);
  }

 private:
  static Error unused(const char* what) {
    return Error(ErrorCode::unsupported, std::string("the local job has no ") + what,
                 "use the real broker in this test");
  }
  LocalJob& job_;
  int rank_;
  std::string name_ = "local";
};

}  // namespace

LocalJob::LocalJob(int ranks) : ranks_(ranks), control_(std::make_unique<core::ControlSegment>()) {
  control_->magic = core::kControlMagic;
  control_->version = core::kControlVersion;
  control_->capacity = core::kMaxMembers;
  control_->world_size = static_cast<std::uint32_t>(ranks);
}

std::shared_ptr<broker::Client> LocalJob::client(int rank) {
  auto& slot = control_->members[rank];
  slot.rank.store(static_cast<std::uint32_t>(rank));
  slot.status.store(core::MemberStatus{core::MemberState::alive, core::LossCause::none, 1}.encode());
  auto client = std::make_shared<LocalClient>(*this, rank);
  std::lock_guard lock(mutex_);
  clients_[rank] = client;
  return client;
}

std::shared_ptr<broker::Client> LocalJob::client_of(int rank) const {
  std::lock_guard lock(mutex_);
  return clients_.at(rank).lock();
}

void LocalJob::kill(int rank, core::LossCause cause) {
  if (!core::mark_dead(control_->members[rank], cause, base::monotonic_ns())) return;
  control_->alarm.fetch_add(1);
  base::futex_wake(control_->alarm);
}

void LocalJob::leave(int rank) {
  core::change_state(control_->members[rank], core::MemberState::alive, core::MemberState::left);
  control_->alarm.fetch_add(1);
  base::futex_wake(control_->alarm);
}

std::size_t LocalJob::segments() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

broker::Segment LocalJob::open_or_create(std::string_view name, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  auto found = entries_.find(name);
  const bool created = found == entries_.end();
  if (created)
    found =
        entries_
            .emplace(std::string(name), Entry{next_++, bytes, base::create_sealed_memfd("local", bytes), 0})
            .first;
  Entry& entry = found->second;
  EXPECT_TRUE(bytes == 0 || entry.bytes == bytes) << name;
  ++entry.references;
  broker::Segment segment;
  segment.id = entry.id;
  segment.bytes = entry.bytes;
  segment.descriptor = base::UniqueFd(::fcntl(entry.descriptor.get(), F_DUPFD_CLOEXEC, 0));
  segment.created = created;
  return segment;
}

void LocalJob::release(broker::SegmentId id) {
  std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->second.id != id) continue;
    if (--entry->second.references == 0) entries_.erase(entry);
    return;
  }
}

void run_ranks(int ranks, const std::function<void(Communicator&, int)>& body) {
  LocalJob job(ranks);
  run_ranks(job, body);
  EXPECT_EQ(job.segments(), 0u) << "segments are left behind";
}

void run_ranks(LocalJob& job, const std::function<void(Communicator&, int)>& body) {
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::string problem;
  const auto devices = device::host_devices(job.size());
  // All are there before the first one runs: whoever ends early must not take the segments with it.
  std::vector<Communicator> communicators;
  for (int rank = 0; rank < job.size(); ++rank) {
    CommunicatorState::Identity identity;
    identity.name = "world";
    identity.rank = static_cast<std::uint32_t>(rank);
    identity.size = static_cast<std::uint32_t>(job.size());
    if (!job.are_threads) identity.process = job.process_of(rank);
    if (!job.localities.empty()) identity.locality = job.localities[static_cast<std::size_t>(rank)];
    communicators.emplace_back(
        CommunicatorState::create(job.client(rank), *devices[static_cast<std::size_t>(rank)], identity));
  }
  for (int rank = 0; rank < job.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(communicators[static_cast<std::size_t>(rank)], rank);
      } catch (const std::exception& error) {
        {
          std::lock_guard lock(mutex);
          if (problem.empty()) problem = "rank " + std::to_string(rank) + ": " + error.what();
        }
        // The others must not wait for a rank whose test has failed.
        job.kill(rank);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  if (!problem.empty()) throw std::runtime_error(problem);
}

}  // namespace tugline::comm::test
