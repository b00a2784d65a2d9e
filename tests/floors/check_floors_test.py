#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants every kind of violation in a small tree and looks whether the checker finds exactly it."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_floors  # noqa: E402

HEAD = "// SPDX-License-Identifier: Apache-2.0\n"
CLEAN = {
    "include/tugline/error.h": HEAD,
    "src/base/clock.h": HEAD,
    "src/base/clock.cpp": HEAD + '#include "base/clock.h"\n#include <ctime>\n',
    "src/base/json.cpp": HEAD + "#include <nlohmann/json.hpp>\n",
    "src/core/plan.cpp": HEAD + '#include "tugline/error.h"\n#include <vector>\n',
    "src/device/host.cpp": HEAD + '#include "core/plan.h"\n',
    "src/topology/graph.cpp": HEAD + "#include <hwloc.h>\n",
    "src/comm/kernels/sum.cu": HEAD + "#include <cuda_runtime.h>\n",
    "tools/tugline/main.cpp": HEAD + "#include <CLI/CLI.hpp>\n#include \"comm/communicator.h\"\n",
    "examples/train/main.cpp": HEAD + "#include <CLI/CLI.hpp>\n#include \"tugline/tugline.hpp\"\n",
    "src/CMakeLists.txt": "# SPDX-License-Identifier: Apache-2.0\n",
    "scripts/run": "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n",
    "README.md": "# no licence line needed\n",
    "docs/architecture.md": "# Files\n\n" + "".join(
        f"- `{path}` — text\n" for path in (
            "include/tugline/error.h", "src/base/clock.{h,cpp}", "src/base/json.cpp", "src/core/plan.cpp",
            "src/device/host.cpp", "src/topology/graph.cpp", "src/comm/kernels/sum.cu",
            "tools/tugline/main.cpp", "examples/train/main.cpp")),
}


class CheckFloorsTest(unittest.TestCase):
    def violations(self, changes=None):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            for path, text in {**CLEAN, **(changes or {})}.items():
                if text is None:
                    continue
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            return check_floors.check(root)

    def expect_one(self, words, changes):
        found = self.violations(changes)
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_clean_tree_passes(self):
        self.assertEqual(self.violations(), [])

    def test_upper_floor(self):
        self.expect_one(["src/base/clock.h:2", "core (F1)"], {"src/base/clock.h": HEAD + '#include "core/plan.h"\n'})

    def test_upper_floor_in_angle_brackets(self):
        self.expect_one(["not below"], {"src/base/clock.h": HEAD + "#include <core/plan.h>\n"})

    def test_same_floor(self):
        self.expect_one(["topology (F2)"], {"src/device/host.cpp": HEAD + '#include "topology/graph.h"\n'})

    def test_relative_include(self):
        self.expect_one(["must be written from"], {"src/device/host.cpp": HEAD + '#include "stream.h"\n'})

    def test_unknown_folder(self):
        found = self.violations({"src/extra/a.h": HEAD})
        self.assertTrue(any("no floor" in line for line in found), found)

    def test_impure_core(self):
        for header in ("<thread>", "<unistd.h>", "<sys/mman.h>", '"base/clock.h"'):
            self.expect_one(["core is pure"], {"src/core/plan.cpp": HEAD + f"#include {header}\n"})

    def test_heavy_header_twice(self):
        self.expect_one(["json is included twice in src/"],
                        {"src/device/host.cpp": HEAD + "#include <nlohmann/json_fwd.hpp>\n"})

    def test_heavy_header_in_header(self):
        self.expect_one(["included by a header"], {"src/base/clock.h": HEAD + "#include <toml++/toml.h>\n"})

    def test_cuda_outside_its_folders(self):
        for header in ("cuda.h", "cuda_runtime.h", "cooperative_groups.h"):
            self.expect_one(["CUDA headers"], {"src/device/host.cpp": HEAD + f"#include <{header}>\n"})

    def test_hwloc_outside_topology(self):
        self.assertTrue(any("hwloc headers" in line for line in self.violations(
            {"src/device/host.cpp": HEAD + "#include <hwloc/cudart.h>\n"})))

    def test_examples_and_public_headers_see_the_public_surface_only(self):
        self.expect_one(["examples/ sees"],
                        {"examples/train/main.cpp": HEAD + '#include "base/clock.h"\n'})
        self.assertTrue(self.violations({"include/tugline/error.h": HEAD + '#include "base/clock.h"\n'}))

    def test_length(self):
        self.expect_one(["501 lines"], {"src/core/plan.cpp": HEAD + "\n" * 500})
        self.assertEqual(self.violations({"src/core/plan.cpp": HEAD + "\n" * 499}), [])

    def test_licence_line(self):
        for path in ("src/base/clock.h", "src/CMakeLists.txt", "scripts/run"):
            text = CLEAN[path].replace("SPDX", "spdx")
            self.expect_one([path, "first line"], {path: text})

    def test_unfinished_work(self):
        self.expect_one(["unfinished"], {"src/base/clock.h": HEAD + "// TO" + "DO later\n"})

    def test_unchecked_output_of_a_tool(self):
        page = CLEAN["docs/architecture.md"] + "- `tools/tugline/show.cpp` — text\n"
        for line in ('fmt::print("{}", text);', 'fmt::print(stdout, "x");', "std::cout << text;"):
            self.expect_one(["write_output"], {"tools/tugline/show.cpp": HEAD + line + "\n",
                                               "docs/architecture.md": page})

    def test_page_misses_a_file(self):
        self.expect_one(["src/core/new.h has no line"], {"src/core/new.h": HEAD})

    def test_page_names_a_file_that_is_gone(self):
        self.expect_one(["src/core/plan.cpp does not exist"], {"src/core/plan.cpp": None})

    def test_page_line_says_nothing(self):
        page = CLEAN["docs/architecture.md"].replace("`src/core/plan.cpp` — text", "`src/core/plan.cpp` —")
        self.expect_one(["not described"], {"docs/architecture.md": page})

    def test_page_names_a_file_twice(self):
        page = CLEAN["docs/architecture.md"] + "- `src/core/plan.cpp` — again\n"
        self.expect_one(["has a line already"], {"docs/architecture.md": page})


if __name__ == "__main__":
    unittest.main()
