#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom (the table of CONTRIBUTING.md), which library stands behind which door, a licence line in each
source file and a README in each room. Prints every offence as file:line: sentence."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Ours that a folder may include; the longest prefix that fits a file or an include counts.
ROOMS = {
    "base": set(),
    "converters": {"base"},
    "converters/config": {"base"},
    "trainer": {"base", "converters"},
    "trainer/config": {"base"},
    "specs": {"base", "converters/config", "trainer/config"},
    "engine": {"specs", "base"},
    "engine/wire": {"specs", "base"},
    "engine/store": {"engine", "engine/wire", "specs", "base"},
    "engine/batch": {"specs", "base"},
    "steps": {"base", "specs"},
    "plugin": {"base", "specs"},
    "workers": {"steps", "engine/wire", "specs", "base"},
    "cli": {"base", "specs", "engine", "engine/wire", "engine/store", "engine/batch", "steps", "workers", "converters",
            "converters/config", "trainer/config"},
    "examples/cosmoflow": set(),
    "examples/jag_like": {"plugin"},
}
ROOMS["engine"] |= {"engine/wire", "engine/store", "engine/batch"}
ROOMS["trainer"] |= {"converters/config", "trainer/config"}
ROOMS["converters"] |= {"converters/config"}
ALL = {"tests", "bench"}

# A library's headers, and the files that may include them.
DOORS = {
    r"yaml-cpp/": r"base/yaml\.cc",
    r"zmq(\.hpp|_addon\.hpp|\.h)$": r"engine/wire/.*",
    r"(sqlite3\.h|SQLiteCpp/)": r"engine/store/.*",
    r"(hdf5|H5\w*)\.h": r"(converters|examples/cosmoflow)/.*",
    r"(torch/|ATen/|c10/|caffe2/)": r"trainer/.*",
    r"mpi\.h": r"trainer/.*",
}
# Tests and benchmarks stand outside, and look into the files that they check.
OUTSIDE = re.compile(r"(tests|bench)/.*|.*_test\.cc")

SOURCES = {".cc", ".h", ".cpp", ".hpp", ".py", ".cmake"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


def tracked_files():
    """What git knows or would take; without git, everything outside of build folders."""
    try:
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
        names = listed.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.relative_to(ROOT).parts[0] not in ("build", ".git")]
    return sorted(name for name in names if (ROOT / name).is_file())


def room_of(name):
    """The room of a file or an include: "converters/config" for converters/config.h and .cc, "base" for base/file.h."""
    stem = re.sub(r"\.\w+$", "", name)
    fitting = [room for room in ROOMS if stem == room or stem.startswith(room + "/")]
    return max(fitting, key=len, default=name.split("/")[0])


def allowed(name, included):
    here, there = room_of(name), room_of(included)
    if here.split("/")[0] in ALL or here == there:
        return True
    if here in ("converters/config", "trainer/config") and there == here.split("/")[0]:
        # A light header of the own room, such as converters/split.h, is followed by its own includes.
        return True
    # A *_test.cc beside its unit may also use what stands in its own room.
    return there in ROOMS.get(here, set()) or (name.endswith("_test.cc") and there.split("/")[0] == here.split("/")[0])


def check_includes(name, text):
    offences = []
    for number, line in enumerate(text.splitlines(), 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        quoted, included = found[1] == '"', found[2]
        if quoted and (ROOT / included).exists() and not allowed(name, included):
            offences.append(f"{name}:{number}: {room_of(name)}/ may not include {included} (CONTRIBUTING.md, Rooms)")
        for library, door in DOORS.items():
            if re.match(library, included) and not re.fullmatch(door, name) and not OUTSIDE.fullmatch(name):
                offences.append(f"{name}:{number}: <{included}> may be included only in {door}")
    return offences


def check_licence(name, text):
    head = "\n".join(text.splitlines()[:3])
    return [] if "SPDX-License-Identifier: Apache-2.0" in head else [f"{name}:1: no SPDX-License-Identifier line"]


def check_readmes(names):
    rooms = {"base", "specs", "engine", "steps", "workers", "converters", "trainer", "cli", "tests", "bench", "examples/cosmoflow"}
    present = {name for name in names}
    existing = {room for room in rooms if any(name.startswith(room + "/") for name in names)}
    return [f"{room}/README.md: missing; each room has one of a screen" for room in sorted(existing) if f"{room}/README.md" not in present]


def offences_of(names):
    offences = check_readmes(names)
    for name in names:
        path = ROOT / name
        script = path.suffix == "" and path.stat().st_mode & 0o111
        if path.suffix not in SOURCES and path.name != "CMakeLists.txt" and not script:
            continue
        text = path.read_text(errors="replace")
        offences += check_licence(name, text)
        if path.suffix in {".cc", ".h", ".cpp", ".hpp"}:
            offences += check_includes(name, text)
    return offences


def check_myself():
    """The rules catch what they are there for."""
    wrong = {
        "engine/coordinator.cc": '#include "workers/agent.h"',
        "base/text.cc": '#include "specs/study.h"',
        "workers/agent.cc": '#include "engine/store/store.h"',
        "cli/run.cc": '#include "trainer/trainer.h"',
        "specs/plan.cc": "#include <yaml-cpp/yaml.h>",
        "engine/coordinator.cc ": "#include <zmq.hpp>",
        "cli/status.cc": "#include <sqlite3.h>",
        "trainer/trainer.cc": "#include <hdf5.h>",
        "converters/run.cc": "#include <mpi.h>",
        "cli/report.cc": "#include <torch/torch.h>",
    }
    right = {
        "engine/coordinator.cc": '#include "engine/store/store.h"',
        "specs/blocks.cc": '#include "trainer/config.h"',
        "workers/agent.cc": '#include "engine/wire/messages.h"',
        "trainer/sample_source.cc": '#include "converters/shard_reader.h"',
        "tests/anything.cc": '#include "workers/agent.h"',
    }
    problems = [f"tests/includes_test.py: does not catch {text} in {name}" for name, text in wrong.items() if not check_includes(name, text)]
    return problems + [f"tests/includes_test.py: forbids {text} in {name}" for name, text in right.items() if check_includes(name, text)]


def main():
    names = tracked_files()
    offences = check_myself() + offences_of(names)
    for offence in offences:
        print(offence)
    print(f"{len(names)} files, {len(offences)} offences")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
