# SPDX-License-Identifier: Apache-2.0
"""Figures of all rounds, what follows from them, and how it is shown."""
import collections
import statistics

from peerslib.cases import goal_of, human

MPIS = ("Open MPI", "MPICH")
GLOO = "Gloo"
FORMS = ("none", "private", "library", "blocking", "stream")  # as the table has them
AGAINST = {"mpi": "faster MPI", "gloo": GLOO}


class Results:
    """Microseconds by case and contender, one per round that was measured."""

    def __init__(self, cores):
        self.cores = cores  # how many
        self.times = collections.defaultdict(list)
        self.versions = {}

    def add(self, contender, figures):
        self.versions[contender.library] = contender.full_version()
        for case, us in figures.items():
            self.times[case, contender.library, self.buffers_of(case, contender.buffers), contender.call].append(us)

    @staticmethod
    def buffers_of(case, buffers):
        return buffers if case.collective != "barrier" else "none"

    def rivals_of(self, case):
        """{library: (median, rounds)}"""
        return {library: (statistics.median(times), times) for (other, library, _, _), times in self.times.items()
                if other == case and library != "tugline"}

    def comparisons(self):
        """Of every form of tugline that has a figure: (case, buffers, call, median, times), case by case."""
        order = {case: number for number, case in enumerate(dict.fromkeys(key[0] for key in self.times))}
        forms = [key for key in self.times if key[1] == "tugline"]
        for key in sorted(forms, key=lambda key: (order[key[0]], FORMS.index(key[2]), FORMS.index(key[3]))):
            yield key[0], key[2], key[3], statistics.median(self.times[key]), self.times[key]

    def rows(self):
        """One per form of tugline and rival: what peers.json holds."""
        rows = []
        for case, buffers, call, ours, times in self.comparisons():
            for library, (theirs, rounds) in self.rivals_of(case).items():
                rows.append({"collective": case.collective, "ranks": case.ranks, "cores": self.cores,
                             "bytes": case.bytes, "buffers": buffers, "call": call, "peer": library,
                             "peer_version": self.versions[library], "tugline_us": ours, "peer_us": theirs,
                             "ratio": ours / theirs, "tugline_rounds_us": times, "peer_rounds_us": rounds})
        return rows

    def verdicts(self):
        """One per goal that can be judged: against the faster of the MPIs that were measured, and against Gloo."""
        found = []
        for case, buffers, call, ours, _ in self.comparisons():
            rivals = self.rivals_of(case)
            for against in AGAINST:
                names = [name for name in (MPIS if against == "mpi" else (GLOO,)) if name in rivals]
                goal = goal_of(case, self.cores, buffers, call, against)
                if not names or goal is None:
                    continue
                peer = min(names, key=lambda name: rivals[name][0])
                ratio = ours / rivals[peer][0]
                found.append({"collective": case.collective, "ranks": case.ranks, "cores": self.cores,
                              "bytes": case.bytes, "buffers": buffers, "call": call, "against": AGAINST[against],
                              "peer": peer, "ratio": ratio, "goal": goal, "met": ratio <= goal})
        return found


def short(us):
    """Four significant digits as far as they fit."""
    return f"{us:.3f}" if us < 10 else f"{us:.2f}" if us < 100 else f"{us:.1f}" if us < 10000 else f"{us:.0f}"


def verdict_text(verdict, ratio):
    """What stands behind a rival's time: the ratio, and the goal with MISS where it is not met."""
    if ratio is None:
        return ""
    digits = 2 if ratio >= 0.1 else 4
    if verdict is None:
        return f"{ratio:.{digits}f}"
    return f"{ratio:.{digits}f} <= {verdict['goal']:g} {'ok' if verdict['met'] else 'MISS'}"


def table(results):
    """Lines for standard output."""
    libraries = [name for name in (*MPIS, GLOO) if name in results.versions]
    head = f"# {'collective':<14} {'ranks':>5} {'size':>7} {'buffers':<8} {'call':<8} {'tugline us':>11}"
    head += "".join(f" {name + ' us':>12}" for name in libraries)
    lines = [f"{head}   {'to the faster MPI':<20} to Gloo"]
    verdicts = {(v["collective"], v["ranks"], v["bytes"], v["buffers"], v["call"], v["against"]): v
                for v in results.verdicts()}
    for case, buffers, call, ours, _ in results.comparisons():
        rivals = results.rivals_of(case)
        size = human(case.bytes) if case.bytes else "-"
        line = f"  {case.collective:<14} {case.ranks:>5} {size:>7} {buffers:<8} {call:<8} {short(ours):>11}"
        line += "".join(f" {short(rivals[name][0]) if name in rivals else '-':>12}" for name in libraries)
        texts = []
        for against, names in (("mpi", MPIS), ("gloo", (GLOO,))):
            present = [rivals[name][0] for name in names if name in rivals]
            ratio = ours / min(present) if present else None
            key = (case.collective, case.ranks, case.bytes, buffers, call, AGAINST[against])
            texts.append(verdict_text(verdicts.get(key), ratio))
        lines.append(f"{line}   {texts[0]:<20} {texts[1]}".rstrip())
    return lines


def summary(results):
    verdicts = results.verdicts()
    missed = sum(not verdict["met"] for verdict in verdicts)
    return f"# goals: {len(verdicts) - missed} met, {missed} missed (MISS), of those that could be judged"
