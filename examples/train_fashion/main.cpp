// SPDX-License-Identifier: Apache-2.0
// Data-parallel training on Fashion-MNIST that survives the death of ranks. See --help.
#include <fmt/format.h>

#include <csignal>
#include <exception>

#include "blas.h"
#include "evaluate.h"
#include "fashion_data.h"
#include "hash.h"
#include "network.h"
#include "options.h"
#include "output.h"
#include "report.h"
#include "self_exec.h"
#include "trainer.h"
#include "tugline/job.h"

namespace train_fashion {
namespace {

constexpr int kEvaluationImages = 64;

void find(const Options& options) {
  const auto test = FashionData::load(options.data, FashionData::Part::test);
  Network<float> network(NetworkShape{}, kEvaluationImages);
  tugline::Job job = tugline::Job::join();
  const auto model = job.named_buffer<float>(options.find, network.parameter_count());
  if (model.version() == 0) {
    throw tugline::Error(
        tugline::ErrorCode::not_found,
        fmt::format("nothing was published as \"{}\" in job {}", options.find, job.name()),
        "give the name of a rank's parameters, such as model/0, and the job that they belong to");
  }
  const auto correct = evaluate(network, model.current(), test, {0, test.size()});
  fmt::print("found {} version {} parameters {:016x}\ntest accuracy {:.3f}\n", options.find, model.version(),
             hash_of(model.current()), static_cast<double>(correct) / test.size());
  flush_output();
}

void train(Options& options) {
  const auto train = FashionData::load(options.data, FashionData::Part::train);
  const auto test = FashionData::load(options.data, FashionData::Part::test);
  if (!options.replay.empty()) options.losses = read_replay(options.replay);
  tugline::Job job = tugline::Job::join();
  Trainer trainer(job, options, train);
  if (job.rank() == 0) {
    fmt::print("{} training images, {} test images, {} ranks, {} steps of {} images\n", train.size(),
               test.size(), job.size(), trainer.total_steps(), options.batch);
    flush_output();
  }
  if (trainer.run() == RunEnd::left) return;
  const auto correct = trainer.count_correct(test);
  RunReport report = trainer.report();
  report.train_images = train.size();
  report.test_images = test.size();
  report.test_accuracy = static_cast<double>(correct) / test.size();
  auto communicator = job.communicator();
  if (communicator.rank() == 0) {
    if (!options.json.empty()) write_json(options.json, options, report);
    fmt::print("{}", table(report));
    flush_output();
  }
  if (options.ending == Ending::killed) {
    try {
      communicator.barrier();  // the report is out
    } catch (const tugline::Error&) {
      // A peer that has passed the barrier is dead already.
    }
    std::raise(SIGKILL);
  }
}

int main_with_errors(int argc, char** argv) {
  auto options = parse_options(argc, argv);
  if (!options) return 0;
  // Any rank may be the one that writes it; a run of minutes is not to be lost for a wrong path.
  if (!options->json.empty()) check_writable(options->json);
  if (options->ranks != 0) launch_ranks(options->ranks, argc, argv);
  choose_blas_kernels(argv);
  use_one_blas_thread();
  if (options->find.empty()) {
    train(*options);
  } else {
    find(*options);
  }
  flush_output();  // what every rank traced
  return 0;
}

}  // namespace
}  // namespace train_fashion

int main(int argc, char** argv) {
  try {
    return train_fashion::main_with_errors(argc, argv);
  } catch (const train_fashion::UsageError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
