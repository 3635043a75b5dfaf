# SPDX-License-Identifier: Apache-2.0
"""CI's summary (ctest_run.py): skipped, flaky and failed entries of a small project that real ctest runs."""

import contextlib
import io
import subprocess
import tempfile
import unittest
from pathlib import Path

import ctest_run

# One entry a kind. `flaky` passes from its second run on.
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(entries NONE)
enable_testing()
function(entry name label script)
  add_test(NAME ${name} COMMAND sh -c "${script}")
  set_tests_properties(${name} PROPERTIES LABELS ${label} SKIP_RETURN_CODE 77)
endfunction()
entry(passes unit "true")
entry(partly unit "echo 'skipped: A.b (the processor has no AVX-512)'")
entry(no_slurm slurm "echo 'skipped: setUpClass (no Slurm here: slurmctld)'; exit 77")
entry(pretends e2e "echo 'skipped: A.c (no root here)'; exit 1")
entry(flaky e2e "test -e flaky_ran || { touch flaky_ran; exit 1; }")
entry(simulation simulation "test -e simulation_ran || { touch simulation_ran; exit 1; }")
"""


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = Path(folder.name)
        (cls.root / "CMakeLists.txt").write_text(PROJECT)
        subprocess.run(["cmake", "-S", cls.root, "-B", cls.root / "build"], check=True, capture_output=True)
        cls.output = io.StringIO()
        labels = {"simulation": ["simulation"]}
        with contextlib.redirect_stdout(cls.output):
            cls.entries = ctest_run.run_preset("small", run=cls.ctest, labels=labels)

    @classmethod
    def ctest(cls, _, *options, hold_summary=False):
        junit = cls.root / "junit.xml"
        words = ["ctest", "--test-dir", cls.root / "build", "--output-junit", junit, "--test-output-size-passed", "100000", *options]
        done = subprocess.run(words, capture_output=True, text=True)
        return ctest_run.read_junit(junit), ctest_run.pass_on(done.stdout.splitlines(True), hold_summary)

    def test_outcomes(self):
        outcomes = {name: entry["outcome"] for name, entry in self.entries.items()}
        self.assertEqual(outcomes, {"passes": "passed", "partly": "passed", "no_slurm": "skipped", "pretends": "failed",
                                    "flaky": "flaky", "simulation": "failed"})

    def test_one_label(self):
        self.assertEqual(list(ctest_run.run_label("small", "slurm", self.ctest)), ["no_slurm"])

    def test_failed_summary_of_the_first_run_is_held_back(self):
        self.assertIn("100% tests passed, 0 tests failed out of 2", self.output.getvalue())
        self.assertNotIn("tests failed out of 4", self.output.getvalue())
        self.assertIn("2 failed; once more, alone: flaky pretends", self.output.getvalue())

    def test_summary(self):
        lines, passed = ctest_run.summary_of({"dev": {"seconds": 1.5, "entries": self.entries}}, full=False)
        self.assertFalse(passed)
        self.assertIn("skipped: partly A.b (the processor has no AVX-512)", lines)
        self.assertIn("skipped: no_slurm setUpClass (no Slurm here: slurmctld)", lines)
        self.assertIn("flaky: flaky (failed, then passed alone)", lines)
        self.assertEqual(lines[-7:], ["67% tests passed, 2 tests failed out of 6", "", "Total Test time (real) =   1.50 sec", "",
                                      "The following tests FAILED:", "\tpretends (Failed)", "\tsimulation (Failed)"])

    def test_full_machine(self):
        entries = {name: self.entries[name] for name in ("passes", "partly", "no_slurm")}
        _, passed = ctest_run.summary_of({"dev": {"seconds": 1, "entries": entries}}, full=False)
        self.assertTrue(passed)
        lines, passed = ctest_run.summary_of({"dev": {"seconds": 1, "entries": entries}}, full=True)
        self.assertFalse(passed)
        self.assertEqual(lines[-1], "\tno_slurm (Skipped; a full machine can run it)")
        del entries["no_slurm"]
        self.assertTrue(ctest_run.summary_of({"dev": {"seconds": 1, "entries": entries}}, full=True)[1])


class Rules(unittest.TestCase):
    @staticmethod
    def entry(outcome):
        return {"outcome": outcome, "seconds": 1, "cpu": None, "skipped": []}

    def test_two_flaky_pass_and_three_fail(self):
        for count in (2, 3):
            entries = {f"flaky{n}": self.entry("flaky") for n in range(count)} | {"one": self.entry("passed")}
            lines, passed = ctest_run.summary_of({"dev": {"seconds": 1, "entries": entries}}, full=True)
            self.assertEqual(passed, count == 2)
            self.assertEqual(sum(line.startswith("flaky: ") for line in lines), count)

    def test_flaky_ones_count_over_presets(self):
        results = {preset: {"seconds": 1, "entries": {name: self.entry("flaky") for name in names}}
                   for preset, names in (("dev", "ab"), ("asan", "a"))}
        self.assertFalse(ctest_run.summary_of(results, full=True)[1])

    def test_a_failed_unit_test_ends_the_run(self):
        calls = []

        def run(_, *options, **keywords):
            calls.append(options)
            return {"unit": self.entry("failed")}, ""

        with contextlib.redirect_stdout(io.StringIO()):
            ctest_run.run_preset("dev", run=run, labels={})
            self.assertEqual(len(calls), 1)
            ctest_run.run_preset("dev", keep_going=True, run=run, labels={"unit": ["unit"]})
            self.assertEqual(len(calls), 3)

    def test_slowest(self):
        entries = {"a": self.entry("passed"), "b": self.entry("passed") | {"seconds": 7.4, "cpu": 5.6}}
        table = ctest_run.slowest({"dev": {"entries": entries}}, 1)
        self.assertEqual(table[2:], ["| `b` | 7 | 6 |"])
        page = (ctest_run.ROOT / "tests" / "README.md").read_text()
        new = ctest_run.with_slowest(page, table)
        self.assertIn("| `b` | 7 | 6 |\n\n<!-- end of slowest -->", new)
        self.assertEqual(ctest_run.with_slowest(new, table), new)
        self.assertEqual(new.split("<!--")[0], page.split("<!--")[0])
        self.assertEqual(ctest_run.cpu_line("dev", 10.2, entries), "dev: 1 entries took 6 s of CPU in 10 s; the most: b 6")
        self.assertIsNone(ctest_run.cpu_line("dev", 1, {"a": self.entry("passed")}))


if __name__ == "__main__":
    unittest.main()
