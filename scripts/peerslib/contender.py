# SPDX-License-Identifier: Apache-2.0
"""Whoever runs in the timing loop: how it is started, what its program says, and why there is no figure."""
import dataclasses
import os
import subprocess
import typing

from ending import run
from peerslib.cases import name_of

GRACE_S = 5  # ranks end themselves at the limit; then whoever launched them has so long
MARK = "peers: "
# Settings of this machine's user that would make a library another one than its users get.
FOREIGN = ("TUGLINE_", "OMPI_", "PMIX_", "PRTE_", "MPICH_", "MPIR_", "HYDRA_", "FI_", "UCX_", "GLOO_")
KEPT = ("TUGLINE_RUNTIME_DIR",)


class Failed(Exception):
    """There is no figure. The text has three lines: what, where, what to do."""

    def __init__(self, what, where, remedy):
        super().__init__(f"{what}\n  where: {where}\n  do: {remedy}")


@dataclasses.dataclass
class Contender:
    """One library in one form. `command(ranks, words)` starts so many ranks with the program's arguments."""
    library: str
    command: typing.Callable
    buffers: str = "private"
    call: str = "blocking"
    package: str = ""
    version: str = ""  # as its program says; known when it has run

    def full_version(self):
        """With the package where that says more: Gloo has had one number for years."""
        package = self.package.split()[-1] if self.package else ""
        return self.version if package.startswith(self.version) or not package else f"{self.version} ({package})"

    def __str__(self):
        return f"{self.library} ({self.buffers} buffers, {self.call} call)"


def environment():
    return {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith(FOREIGN)}


def parse(output, cases):
    """(version, microseconds by case) of a program's output; ValueError where it is not exactly that."""
    lines = [line[len(MARK):].split() for line in output.splitlines() if line.startswith(MARK)]
    if not lines or lines[0][0] != "version":
        raise ValueError("its version is missing")
    figures = {}
    by_word = {case.word(): case for case in cases}
    for words in lines[1:]:
        if len(words) != 3 or f"{words[0]}:{words[1]}" not in by_word:
            raise ValueError(f"a figure for \"{' '.join(words)}\", which nobody asked for")
        figures[by_word[f"{words[0]}:{words[1]}"]] = float(words[2])
    for case in cases:
        if not figures.get(case, 0) > 0:
            raise ValueError(f"no figure for {case}")
    return lines[0][1], figures


def measure(contender, cases, cores, budget_ms, limit_s):
    """Microseconds by case. `cases` have the same number of ranks. Throws Failed; there are no figures then."""
    ranks = cases[0].ranks
    words = [budget_ms, limit_s, ",".join(map(str, cores)), *(case.word() for case in cases)]
    command = [str(word) for word in contender.command(ranks, [str(word) for word in words])]
    where = f"{contender}, {name_of(cases)} on cores {words[2]}"
    try:
        done = run(command, timeout=limit_s + GRACE_S, env=environment())
    except subprocess.TimeoutExpired:
        raise Failed(f"it did not end within {limit_s} s", where,
                     f"run it by hand, or give a larger --limit: {' '.join(command)}") from None
    said = (done.stderr + done.stdout).strip()[-2000:]
    if done.returncode != 0:
        raise Failed(f"it ended with {done.returncode} (14 and 142 are the limit of {limit_s} s):\n{said}", where,
                     f"run it by hand: {' '.join(command)}")
    try:
        contender.version, figures = parse(done.stdout, cases)
    except ValueError as error:
        raise Failed(f"its output cannot be read, {error}:\n{said}", where, f"run it by hand: {' '.join(command)}") \
            from None
    return figures
