#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the ctest entries of presets as CI does, and ends with one summary of all of them in ctest's words.

  ctest_run.py run PRESET [--keep-going] [--compiled | --label LABEL]     adds the results to build/ctest-results.json
  ctest_run.py summary [--full]
  ctest_run.py slowest                       writes the slowest twenty entries into tests/README.md

`run`: entries with the label `unit` come first. If one of them fails, the whole-system tests do not run, unless --keep-going
is given. --compiled: only the programs of unit tests and the simulations. --label: only the entries with this label. A whole-system test
that fails runs once more, alone. Unit tests and simulations are deterministic and never run twice.

`summary` lists what was skipped and why, which tests are flaky (failed, then passed alone), and the result of every entry. These count as
failures: a failed entry, more than two flaky ones, and with --full (a machine as CI has it: root, Slurm, Grid Engine) a test that was
skipped for a reason that is not in PERMITTED."""

import argparse
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "build" / "ctest-results.json"
DETERMINISTIC = ("unit", "simulation")
FLAKY_AT_MOST = 2
# More failures than this have one cause, and no second run would say more.
RERUNS_AT_MOST = 6
SLOWEST = 20
SYSTEM_TESTS_A_CORE = 3
ALL_SKIPPED = "SKIP_RETURN_CODE=77"

# Reasons to skip a test on a full machine. Each depends on the processor, the kernel, the preset, or is one half of a choice.
PERMITTED = {
    r"AVX-?512|oneDNN (is limited to|has) ": "the processor lacks these instructions",
    r"there is a GPU": "the test is about machines without one",
    r"root may (move|write) everything|root may write everywhere": "the test is about other users",
    r"sanitizer|[Ss]anitized|UBSan": "not possible in the sanitizers' presets; dev runs it",
    r"no program of this build starts with such a stack": "sanitized programs need more",
    r"the right to mount|no right to mount|can be mounted here|can't be mounted here": "containers may forbid it",
    r"no loop device|no control group|may make no control groups|no filters of system calls|let one choose the number of a process":
        "containers and kernels may lack it",
    r"namespaces can't be made here": "containers may forbid it",
    r"more than a minute|takes minutes to settle|three minutes": "by hand, with WFLOW_SLOW_TESTS=1",
    r"/dev/shm is the file system of the temporary folder": "the machine has one file system",
    r"MPICH is not here": "Open MPI and MPICH exclude each other in Debian",
    r"too few open files are allowed": "a limit of the machine",
    r"needs wflow-train": "a build without the trainer",
    r"another user can't start the programs here": "the source tree is below a private folder",
}

# tests/entry.py prints it, for the entry and all programs that it has started.
CPU_SECONDS = re.compile(r"^entry: ([\d.]+) s of CPU", re.M)
SKIPPED_TEST = re.compile(r"^skipped: (\S+) \((.*)\)$", re.M)
# ctest's own summary, at the start of a line: held back while a failed test may still pass alone.
SUMMARY = re.compile(r"^\d+% tests passed, \d+ tests failed out of \d+")


def permitted(reason):
    return any(re.search(pattern, reason) for pattern in PERMITTED)


def read_junit(path):
    """{name: {outcome, seconds, cpu, skipped}} of ctest --output-junit; cpu: seconds, or None where the entry does not print them."""
    entries = {}
    for case in xml.parse(path).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        skipped = case.find("skipped")
        by_exit_code = skipped is not None and skipped.get("message") == ALL_SKIPPED
        cpu = CPU_SECONDS.search(output)
        outcome = "passed" if case.get("status") == "run" else "skipped" if by_exit_code else "failed"
        entries[case.get("name")] = {
            "outcome": outcome, "seconds": float(case.get("time") or 0), "cpu": float(cpu[1]) if cpu else None,
            "skipped": SKIPPED_TEST.findall(output) or ([[case.get("name"), "no reason given"]] if by_exit_code else [])}
    return entries


def pass_on(lines, hold_summary):
    """Prints ctest's output as it comes; its summary, from the first line on, is returned instead if it may change."""
    held = []
    for line in lines:
        if hold_summary and (held or SUMMARY.match(line)):
            held.append(line)
        else:
            sys.stdout.write(line)
            sys.stdout.flush()
    return "".join(held)


def ctest(preset, *options, hold_summary=False):
    """Runs ctest. Returns its entries and the held part of its output."""
    junit = ROOT / "build" / preset / "junit.xml"
    junit.unlink(missing_ok=True)
    # Without a limit, ctest cuts the end of long outputs, which has the reasons of skipped tests.
    words = ["ctest", "--preset", preset, "--output-junit", str(junit), "--test-output-size-passed", "100000000",
             "--test-output-size-failed", "100000000", "--no-tests=error", *options]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        held = pass_on(process.stdout, hold_summary)
    if not junit.exists():
        raise SystemExit(f"ctest_run: ctest ended with {process.returncode} and left no {junit}\n{held}")
    return read_junit(junit), held


def labels_of(preset):
    shown = subprocess.run(["ctest", "--preset", preset, "--show-only=json-v1"], cwd=ROOT, capture_output=True, text=True, check=True)
    labels = {}
    for test in json.loads(shown.stdout)["tests"]:
        labels[test["name"]] = next((p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"), [])
    return labels


def failed_in(entries):
    return sorted(name for name, entry in entries.items() if entry["outcome"] == "failed")


def run_again(preset, entries, names, run=ctest):
    """Runs failed whole-system tests once more, one at a time. What passes is flaky."""
    print(f"\n{len(names)} failed; once more, alone: {' '.join(names)}", flush=True)
    pattern = "^(" + "|".join(re.escape(name) for name in names) + ")$"
    again, _ = run(preset, "-R", pattern, "-j", "1", hold_summary=True)
    for name in names:
        if again.get(name, {}).get("outcome") == "passed":
            entries[name]["outcome"] = "flaky"


def run_preset(preset, keep_going=False, run=ctest, labels=None, compiled=False):
    """{name: entry} of a preset, and whether the whole-system tests ran."""
    labels = labels_of(preset) if labels is None else labels
    jobs = os.cpu_count() or 1
    entries, _ = run(preset, "-L", "^compiled$" if compiled else "^unit$", "-j", str(jobs))
    if failed_in(entries) and not keep_going:
        print(f"\n{preset}: a unit test failed; the whole-system tests do not run (--keep-going runs them)", flush=True)
        return entries
    # Most of these tests wait for most of their time. Those that do not declare so many thirds of a core as their PROCESSORS.
    chosen = ["-L", "^simulation$"] if compiled else ["-LE", "^unit$"]
    system, held = run(preset, *chosen, "-j", str(SYSTEM_TESTS_A_CORE * jobs), hold_summary=True)
    again = [name for name in failed_in(system) if not set(DETERMINISTIC) & set(labels.get(name, []))]
    if 0 < len(again) <= RERUNS_AT_MOST:
        run_again(preset, system, again, run)
    else:
        sys.stdout.write(held)
    return entries | system


def run_label(preset, label, run=ctest):
    """{name: entry} of the entries with one label."""
    return run(preset, "-L", f"^{label}$", "-j", str(os.cpu_count() or 1))[0]


def command_run(options):
    started_s = time.monotonic()
    if options.label:
        entries = run_label(options.preset, options.label)
    else:
        entries = run_preset(options.preset, options.keep_going, compiled=options.compiled)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    seconds = time.monotonic() - started_s
    results[options.preset] = {"seconds": seconds, "entries": entries}
    RESULTS.write_text(json.dumps(results))
    if line := cpu_line(options.preset, seconds, entries):
        print(line, flush=True)
    return 1 if failed_in(entries) else 0


def summary_of(results, full):
    """The lines of the summary, and whether everything passed."""
    several = len(results) > 1
    lines, failures, flaky, total = [], [], [], 0
    for preset, result in results.items():
        for name, entry in sorted(result["entries"].items()):
            total += 1
            shown = f"{preset}: {name}" if several else name
            if entry["outcome"] == "failed":
                failures.append(f"{shown} (Failed)")
            elif entry["outcome"] == "flaky":
                flaky.append(shown)
            unexpected = False
            for test, reason in entry["skipped"]:
                lines.append(f"skipped: {shown if test == name else f'{shown} {test}'} ({reason})")
                unexpected = unexpected or not permitted(reason)
            if full and unexpected and entry["outcome"] != "failed":
                failures.append(f"{shown} (Skipped; a full machine can run it)")
    lines += [f"flaky: {name} (failed, then passed alone)" for name in flaky]
    if len(flaky) > FLAKY_AT_MOST:
        failures += [f"{name} (Flaky, and so are {len(flaky) - 1} others; at most {FLAKY_AT_MOST} may be)" for name in flaky
                     if f"{name} (Skipped; a full machine can run it)" not in failures]
    passed = total - len(failures)
    # ctest prints 100 % only if all passed.
    percent = 100 if not failures else min(99, round(100 * passed / total))
    lines += ["", f"{percent}% tests passed, {len(failures)} tests failed out of {total}", "",
              f"Total Test time (real) = {sum(result['seconds'] for result in results.values()):6.2f} sec"]
    if failures:
        lines += ["", "The following tests FAILED:", *(f"\t{failure}" for failure in failures)]
    return lines, not failures


def slowest(results, count):
    """The slowest entries as a table of Markdown. With several presets, the first one counts."""
    entries = next(iter(results.values()))["entries"]
    ordered = sorted(entries.items(), key=lambda item: -item[1]["seconds"])[:count]
    return ["| entry | s | of CPU |", "|---|---:|---:|",
            *(f"| `{name}` | {entry['seconds']:.0f} | {'' if entry.get('cpu') is None else round(entry['cpu'])} |" for name, entry in ordered)]


def cpu_line(preset, seconds, entries):
    """Sums the CPU seconds of the entries that print them, and names the five that used most."""
    known = sorted(((entry["cpu"], name) for name, entry in entries.items() if entry["cpu"] is not None), reverse=True)
    if not known:
        return None
    most = ", ".join(f"{name} {cpu:.0f}" for cpu, name in known[:5])
    return f"{preset}: {len(known)} entries took {sum(cpu for cpu, _ in known):.0f} s of CPU in {seconds:.0f} s; the most: {most}"


def command_summary(options):
    if not RESULTS.exists():
        raise SystemExit("ctest_run: no results; `ctest_run.py run PRESET` makes them")
    results = json.loads(RESULTS.read_text())
    lines, passed = summary_of(results, options.full)
    print("\n".join(lines))
    return 0 if passed else 1


def with_slowest(page, table):
    """The page with the table between its two marks."""
    begin, end = "<!-- slowest: ctest_run.py slowest -->\n", "<!-- end of slowest -->"
    before, rest = page.split(begin)
    return before + begin + "\n" + "\n".join(table) + "\n\n" + end + rest.split(end)[1]


def command_slowest(_):
    page = ROOT / "tests" / "README.md"
    page.write_text(with_slowest(page.read_text(), slowest(json.loads(RESULTS.read_text()), SLOWEST)))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run")
    run.add_argument("preset")
    run.add_argument("--keep-going", action="store_true")
    part = run.add_mutually_exclusive_group()
    part.add_argument("--compiled", action="store_true")
    part.add_argument("--label")
    run.set_defaults(run=command_run)
    summary = commands.add_parser("summary")
    summary.add_argument("--full", action="store_true")
    summary.set_defaults(run=command_summary)
    commands.add_parser("slowest").set_defaults(run=command_slowest)
    options = parser.parse_args()
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
