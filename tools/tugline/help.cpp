// SPDX-License-Identifier: Apache-2.0
#include "help.h"

namespace tugline::cli::help {

std::string_view version() noexcept {
  return "tugline " TUGLINE_VERSION;
}

const std::string_view kSummary =
    "Makes several processes of one host work as one machine: shared memory and collectives on the CPU.";
const std::string_view kExamples =
    R"(Exit codes: 0 ok; 1 failed; 2 wrong usage: nothing was started, because a word of the command line is unknown,
does not fit another, or names a program, plan, device or broker that is not there. When nobody reads the output any more (as behind `| head`), the
command ends its ranks and then itself, without a word, by SIGPIPE: 141 in a shell.

Examples:
  tugline run -n 4 -- ./train
  tugline bench all_reduce --np 4 -b 8 -e 16M -f 4
  tugline doctor
  tugline run --help)";

const std::string_view kRunSummary =
    "Start a broker and the ranks of a job: tugline run [OPTIONS] -- program args";
const std::string_view kRunExamples =
    R"(Every rank gets TUGLINE_RANK, TUGLINE_SIZE, TUGLINE_LOCAL_RANK, TUGLINE_JOB, TUGLINE_SOCKET_PATH and
TUGLINE_TOKEN, and torchrun's RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR and
MASTER_PORT. Lines of output are prefixed by the rank: "[2] ". Rank 0 reads standard input; the others read nothing. A
terminal is read by a command in its foreground only (not: tugline run ... &). Give --no-prefix to a program
that prompts or edits lines.

A rank that fails is reported in one line; the others go on. The exit code is 0 only if every rank ended with
0, else 1. With --allow-lost, ranks that were killed by a signal count as lost, and the job is ok if all the
others, at least one, ended with 0. Ctrl-C, SIGTERM or SIGHUP ends the whole tree: every rank gets the same signal once,
and SIGKILL after --grace seconds or at the second Ctrl-C. Whatever the ranks left running ends with the job.

Examples:
  tugline run -n 4 -- ./train --epochs 3
  tugline run -n 2 --env OMP_NUM_THREADS=1 -- python3 train.py
  tugline run -n 2 --no-prefix -- sh -c '[ $RANK = 0 ] && exec gdb ./train; exec ./train'
  tugline run -n 4 --allow-lost -- ./survives_a_death
  tugline run -n 4 --broker /run/user/1000/tugline/weights/broker.sock -- ./serve)";

const std::string_view kBenchSummary = "Measure and verify a collective; flags and columns of nccl-tests.";
const std::string_view kBenchExamples =
    R"(Inputs are rewritten before every operation. Without --batch, operations of up to 64 bytes are timed 100 at
a time, the rewriting included; larger ones are timed one by one behind a barrier, the rewriting and the
barrier outside. "time" is the mean over the timed operations and the ranks; p50 and p99 (in --json) are over
time stamps, the slowest rank counting. busbw is algbw times nccl-tests' factor for the collective.

Sizes are nccl-tests': the larger of the two buffers, except that counts are not rounded to 16 bytes. They are
rounded down to whole elements, and to as many for every rank; the table says so where it happens.

A plan (--plan FILE) says itself for how many ranks and bytes it is: -b, -e, -f and -i are refused beside it.

Inside a job (tugline run, torchrun, mpirun, srun) bench is one of its ranks; --np, --threads and --bind core,
by which it starts ranks itself, are refused there.

Examples:
  tugline bench all_reduce --np 4 -b 8 -e 16M -f 4
  tugline bench all_to_all --np 3 -b 0 -e 1M -f 4 -d all -c 1
  tugline bench reduce_scatter --np 2 -d f16 -o all -b 64K -e 64K --json result.json
  tugline bench all_reduce --plan examples/plans/star.json
  tugline run -n 2 -- tugline bench barrier -n 1000)";

const std::string_view kPlanSummary =
    "Show the plan of a collective, its predicted cost, and why it is chosen.";
const std::string_view kPlanExamples =
    R"(Prints the builders that could serve the call with their expected times, the one that would run, and why.
The estimate decides where there are several ways; the simulation, which goes through every step, tells how
close it is. With --steps, every step of every rank comes before that.

Examples:
  tugline plan all_reduce --np 4 --bytes 64K
  tugline plan all_reduce --np 3 --bytes 8 --steps
  tugline plan all_gather --np 3 --bytes 1M --builder ring
  tugline plan broadcast --np 8 --bytes 8 --json
  tugline plan all_gather --np 32 --bytes 64K --cores 32 --groups 2
  tugline plan --check examples/plans/star.json)";

const std::string_view kDoctorSummary = "Check this machine; every finding with evidence and fix.";
const std::string_view kDoctorExamples = R"(The exit code is 1 if a finding is serious.
With --job it looks at a running job instead: what each rank has deposited with the broker, by kind (scratch of
communicators, buffers, named memory), what it has mapped of others, its descriptors, and the limits.

Examples:
  tugline doctor
  tugline doctor --np 8
  tugline doctor --json
  tugline doctor --job NAME)";

const std::string_view kConfigSummary = "Print every setting: value, origin, unit, meaning.";
const std::string_view kConfigExamples = R"(Precedence: call, environment, file, default.

Examples:
  tugline config
  TUGLINE_SPIN_US=0 tugline config
  tugline config --json)";

const std::string_view kBrokerSummary = "Run a broker that outlives its jobs.";
const std::string_view kBrokerExamples =
    R"(One of --job and --socket is required: a job's broker listens in the runtime directory, under the job's name.
Prints the socket's path, then serves until SIGTERM or Ctrl-C. Named buffers live as long as it runs.

Examples:
  tugline broker --job weights
  tugline broker --socket /tmp/weights/broker.sock
  tugline run -n 4 --broker /run/user/1000/tugline/weights/broker.sock -- ./serve)";

}  // namespace tugline::cli::help
