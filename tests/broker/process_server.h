// SPDX-License-Identifier: Apache-2.0
// A broker in a process of its own, so that forked children hold none of its descriptors.
#pragma once

#include <string>

#include "broker/broker_process.h"
#include "support.h"

namespace tugline::broker::testing {

class ProcessServer {
 public:
  ProcessServer() : job_(fresh_job()), process_(job_) {}
  JoinRequest request(int rank = 0, int size = 1) const {
    JoinRequest request;
    request.job = job_;
    request.token = process_.token_hex();
    request.rank = rank;
    request.size = size;
    request.spawn_broker = false;
    return request;
  }
  std::shared_ptr<Client> join(int rank = 0, int size = 1) const { return Client::join(request(rank, size)); }
  const std::string& job() const noexcept { return job_; }
  std::string directory() const { return test_runtime_dir() + "/" + job_; }
  BrokerProcess& process() noexcept { return process_; }
  pid_t pid() const noexcept { return process_.pid(); }
  std::vector<std::string> descriptors() const { return descriptors_of(process_.pid()); }

 private:
  std::string job_;
  BrokerProcess process_;
};

}  // namespace tugline::broker::testing
