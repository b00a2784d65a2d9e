#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the source tree: floors, heavy headers, file length, licence lines, the page of files.

check_floors.py ROOT            prints one line per violation, exits 1 if there is any
check_floors.py ROOT --missing  prints lines for docs/architecture.md for files that have none
"""
import collections
import pathlib
import re
import sys

FLOORS = {
    "base": 0,
    "core": 1,
    "device": 2, "topology": 2,
    "broker": 3,
    "memory": 4, "transport": 4,
    "comm": 5,
    "fault": 6, "sched": 6, "checkpoint": 6, "observe": 6,
    "tune": 7, "api": 7,
}
# Headers that are slow to compile or belong to one place: (name, pattern, folders of src/ that may include it).
HEAVY = [
    ("json", re.compile(r"^nlohmann/"), None),
    ("CLI11", re.compile(r"^CLI/"), None),
    ("toml++", re.compile(r"^toml\+\+/|^toml\.hpp$"), None),
    ("hwloc", re.compile(r"^hwloc"), ("src/topology/",)),
    ("prometheus-cpp", re.compile(r"^prometheus/"), ("src/observe/", "src/broker/")),
]
PLACED = [
    ("CUDA", re.compile(r"^(cuda[._A-Z]|cuda$|cuda_|cuda/|cooperative_groups|nccl|cub/|thrust/)"),
     ("src/device/cuda/", "src/comm/kernels/")),
    ("NVML", re.compile(r"^nvml"), ("src/topology/",)),
    ("UCX", re.compile(r"^(ucp|uct|ucs|ucm)/"), ("src/transport/ucx/",)),
    ("hwloc", re.compile(r"^hwloc"), ("src/topology/",)),
]
# core/ runs in the simulator on virtual time: nothing in it may look at a clock, block or call the system.
IMPURE = re.compile(r"^(thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|stop_token|"
                    r"ctime|time\.h|unistd\.h|fcntl\.h|poll\.h|signal\.h|csignal|pthread\.h|sched\.h|random|"
                    r"filesystem|fstream|sys/.*|linux/.*|"
                    r"base/(clock|futex|shared_memory|settings|log|cgroup|kernel|random|launcher)\.h)$")
# Buffered output loses what cannot be written; tools/ writes standard output in one place, which looks.
UNCHECKED_OUTPUT = re.compile(r"\bstd::(cout|puts|putchar|printf)\b|\bfmt::print\((?!stderr\b)|\bstdout\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CODE = {".h", ".hpp", ".cpp", ".cc", ".c", ".cu", ".cuh"}
LICENSED = CODE | {".py", ".sh", ".cmake"}
LONGEST = 500
LICENCE = "SPDX-License-Identifier: Apache-2.0"
# Words of unfinished work, in two parts so that this file passes.
UNFINISHED = re.compile(r"\b(" + "TO" + "DO|FIX" + "ME|XX" + r"X)\b")
MAPPED = ("include", "src", "tools", "examples", "bench")
SKIPPED = {".git", "build", "__pycache__", ".cache", "shared"}


def source_files(root):
    """All files below root, as sorted POSIX paths, without build outputs."""
    found = []
    pending = [root]
    while pending:
        for path in pending.pop().iterdir():
            if path.is_dir() and not path.is_symlink():
                if path.name not in SKIPPED and not path.name.startswith("build-"):
                    pending.append(path)
            elif path.is_file():
                found.append(path.relative_to(root).as_posix())
    return sorted(found)


def includes_of(text):
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def check_floor(path, text):
    """The floor rule for one file of src/, and what the public headers and examples may see."""
    parts = path.split("/")
    if parts[0] == "src" and len(parts) > 2:
        own = parts[1]
        if own not in FLOORS:
            yield f"{path}:1: src/{own} has no floor in tests/floors/check_floors.py"
            return
        for line, quoted, header in includes_of(text):
            target = header.split("/")[0]
            if quoted and "/" not in header:
                yield f'{path}:{line}: "{header}" must be written from src/ or include/: "{own}/{header}"'
            elif quoted and target != "tugline" and target not in FLOORS:
                yield f'{path}:{line}: "{header}" is no folder of src/'
            elif target in FLOORS and "/" in header and target != own and FLOORS[target] >= FLOORS[own]:
                yield (f"{path}:{line}: {own} (F{FLOORS[own]}) includes {header} of "
                       f"{target} (F{FLOORS[target]}), which is not below it")
            if own == "core" and IMPURE.match(header):
                yield f"{path}:{line}: core is pure and may not include {header}"
    elif parts[0] in ("include", "examples"):
        for line, quoted, header in includes_of(text):
            if header.split("/")[0] in FLOORS and "/" in header:
                yield f"{path}:{line}: {parts[0]}/ sees include/tugline only, not {header}"
            if parts[0] == "include" and quoted and not header.startswith("tugline/"):
                yield f'{path}:{line}: a public header includes "tugline/..." only, not "{header}"'


def check_headers(texts):
    """Heavy headers: one .cpp of src/, one of tools/, one per example; and headers that have one place."""
    users = collections.defaultdict(list)
    for path, text in texts.items():
        area = path.split("/")[0]
        if area not in ("src", "include", "tools", "examples"):
            continue
        group = "/".join(path.split("/")[:2]) if area == "examples" else area
        for line, _, header in includes_of(text):
            for name, pattern, _ in HEAVY:
                if pattern.match(header):
                    users[name, group].append(path)
                    if not path.endswith(".cpp"):
                        yield f"{path}:{line}: the heavy header {header} is included by a header"
            for name, pattern, places in PLACED:
                if pattern.match(header) and area in ("src", "include") and not path.startswith(places):
                    yield f"{path}:{line}: {name} headers ({header}) belong to {' and '.join(places)} only"
    for (name, group), paths in users.items():
        if len(set(paths)) > 1:
            yield f"{paths[1]}:1: {name} is included twice in {group}/: {', '.join(sorted(set(paths)))}"


def check_file(path, text):
    suffix = pathlib.PurePosixPath(path).suffix
    lines = text.splitlines()
    script = text.startswith("#!")
    if suffix in LICENSED or path.endswith("CMakeLists.txt") or script or path == "Makefile":
        if not any(LICENCE in line for line in lines[:2 if script else 1]):
            yield f"{path}:1: the first line must hold {LICENCE}"
        for number, line in enumerate(lines, 1):
            if UNFINISHED.search(line):
                yield f"{path}:{number}: unfinished work is not kept in the code: {line.strip()}"
    if path.startswith("tools/") and suffix in CODE:
        for number, line in enumerate(lines, 1):
            if UNCHECKED_OUTPUT.search(line.split("//")[0]):
                yield f"{path}:{number}: standard output is written by write_output() only: {line.strip()}"
    if path.split("/")[0] in ("src", "tools", "include", "examples") and suffix in CODE and len(lines) > LONGEST:
        yield f"{path}:{LONGEST}: {len(lines)} lines, more than {LONGEST}"


def mapped_files(files):
    return [path for path in files
            if path.split("/")[0] in MAPPED and pathlib.PurePosixPath(path).name != "CMakeLists.txt"]


ENTRY = re.compile(r"^\s*[-|*]\s*((?:`[^`]+`(?:, )?)+)(.*)$")


def map_entries(page):
    """Files named at the beginning of a line of the page, with {a,b} expanded: (line number, path, text)."""
    for number, line in enumerate(page.splitlines(), 1):
        match = ENTRY.match(line)
        if not match:
            continue
        for name in re.findall(r"`([^`]+)`", match.group(1)):
            braces = re.match(r"^(.*)\{([^}]*)\}(.*)$", name)
            paths = [braces[1] + middle + braces[3] for middle in braces[2].split(",")] if braces else [name]
            for path in paths:
                if path.split("/")[0] in MAPPED and not path.endswith("/"):
                    yield number, path, match.group(2).strip(" :-|—")


def check_map(root, files):
    page_path = root / "docs/architecture.md"
    if not page_path.is_file():
        yield "docs/architecture.md:1: is missing"
        return
    seen = {}
    for number, path, text in map_entries(page_path.read_text(encoding="utf-8")):
        if path in seen:
            yield f"docs/architecture.md:{number}: {path} has a line already ({seen[path]})"
        if not text:
            yield f"docs/architecture.md:{number}: {path} is not described"
        seen[path] = number
    wanted = set(mapped_files(files))
    for path in sorted(wanted - set(seen)):
        yield f"docs/architecture.md:1: {path} has no line"
    for path in sorted(set(seen) - wanted):
        yield f"docs/architecture.md:{seen[path]}: {path} does not exist"


def check(root):
    """All violations of the tree, as lines "path:line: text"."""
    files = source_files(root)
    texts = {}
    for path in files:
        full = root / path
        if pathlib.PurePosixPath(path).suffix in LICENSED or full.stat().st_size < 200_000:
            texts[path] = full.read_text(encoding="utf-8", errors="replace")
    violations = []
    for path, text in texts.items():
        suffix = pathlib.PurePosixPath(path).suffix
        if suffix in CODE:
            violations += check_floor(path, text)
        violations += check_file(path, text)
    violations += check_headers({path: text for path, text in texts.items()
                                 if pathlib.PurePosixPath(path).suffix in CODE})
    violations += check_map(root, files)
    return violations


def suggest(root):
    """Lines for files without one, with the first sentence of the file's comment."""
    files = source_files(root)
    page = root / "docs/architecture.md"
    known = {path for _, path, _ in map_entries(page.read_text(encoding="utf-8"))} if page.is_file() else set()
    missing = collections.OrderedDict()
    for path in mapped_files(files):
        if path not in known:
            missing.setdefault(path.rsplit(".", 1)[0], []).append(path)
    for stem, paths in missing.items():
        comment = []
        for path in sorted(paths, key=lambda name: not name.endswith(".h")):
            for line in (root / path).read_text(encoding="utf-8").splitlines()[1:]:
                if not line.startswith("//"):
                    break
                comment.append(line.lstrip("/ "))
            if comment:
                break
        text = re.split(r"(?<=\.)\s", " ".join(comment))[0]
        if len(text) > 150:
            text = text.split(": ")[0]
        name = paths[0] if len(paths) == 1 else (
            stem + ".{" + ",".join(sorted((p.rsplit(".", 1)[1] for p in paths), key=lambda s: s != "h")) + "}")
        print(f"- `{name}` — {text}")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    if "--missing" in sys.argv[2:]:
        suggest(root)
        return 0
    violations = check(root)
    for violation in violations:
        print(violation)
    print(f"{len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
