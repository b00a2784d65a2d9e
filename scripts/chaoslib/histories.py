# SPDX-License-Identifier: Apache-2.0
"""Compares the ranks' histories: did all survivors get the same outcomes, and how soon?"""
import collections

from chaoslib.machine import Broken

SAME = ("epoch", "members", "verdict", "lost", "step", "hash")


def lines_of(text):
    """A rank's history as dictionaries. The last line of a killed rank may be cut."""
    return [dict(word.split("=", 1) for word in line.split()) for line in text.split("\n")[:-1]]


def numbers(text):
    return [int(word) for word in text.split(",") if word]


def check_one(rank, lines, size, killed):
    """One rank's own history: gapless, its members only shrink, by those that were killed. The last members."""
    members, epoch = list(range(size)), 0
    for number, line in enumerate(lines, start=1):
        if int(line["agreement"]) != number:
            raise Broken(f"rank {rank}: agreement {number} is missing, {line['agreement']} follows")
        now, lost = numbers(line["members"]), numbers(line["lost"])
        if sorted(now + lost) != sorted(members) or rank not in now:
            raise Broken(f"rank {rank}, agreement {number}: {members} became {now}, lost {lost}")
        if int(line["epoch"]) < epoch or (lost and int(line["epoch"]) == epoch):
            raise Broken(f"rank {rank}, agreement {number}: epoch {epoch} became {line['epoch']}")
        members, epoch = now, int(line["epoch"])
        for other in lost + numbers(line["noticed"]):
            if other not in killed:
                raise Broken(f"rank {rank} lost rank {other}, which was not killed")
    return members


def check(histories, killed):
    """`histories`: lines by rank; `killed`: ranks. Throws Broken."""
    survivors = [rank for rank in histories if rank not in killed]
    outcomes = {}
    for rank, lines in histories.items():
        members = check_one(rank, lines, len(histories), killed)
        if rank in survivors and members != survivors:
            raise Broken(f"rank {rank} ended with members {members}")
        for number, line in enumerate(lines, start=1):
            # Results count where they were committed.
            told = tuple(line[name] for name in SAME if name != "hash" or line["verdict"] == "committed")
            first, first_rank = outcomes.setdefault(number, (told, rank))
            if told != first:
                raise Broken(f"agreement {number}: rank {first_rank} was told {first}, rank {rank} {told}")
    lengths = {len(histories[rank]) for rank in survivors}
    if len(lengths) != 1:
        raise Broken(f"survivors made different numbers of agreements: {sorted(lengths)}")


def latencies(lines, killed_ns):
    """Milliseconds from a kill to what a survivor did next: lists by name. `killed_ns`: times by rank."""
    found = collections.defaultdict(list)
    since = None
    for line in lines:
        if since is not None and int(line["first_done_ns"]):
            found["to the next all-reduce"].append((int(line["first_done_ns"]) - since) / 1e6)
            since = None
        if not line["lost"]:
            continue
        times = [killed_ns[rank] for rank in numbers(line["lost"])]
        if int(line["noticed_ns"]):
            found["to peer_lost"].append((int(line["noticed_ns"]) - min(times)) / 1e6)
        # Both are needed for it, hence the later one.
        since = max(times)
        found["to the agreement"].append((int(line["agreed_ns"]) - since) / 1e6)
    return found
