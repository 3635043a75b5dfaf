# SPDX-License-Identifier: Apache-2.0
"""Studies of Merlin and Maestro, each beside what it must leave: run with the built wflow, in real shells.

  run.py [--renew] [GROUP | GROUP/CASE]...      without names: all of cases/

A case is cases/GROUP/CASE.yaml, the study, and CASE.expect (YAML):

  about:        what it shows
  source:       the public file of sources.yaml whose form or features it has
  merlin:       what Merlin (or Maestro) does, where that is worth a word
  was:          what wflow did before, of a case that was made for a defect
  agreement:    agrees (the default), or differs (on purpose: `why` says it)
  inputs:       {FILE: text}, beside the study
  before:       shell lines that make further inputs; they and the study find $HERE, the study's directory, and $MACHINE
  commands:     [{ARGUMENTS OF WFLOW: EXIT CODE}], one after the other; default: [{run CASE.yaml: 0}]. "$ COMMAND" is a shell's
  errors:       text that stderr must hold
  says:         text that stdout must hold
  campaign:     where the campaign directory is, from the study's
  tree:         {DIRECTORY: FILES} of the campaign, all of it but .wflow and the copies of the study
  files:        {PATH: text} of files in the campaign
  beside:       {PATH: text} of files beside the study
  counts:       {STEP: {STATE: NUMBER}} by wflow status

In texts, <CAMPAIGN> is the campaign directory, <HERE> the study's, <TIME> the campaign's time stamp, <DURATION> a task's. What a case does not name is
not looked at. --renew writes campaign, tree, files, beside and counts as they are now, where the case names them: read what changed.
"""

import argparse
import difflib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import yaml

SOURCE = Path(__file__).resolve().parent
CASES = SOURCE / "cases"
BIN = Path(os.environ.get("WFLOW_BIN", SOURCE.parents[1] / "build" / "dev" / "bin"))
DEADLINE_S = int(os.environ.get("WFLOW_E2E_DEADLINE_S", "60"))
SPEC = 3  # the exit code for a file that is wrong
KEYS = ["about", "source", "merlin", "was", "agreement", "why", "inputs", "before", "commands", "errors", "says", "campaign", "tree", "files", "beside", "counts"]


class Expectation(yaml.SafeDumper):
    """Texts of several lines as blocks, so that a case reads as its files do."""


def represent_text(dumper, text):
    # YAML has no block for lines that end in blanks.
    block = "\n" in text and not re.search(r"[ \t]\n|[^\x20-\x7e\n]", text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if block else None)


Expectation.add_representer(str, represent_text)


def read_expectation(path):
    expected = yaml.safe_load(path.read_text()) or {}
    if unknown := set(expected) - set(KEYS):
        raise ValueError(f"{path.name}: unknown keys {sorted(unknown)}; known are {KEYS}")
    return expected


def write_expectation(path, expected):
    ordered = {key: expected[key] for key in KEYS if key in expected}
    path.write_text(yaml.dump(ordered, Dumper=Expectation, sort_keys=False, width=1000, allow_unicode=True))


class Case:
    def __init__(self, study, folder):
        self.study = study
        self.expected = read_expectation(study.with_suffix(".expect"))
        self.folder = folder
        self.errors = ""
        self.said = ""
        self.problems = []

    def environment(self):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("MERLIN_", "WFLOW_", "SLURM_", "OMP_"))}
        return {**environment, "PATH": f"{BIN}:{environment['PATH']}", "HERE": str(self.folder), "MACHINE": os.uname().nodename,
                "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}

    def execute(self, arguments):
        return subprocess.run(arguments, cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE_S, start_new_session=True)

    def prepare(self):
        shutil.copy(self.study, self.folder)
        for name, text in self.expected.get("inputs", {}).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if before := self.expected.get("before"):
            done = self.execute(["bash", "-e", "-c", before])
            if done.returncode != 0:
                raise RuntimeError(f"before: ended with {done.returncode}\n{done.stdout}{done.stderr}")

    def run_commands(self):
        for command in self.expected.get("commands") or [{f"run {self.study.name}": 0}]:
            [(words, code)] = command.items()
            shell = words.startswith("$ ")
            done = self.execute(["bash", "-e", "-c", words[2:]] if shell else [BIN / "wflow", *words.split()])
            self.errors += done.stderr
            self.said += done.stdout
            if done.returncode != code:
                self.problems.append(f"{words}: exit code {done.returncode} instead of {code}\n{done.stdout}{done.stderr}")

    # ---- what it left

    def campaign(self):
        found = [path.parent.parent for path in self.folder.rglob(".wflow/campaign.db")]
        if len(found) != 1:
            raise RuntimeError(f"{len(found)} campaigns instead of one\n{self.errors}")
        return found[0]

    @staticmethod
    def stamp(campaign):
        return campaign.name[-len("20261121-160001"):]

    def normalise(self, text, campaign):
        for old, new in ((str(campaign), "<CAMPAIGN>"), (str(self.folder), "<HERE>"), (self.stamp(campaign), "<TIME>")):
            text = text.replace(old, new)
        # How long it took is different every time.
        return re.sub(r'"(elapsed_time|run_time)":"\d+d:\d\dh:\d\dm:\d\ds"', r'"\1":"<DURATION>"', text)

    def text_of(self, root, name, campaign):
        path = root / name
        return self.normalise(path.read_text(errors="replace"), campaign) if path.is_file() else None

    def tree_of(self, campaign):
        tree = {}
        copies = {f"{self.study.stem}.{kind}.yaml" for kind in ("orig", "partial", "expanded")}
        for folder, folders, files in os.walk(campaign):
            folders[:] = sorted(name for name in folders if name != ".wflow")
            relative = os.path.relpath(folder, campaign)
            if relative == "merlin_info":
                files = [name for name in files if name not in copies]
            if files or not folders and relative != "merlin_info":
                tree[self.normalise(relative, campaign)] = " ".join(sorted(files))
        return tree

    def counts_of(self, campaign):
        status = self.execute([BIN / "wflow", "status", campaign, "--json"])
        return {step["name"]: {state: n for state, n in step["counts"].items() if n} for step in json.loads(status.stdout)["steps"]}

    def found(self):
        """The present state of all that the case names."""
        asked = self.expected
        if not any(key in asked for key in ("campaign", "tree", "files", "counts")):
            campaign = self.folder / "no-campaign"
        else:
            campaign = self.campaign()
        found = {}
        if "campaign" in asked:
            found["campaign"] = str(campaign.relative_to(self.folder)).replace(self.stamp(campaign), "<TIME>")
        if "tree" in asked:
            found["tree"] = self.tree_of(campaign)
        if "files" in asked:
            found["files"] = {name: self.text_of(campaign, name, campaign) for name in asked["files"]}
        if "beside" in asked:
            found["beside"] = {name: self.text_of(self.folder, name, campaign) for name in asked["beside"]}
        if "counts" in asked:
            found["counts"] = self.counts_of(campaign)
        return found

    def compare(self, found):
        for line in self.expected.get("errors", []):
            if line.replace("<HERE>", str(self.folder)) not in self.errors:
                self.problems.append(f"stderr does not hold: {line}\n{self.errors}")
        for line in self.expected.get("says", []):
            campaign = str(self.campaign()) if "<CAMPAIGN>" in line else ""
            if line.replace("<CAMPAIGN>", campaign) not in self.said:
                self.problems.append(f"stdout does not hold: {line}\n{self.said}")
        for key, value in found.items():
            if value == self.expected[key]:
                continue
            old, new = (yaml.dump(v, Dumper=Expectation, sort_keys=False, width=1000).splitlines() for v in (self.expected[key], value))
            difference = "\n".join(difflib.unified_diff(old, new, "expected", "found", lineterm="", n=1))
            self.problems.append(f"{key} differs:\n{difference}\n{self.errors}")


def end_processes(folder):
    """Ends the processes of a case that did not come to its end: coordinator and workers name the folder in their command lines."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int(entry.name) != os.getpid() and str(folder).encode() in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            pass  # it has ended meanwhile


def run_case(study, renew):
    """Its problems; none when all is as it should be."""
    folder = Path(tempfile.mkdtemp(prefix="wflow-conformance-")).resolve()
    try:
        case = Case(study, folder)
        case.prepare()
        case.run_commands()
        found = case.found()
        if renew:
            write_expectation(study.with_suffix(".expect"), {**case.expected, **found})
            case.expected.update(found)
        case.compare(found)
        return case.problems
    except Exception:  # a case that can't be read or ends in the middle fails, the others run
        return [traceback.format_exc()]
    finally:
        end_processes(folder)
        shutil.rmtree(folder, ignore_errors=True)


VERDICTS = ["agrees", "differs", "refused"]


def verdict_of(expected):
    codes = [code for command in expected.get("commands", []) for code in command.values()]
    refused = bool(codes) and all(code == SPEC for code in codes)
    return expected.get("agreement", "refused" if refused else "agrees")


def row_of(name, verdicts):
    return f"| {name} | {len(verdicts)} | " + " | ".join(str(verdicts.count(verdict)) for verdict in VERDICTS) + " |"


def group_table(cases):
    """A row a group: how many cases there are; agree; differ on purpose; are refused, as they are by Merlin."""
    groups = {}
    for study, expected in cases:
        groups.setdefault(study.parent.name, []).append(verdict_of(expected))
    rows = [row_of(group, verdicts) for group, verdicts in groups.items()]
    rows.append(row_of("all", [verdict for verdicts in groups.values() for verdict in verdicts]))
    return "\n".join(["| group | cases | agree | differ on purpose | refused by both |", "|---|---|---|---|---|", *rows]) + "\n"


def read_sources(path=SOURCE / "sources.yaml"):
    """{"Merlin workflows: hello": why there is no case, or None}"""
    return {f"{collection}: {file}": (known or {}).get("why")
            for collection, files in yaml.safe_load(path.read_text()).items() for file, known in files.items()}


def source_table(cases):
    """A row a public file: the same counts of the cases that name it, and what differs or why there is no case."""
    sources = read_sources()
    found = {source: [] for source in sources}
    for study, expected in cases:
        if "source" in expected:
            found[expected["source"]].append((f"{study.parent.name}/{study.stem}", expected))
    rows = []
    for source, named in found.items():
        differing = [f"{name}: {expected['why']}" for name, expected in named if verdict_of(expected) == "differs"]
        rows.append(row_of(source, [verdict_of(expected) for _, expected in named]) + f" {'; '.join(differing) or sources[source] or ''} |")
    rows.append(row_of("none: made for a rule, a defect or a difference", [verdict_of(expected) for _, expected in cases if "source" not in expected]) + " |")
    return "\n".join(["| public file | cases | agree | differ on purpose | refused by both | what differs, or why there is no case |",
                      "|---|---|---|---|---|---|", *rows]) + "\n"


def check_report(cases):
    """Returns the problems of the sources of the cases, and of the tables in docs/conformance.md."""
    sources = read_sources()
    named = {expected["source"] for _, expected in cases if "source" in expected}
    problems = [f"sources.yaml has no file '{source}', which a case names" for source in sorted(named - set(sources))]
    problems += [f"sources.yaml: '{source}' has neither a case nor a why" for source, why in sources.items() if source not in named and not why]
    problems += [f"sources.yaml: '{source}' has cases, and a why there is none" for source, why in sources.items() if source in named and why]
    if problems:
        return problems
    report = (SOURCE.parents[1] / "docs" / "conformance.md").read_text()
    return [f"docs/conformance.md does not have this table:\n{table}" for table in (group_table(cases), source_table(cases)) if table not in report]


def main():
    parser = argparse.ArgumentParser(description="Runs the conformance cases.")
    parser.add_argument("names", nargs="*", help="GROUP or GROUP/CASE (default: all)")
    parser.add_argument("--table", action="store_true", help="run nothing; print the tables of docs/conformance.md")
    parser.add_argument("--check-report", action="store_true", help="run nothing; compare these tables with the page")
    parser.add_argument("--renew", action="store_true", help="write what was found into the cases")
    options = parser.parse_args()
    studies = sorted(CASES.glob("*/*.yaml"))
    if options.names:
        studies = [s for s in studies if s.parent.name in options.names or f"{s.parent.name}/{s.stem}" in options.names]
    if options.table or options.check_report:
        cases = [(study, read_expectation(study.with_suffix(".expect"))) for study in studies]
        problems = check_report(cases) if options.check_report else []
        print("\n".join(problems or [] if options.check_report else [group_table(cases), source_table(cases)]))
        return 1 if problems else 0
    failed = 0
    for study in studies:
        problems = run_case(study, options.renew)
        failed += bool(problems)
        print(f"{'FAILED' if problems else 'ok    '} {study.parent.name}/{study.stem}", flush=True)
        for problem in problems:
            print("    " + problem.strip().replace("\n", "\n    "))
    print(f"{len(studies) - failed} passed, {failed} failed")
    return 1 if failed or not studies else 0


if __name__ == "__main__":
    sys.exit(main())
