# SPDX-License-Identifier: Apache-2.0
"""What is measured, and how fast tugline is to be: ratios of tugline's time to a rival's."""
import dataclasses

KIB, MIB = 1 << 10, 1 << 20
SIZES = (8, KIB, 16 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)
QUICK_SIZES = (8, 64 * KIB, MIB)
CROWD = 8  # ranks on the same cores
CROWD_SIZES = {"all_reduce": (8, 64 * KIB), "barrier": (0,)}
COLLECTIVES = ("barrier", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")
CORES = 2

# bytes of an all-reduce of 2 ranks: (against the faster MPI, the same with library buffers, against Gloo)
PAIR_GOALS = {
    8: (0.8, 0.8, 0.005),
    KIB: (0.7, 0.7, 0.005),
    64 * KIB: (0.35, 0.15, 0.03),
    MIB: (0.6, 0.2, 0.15),
    64 * MIB: (0.5, 0.2, 0.35),
}
BARRIER_GOALS = (0.8, 0.8, 0.005)
CROWD_GOALS = {8: (0.5, 0.5, 0.01), 64 * KIB: (0.6, 0.6, 0.01)}
OTHER_GOAL_SMALL, OTHER_GOAL, OTHER_FROM = 1.0, 0.8, 16 * KIB  # against the faster MPI only


@dataclasses.dataclass(frozen=True)
class Case:
    collective: str
    ranks: int
    bytes: int

    def word(self):
        """As the programs of bench/peers take it."""
        return f"{self.collective}:{self.bytes}"

    def __str__(self):
        size = f" of {human(self.bytes)}" if self.bytes else ""
        return f"{self.collective}{size}, {self.ranks} ranks"


def human(size):
    for unit, factor in (("MiB", MIB), ("KiB", KIB)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def size_of(text):
    """The bytes of "8", "64K" or "1M"; ValueError for anything else."""
    factor = {"K": KIB, "M": MIB}.get(text[-1:].upper(), 1)
    size = int(text if factor == 1 else text[:-1]) * factor
    if size < 1:
        raise ValueError(text)
    return size


def groups(collectives, sizes, ranks, whole=False):
    """Lists of cases that a program measures in one go: one list per number of ranks and collective, or (`whole`) one
    per number of ranks, which takes less time and interleaves less."""
    found = []
    for number in ranks:
        first = len(found)
        for collective in collectives:
            if collective == "barrier":
                chosen = (0,)
            elif number == CROWD:
                chosen = tuple(size for size in CROWD_SIZES.get(collective, ()) if size in sizes)
            else:
                chosen = sizes
            if chosen:
                found.append([Case(collective, number, size) for size in chosen])
        if whole and len(found) > first:
            found[first:] = [[case for group in found[first:] for case in group]]
    return found


def name_of(group):
    """"all_reduce, 2 ranks"."""
    return f"{', '.join(dict.fromkeys(case.collective for case in group))}, {group[0].ranks} ranks"


def goal_of(case, cores, buffers, call, against):
    """The largest ratio that meets the goal against "mpi" (the faster one) or "gloo"; None where there is no goal.

    Goals are those of blocking calls, which is what the rivals' are, on two cores.
    """
    if cores != CORES or call != "blocking":
        return None
    goals = None
    if case.ranks == CROWD:
        goals = CROWD_GOALS.get(case.bytes) if case.collective == "all_reduce" else None
    elif case.ranks == 2 and case.collective == "barrier":
        goals = BARRIER_GOALS
    elif case.ranks == 2 and case.collective == "all_reduce":
        goals = PAIR_GOALS.get(case.bytes)
    elif case.ranks == 2 and against == "mpi":
        return OTHER_GOAL if case.bytes >= OTHER_FROM else OTHER_GOAL_SMALL
    if goals is None:
        return None
    if against == "gloo":
        return goals[2]
    return goals[1 if buffers == "library" else 0]
