#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom (the table of CONTRIBUTING.md), which library stands behind which boundary, a licence line in each
source file and a README in each folder. Prints every offence as file:line: sentence."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Ours that a folder may include; the longest prefix that fits a file or an include counts.
MODULES = {
    "base": set(),
    "traces": {"base"},
    "converters": {"base", "traces", "converters/data_set_files"},
    "converters/config": {"base", "converters/config_tables"},
    "converters/config_tables": {"base"},
    "converters/data_set_files": {"base"},
    "trainer": {"base", "traces", "converters"},
    "trainer/config": {"base", "trainer/config_tables", "trainer/follow_config", "trainer/metric_name", "trainer/search_config", "trainer/tournament_config"},
    "trainer/tournament_config": {"base"},
    "trainer/search_config": {"base", "trainer/metric_name"},
    "trainer/follow_config": {"base", "trainer/metric_name", "trainer/search_config"},
    "trainer/metric_name": {"base"},
    "trainer/config_tables": {"base"},
    "propose": {"base", "propose/config"},
    "propose/config": {"base", "propose/config_tables"},
    "propose/config_tables": {"base"},
    "specs": {"base", "propose/config", "propose/config_tables", "converters/config", "converters/config_tables", "trainer/config", "trainer/config_tables", "trainer/follow_config", "trainer/search_config"},
    "engine": {"specs", "base", "converters/data_set_files"},
    # Plain types that the scheduler, messages and workers share.
    "engine/schedule/types": {"specs"},
    "engine/schedule/states": {"specs"},
    "engine/wire": {"engine/schedule/types", "engine/schedule/states", "specs", "base"},
    "engine/store": {"engine", "engine/wire", "engine/batch", "specs", "base"},
    "engine/batch": {"specs", "base"},
    "steps": {"base", "specs"},
    "plugin": {"base", "traces", "specs"},
    "workers": {"steps", "engine/wire", "specs", "base"},
    "cli": {"base", "specs", "engine", "engine/wire", "engine/store", "engine/batch", "steps", "workers", "converters",
            "converters/config", "converters/data_set_files", "trainer/config", "propose"},
    "examples/cosmoflow": set(),
    "examples/climate": {"plugin"},
    "examples/implosion": {"plugin"},
    "examples/inference": {"plugin", "traces"},
    "examples/jag_like": {"plugin"},
}
SHARED = {"engine/schedule/types", "engine/schedule/states"}
for module in ("engine", "engine/store", "workers", "cli"):
    MODULES[module] |= SHARED
MODULES["engine"] |= {"engine/wire", "engine/store", "engine/batch"}
MODULES["trainer"] |= {"converters/config", "trainer/config", "trainer/metric_name", "trainer/search_config"}
MODULES["converters"] |= {"converters/config", "converters/config_tables"}
ALL = {"tests", "bench"}

# A library's headers, and the files that may include them.
BOUNDARIES = {
    r"yaml-cpp/": r"base/yaml\.cc",
    r"spdlog/": r"base/log\.cc",
    r"zmq(\.hpp|_addon\.hpp|\.h)$": r"(engine/wire|plugin/ppx)/.*",
    r"(sqlite3\.h|SQLiteCpp/)": r"engine/store/.*",
    r"(hdf5|H5\w*)\.h": r"(converters|examples/cosmoflow)/.*",
    r"(torch/|ATen/|c10/|caffe2/)": r"trainer/.*",
    r"mpi\.h": r"trainer/.*",
    r"n?curses\.h": r"cli/top/screen\.cc",
    r"cairo/": r"cli/plot/(draw|pen|main)\..*",
    r"utf8proc\.h": r"cli/top/grid\.cc",
    r"sodium\.h": r"cli/export/ro_crate\.cc",
}
# Tests and benchmarks stand outside, and look into the files that they check.
OUTSIDE = re.compile(r"(tests|bench)/.*|.*_test\.cc")

# The two state machines: nothing that they include, by any way, is a socket, clock, process, thread or database.
MACHINES = re.compile(r"(engine/coordinate/(machine\w*|checks|known_workers|timing)|workers/agent/machine\w*)\.(h|cc)")
NO_IO = re.compile(
    r"(c?chrono|ctime|time\.h|sys/.*|unistd\.h|fcntl\.h|c?signal(\.h)?|poll\.h|sched\.h|pthread\.h|spawn\.h|netdb\.h|thread|mutex|"
    r"shared_mutex|condition_variable|future|fstream|iostream|random|zmq.*|sqlite3\.h|SQLiteCpp/.*|"
    r"base/(clock|file|folders|process|log)\.h|engine/(store/(store|commit_thread|database)|wire/transport|wire/keys)\.h)"
)

SOURCES = {".cc", ".h", ".cpp", ".hpp", ".py", ".cmake"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


def tracked_files():
    """Files that git tracks or would add; without git, everything outside of build folders."""
    try:
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
        names = listed.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.relative_to(ROOT).parts[0] not in ("build", ".git")]
    return sorted(name for name in names if (ROOT / name).is_file())


def module_of(name):
    """The module of a file or an include: "converters/config" for converters/config.h and .cc, "base" for base/file.h."""
    stem = re.sub(r"\.\w+$", "", name)
    fitting = [module for module in MODULES if stem == module or stem.startswith(module + "/")]
    return max(fitting, key=len, default=name.split("/")[0])


def allowed(name, included):
    here, there = module_of(name), module_of(included)
    if here.split("/")[0] in ALL or here == there:
        return True
    if here in ("converters/config", "converters/config_tables", "converters/data_set_files", "trainer/config") and there == here.split("/")[0]:
        # A light header of the own module, such as converters/split.h, is followed by its own includes.
        return True
    # A *_test.cc beside its unit may also use what stands in its own module.
    return there in MODULES.get(here, set()) or (name.endswith("_test.cc") and there.split("/")[0] == here.split("/")[0])


def check_includes(name, text):
    offences = []
    for number, line in enumerate(text.splitlines(), 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        quoted, included = found[1] == '"', found[2]
        if quoted and (ROOT / included).exists() and not allowed(name, included):
            offences.append(f"{name}:{number}: {module_of(name)}/ may not include {included} (CONTRIBUTING.md, Modules)")
        for library, boundary in BOUNDARIES.items():
            if re.match(library, included) and not re.fullmatch(boundary, name) and not OUTSIDE.fullmatch(name):
                offences.append(f"{name}:{number}: <{included}> may be included only in {boundary}")
    return offences


def includes_of(name):
    """The includes of a file of ours, as they are written."""
    found = (INCLUDE.match(line) for line in (ROOT / name).read_text(errors="replace").splitlines())
    return [match[2] for match in found if match]


def io_behind(name, includes=includes_of):
    """How the closure of a file's includes leads to I/O: chains of includes."""
    chains, seen, waiting = [], {name}, [(name,)]
    while waiting:
        chain = waiting.pop()
        for included in includes(chain[-1]):
            if included in seen:
                continue
            seen.add(included)
            if NO_IO.fullmatch(included):
                chains.append(" -> ".join((*chain, included)))
            elif (ROOT / included).is_file():
                waiting.append((*chain, included))
    return chains


def check_machines(names):
    machines = [name for name in names if MACHINES.fullmatch(name) and not name.endswith("_test.cc")]
    if len(machines) < 8:
        return [f"tests/includes_test.py: finds the files of the two state machines no more, but {machines}"]
    return [f"{chain}: a state machine does no I/O (docs/architecture.md)" for name in machines for chain in io_behind(name)]


def check_licence(name, text):
    head = "\n".join(text.splitlines()[:3])
    return [] if "SPDX-License-Identifier: Apache-2.0" in head else [f"{name}:1: no SPDX-License-Identifier line"]


# Folders without a README, and those below them: why.
WITHOUT_README = {
    "specs/testdata": "cases, which specs/README.md describes",
    "tests/conformance/cases": "cases, which tests/conformance/README.md describes",
    "tests/formats/campaigns": "stored campaigns, which tests/formats/README.md describes",
    "docs/screenshots": "pictures of docs/screenshots.md",
    "cli/templates": "studies that `wflow template` prints; each begins with its own description",
}


def folders_of(names):
    """{folder: number of files in it}, the folders above included."""
    folders = {}
    for name in names:
        for parent in list(Path(name).parents)[:-1]:
            folders.setdefault(str(parent), 0)
        if "/" in name:
            folders[str(Path(name).parent)] += 1
    return folders


def check_readmes(names):
    """A README in every folder, except in a folder of one file, whose head says the same."""
    present, offences = set(names), []
    for folder, files in sorted(folders_of(names).items()):
        exempt = files == 1 and not any(name.startswith(folder + "/") and "/" in name[len(folder) + 1:] for name in names)
        exempt = exempt or any(folder == without or folder.startswith(without + "/") for without in WITHOUT_README)
        if not exempt and f"{folder}/README.md" not in present:
            offences.append(f"{folder}/README.md: missing; each folder has one of a screen")
    return offences


def offences_of(names):
    offences = check_readmes(names) + check_machines(names)
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
        "engine/coordinate/coordinator.cc": '#include "workers/agent/worker.h"',
        "base/text.cc": '#include "specs/study/study.h"',
        "workers/agent/agent.cc": '#include "engine/store/store.h"',
        "cli/commands/run.cc": '#include "trainer/training/trainer.h"',
        "specs/plan/plan.cc": "#include <yaml-cpp/yaml.h>",
        "engine/coordinate/coordinator.cc ": "#include <zmq.hpp>",
        "cli/commands/status.cc": "#include <sqlite3.h>",
        "trainer/training/trainer.cc": "#include <hdf5.h>",
        "converters/convert/run.cc": "#include <mpi.h>",
        "cli/view/status.cc": "#include <torch/torch.h>",
    }
    right = {
        "engine/coordinate/coordinator.cc": '#include "engine/store/store.h"',
        "specs/study/blocks.cc": '#include "trainer/config.h"',
        "workers/agent/agent.cc": '#include "engine/wire/messages.h"',
        "trainer/data/sample_source.cc": '#include "converters/shards/shard_reader.h"',
        "tests/anything.cc": '#include "workers/agent/worker.h"',
    }
    tree = {"engine/coordinate/machine.cc": ["base/text.h"], "base/text.h": ["chrono"]}
    if not io_behind("engine/coordinate/machine.cc", lambda name: tree.get(name, [])):
        return ["tests/includes_test.py: does not follow includes of includes"]
    listed = check_readmes(["a/b/one.cc", "c/one.cc", "c/two.cc", "d/README.md", "d/one.cc", "specs/testdata/x/a", "specs/testdata/x/b"])
    if [line.split("/README")[0] for line in listed] != ["a", "c", "specs"]:
        return [f"tests/includes_test.py: finds other folders without a README: {listed}"]
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
