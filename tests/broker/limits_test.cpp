// SPDX-License-Identifier: Apache-2.0
// 64 open files for everybody, broker and ranks: the job runs, and what does not fit is an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "broker/place.h"
#include "expect_error.h"
#include "support.h"

namespace tugline::broker::testing {
namespace {

void limit_open_files(rlim_t count) {
  const rlimit limit{count, count};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::runtime_error("setrlimit failed");
}

JoinRequest request_of(const std::string& job, int rank, int size) {
  JoinRequest request;
  request.job = job;
  request.rank = rank;
  request.size = size;
  return request;
}

TEST(OpenFiles, SixtyFourAreEnoughForAJob) {
  constexpr int kRanks = 4;
  const auto job = fresh_job();
  std::vector<std::unique_ptr<Child>> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.push_back(std::make_unique<Child>([&, rank] {
      limit_open_files(64);  // the broker inherits it
      const auto member = Client::join(request_of(job, rank, kRanks));
      const auto mine = member->create("from " + std::to_string(rank), 4096, Lifetime::referenced);
      member->put("made " + std::to_string(rank), "1");
      for (int other = 0; other < kRanks; ++other) {
        member->get("made " + std::to_string(other), 20s);
        if (member->open("from " + std::to_string(other)).bytes != 4096) return 1;
      }
      member->put("opened " + std::to_string(rank), "1");
      for (int other = 0; other < kRanks; ++other) member->get("opened " + std::to_string(other), 20s);
      return 0;
    }));
  for (auto& rank : ranks) EXPECT_EQ(rank->wait(), 0);
}

TEST(OpenFiles, ABrokerThatHasNoneLeftSaysSoAndGoesOn) {
  const auto job = fresh_job();
  Child rank([&] {
    limit_open_files(64);
    const auto member = Client::join(request_of(job, 0, 100));
    // The member keeps no descriptor of what it deposits; the broker holds them all.
    std::vector<SegmentId> ids;
    for (int i = 0; i < 200; ++i) {
      try {
        ids.push_back(member->create("", 4096, Lifetime::referenced).id);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::out_of_memory) return 1;
        break;
      }
    }
    if (ids.size() < 32 || ids.size() >= 64) return 2;
    // It serves who is there, and lets some more in.
    member->put("k", "v");
    std::vector<std::shared_ptr<Client>> others;
    for (int other = 1; other < 100; ++other) {
      try {
        others.push_back(Client::join(request_of(job, other, 100)));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::out_of_memory) return 3;
        break;
      }
    }
    if (others.empty()) return 4;
    if (member->get("k", 5s) != "v") return 5;
    for (const auto id : ids) member->release(id);
    const auto again = member->create("", 4096, Lifetime::referenced);
    return again.created ? 0 : 6;
  });
  EXPECT_EQ(rank.wait(), 0);
}

TEST(OpenFiles, ACrowdAtTheDoorOfAFullBrokerDoesNotStopIt) {
  const auto job = fresh_job();
  Child rank([&] {
    limit_open_files(64);
    const auto member = Client::join(request_of(job, 0, 2));
    // More silent connections than the broker has descriptors, from processes with limits of their own.
    std::vector<std::unique_ptr<Child>> crowd;
    Gate up;
    Gate end;
    for (int i = 0; i < 3; ++i)
      crowd.push_back(std::make_unique<Child>([&] {
        const auto place = place_of({}, job);
        std::vector<base::UniqueFd> silent;
        for (int j = 0; j < 40; ++j) {
          const auto folder = open_directory(place, Missing::fail);
          int reason = 0;
          if (auto socket = connect_to(place, folder.get(), reason)) silent.push_back(std::move(socket));
        }
        up.open();
        return end.wait(60s) ? 0 : 1;
      }));
    for (int i = 0; i < 3; ++i)
      if (!up.wait()) return 1;
    member->put("k", "v");
    if (member->get("k", 5s) != "v") return 2;
    const auto other = Client::join(request_of(job, 1, 2));
    if (other->get("k", 5s) != "v") return 3;
    for (int i = 0; i < 3; ++i) end.open();
    for (auto& child : crowd) child->wait();
    return 0;
  });
  EXPECT_EQ(rank.wait(), 0);
}

}  // namespace
}  // namespace tugline::broker::testing
