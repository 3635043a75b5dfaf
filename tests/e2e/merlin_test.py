# SPDX-License-Identifier: Apache-2.0
"""A study as Merlin's users write it: parameters and samples, funnels, a python shell, special exit codes."""

import unittest

from wflow_test import INTERRUPTED, OK, TASKS_FAILED, CampaignTest

STUDY = """
description: {name: merlin study, description: parameters and samples}
env: {variables: {OUTPUT_PATH: ., HELLO: world}}
global.parameters:
  SPEED: {values: [1, 2], label: SPEED.%%}
merlin:
  samples:
    column_labels: [X, Y]
    file: $(MERLIN_INFO)/samples.csv
    generate: {cmd: 'printf "0.5,1\\n0.25,2\\n0.125,3\\n" > $(MERLIN_INFO)/samples.csv'}
study:
  - name: sim
    description: every sample with every parameter
    run: {cmd: 'echo $(HELLO) $(SPEED) $(X) $(Y) $(MERLIN_SAMPLE_ID)'}
  - name: add
    description: in python
    run:
      cmd: |
        import pathlib
        print("sum", $(X) + $(Y) + $(SPEED), (pathlib.Path("$(sim.workspace)") / "$(MERLIN_SAMPLE_PATH)" / "sim_SPEED.$(SPEED).out").exists())
      shell: /usr/bin/python3
      depends: [sim]
  - name: gather
    description: once a parameter
    run: {cmd: 'cat $(add.workspace)/*/*/*.out', depends: [add_*]}
  - name: all
    description: once
    run: {cmd: 'echo all', depends: [gather_*]}
"""


class Merlin(CampaignTest):
    def test_parameters_samples_funnels(self):
        self.wflow("run", self.study(STUDY), code=OK)
        directory = self.campaign()
        self.assertTrue(directory.name.startswith("merlin_study_"))
        by_name = {step["name"]: step for step in self.status()["steps"]}
        self.assertEqual([(s["arrays"], s["elements"]) for s in by_name.values()][0], (2, 6))
        said = sorted(p.read_text().strip() for p in (directory / "sim").rglob("*.out"))
        table = [("0.5", "1"), ("0.25", "2"), ("0.125", "3")]
        self.assertEqual(said, sorted(f"world {s} {x} {y} {n}" for s in (1, 2) for n, (x, y) in enumerate(table)))
        sums = sorted(float(p.read_text().split()[1]) for p in (directory / "add").rglob("*.out"))
        self.assertEqual(sums, sorted(float(x) + float(y) + s for s in (1, 2) for x, y in table))
        self.assertEqual(len(list((directory / "sim").rglob("MERLIN_FINISHED"))), 6)
        self.assertEqual(len(list((directory / "all").rglob("*.out"))), 1)
        info = {p.name for p in (directory / "merlin_info").iterdir()}
        self.assertLessEqual({"samples.csv", "study.orig.yaml", "study.partial.yaml", "study.expanded.yaml"}, info)

    def special(self, command, restart="", retries=3):
        restart = f"\n      restart: |\n        : $(X)\n        {restart}" if restart else ""
        return self.study(f"""
description: {{name: special, description: exit codes}}
env: {{variables: {{OUTPUT_PATH: .}}}}
merlin: {{samples: {{column_labels: [X], file: x.csv}}}}
study:
  - name: work
    description: asks for something
    run:
      cmd: |
        : $(X)
        {command}
      max_retries: {retries}
      retry_delay: 0{restart}
  - name: after
    description: waits for it
    run: {{cmd: echo after $(X), depends: [work]}}
""")

    def setUp(self):
        super().setUp()
        (self.folder / "x.csv").write_text("10\n11\n12\n")

    def out(self, step, sample):
        return [p.read_text() for p in sorted((self.campaign() / step / sample).glob("*.out"))]

    def test_restart(self):
        self.wflow("run", self.special("echo first; exit $(MERLIN_RESTART)", restart="echo second; exit $(MERLIN_SUCCESS)"), code=OK)
        for sample in ("00", "01", "02"):
            self.assertEqual(self.out("work", sample), ["first\n", "second\n"])

    def test_retry(self):
        self.wflow("run", self.special("echo once more; [ -e tried ] || { touch tried; exit $(MERLIN_RETRY); }"), code=OK)
        for sample in ("00", "01", "02"):
            self.assertEqual(self.out("work", sample), ["once more\nonce more\n"])

    def test_retry_in_vain(self):
        self.wflow("run", self.special("echo once more; exit $(MERLIN_RETRY)", retries=2), code=TASKS_FAILED)
        self.assertEqual(self.out("work", "00"), ["once more\n" * 3])
        self.assertEqual(self.counts("work")["failed"], 3)

    def test_soft_fail(self):
        self.wflow("run", self.special("[ $(X) != 11 ] || exit $(MERLIN_SOFT_FAIL)"), code=TASKS_FAILED)
        self.assertEqual(self.counts("work")["failed"], 1)
        self.assertEqual(self.counts("after")["done"], 3, "dependents run after a soft failure")

    def test_hard_fail(self):
        # Its dependents are skipped, and the campaign ends after what runs; resuming does what is left.
        process = self.start("run", self.special("[ $(X) != 11 ] || exit $(MERLIN_HARD_FAIL)"), "-j", "1")
        self.assertIn(process.wait(), (TASKS_FAILED, INTERRUPTED), process.out + process.err)
        self.assertEqual(self.counts("work")["hard_failed"], 1)
        self.wflow("resume", self.campaign(), code=TASKS_FAILED)
        self.assertEqual(self.counts("work")["done"], 2)
        self.assertEqual([self.counts("after")[state] for state in ("done", "skipped")], [2, 1])


if __name__ == "__main__":
    unittest.main()
