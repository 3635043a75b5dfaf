# SPDX-License-Identifier: Apache-2.0
"""Wrong input: one clear sentence, the exit code of the table, and nothing half-written."""

import os
import unittest

from wflow_test import DATA, SPEC, SYSTEM, TASKS_FAILED, USAGE, CampaignTest

HEAD = """
description: {name: wrong, description: a study with a mistake}
env: {variables: {OUTPUT_PATH: .}}
"""
STEP = """
study:
  - name: work
    run: {cmd: echo hello}
"""


class WrongInput(CampaignTest):
    def assert_refused(self, study, code, *parts):
        """Refused by validate and by run, in the same one line, and no campaign directory made."""
        path = self.study(study) if isinstance(study, str) else study
        for command in ("validate", "run"):
            process = self.wflow(command, path, code=code)
            self.assert_one_sentence(process, *parts)
            self.assertEqual(process.out, "")
        self.assertEqual([p for p in self.folder.iterdir() if p.is_dir() and p.name.startswith("wrong")], [])
        self.assert_nothing_half_written()

    def test_missing_study(self):
        self.assert_refused(self.folder / "nowhere.yaml", DATA, "no such file", "nowhere.yaml")

    def test_no_yaml(self):
        self.assert_refused("study: [", SPEC, "study.yaml:")

    def test_unknown_key(self):
        self.assert_refused(HEAD + STEP.replace("run: {cmd: echo hello}", "run: {cmd: echo hello}\n    dependz: [a]"), SPEC,
                            "study.yaml:8:5", "dependz", "depends")

    def test_cycle(self):
        study = HEAD + """
study:
  - {name: a, run: {cmd: "true", depends: [b]}}
  - {name: b, run: {cmd: "true", depends: [a]}}
"""
        self.assert_refused(study, SPEC, "study.yaml:", "wait for each other", "a -> b -> a")

    def test_undefined_variable(self):
        self.assert_refused(HEAD + STEP.replace("hello", "$(NOBODY)"), SPEC, "study.yaml:7", "NOBODY")

    def test_bad_type(self):
        self.assert_refused(HEAD + STEP + "    max_retries: many\n", SPEC, "study.yaml:8", "max_retries", "many")

    def test_empty_study(self):
        self.assert_refused(HEAD + "study: []\n", SPEC, "study")
        self.assert_refused("", SPEC, "study.yaml")

    def test_ragged_samples(self):
        (self.folder / "ragged.csv").write_text("1,2\n3,4\n5\n7,8\n")
        study = HEAD + "samples: {file: ragged.csv, column_labels: [A, B]}\n" + STEP.replace("hello", "$(A) $(B)")
        self.assert_refused(study, SPEC, "ragged.csv:3", "1 value")

    def test_missing_samples(self):
        study = HEAD + "samples: {file: nowhere.csv, column_labels: [A, B]}\n" + STEP.replace("hello", "$(A) $(B)")
        path = self.study(study)
        process = self.start("run", path)
        self.assertIn(process.wait(), (SPEC, DATA, SYSTEM))
        self.assert_one_sentence(process, "nowhere.csv")

    def test_command_line(self):
        self.assert_one_sentence(self.wflow("run", code=USAGE), "study")
        self.assert_one_sentence(self.wflow("fly", code=USAGE), "no command 'fly'")
        self.assert_one_sentence(self.wflow("stats", code=USAGE), "status")
        self.assert_one_sentence(self.wflow("resume", self.folder, code=USAGE), str(self.folder))
        self.assert_one_sentence(self.wflow("status", "nothing_here", code=USAGE), "nothing_here")

    @unittest.skipIf(os.geteuid() == 0 and not os.path.exists("/usr/bin/setpriv"), "root may write everywhere, and setpriv is missing")
    def test_read_only_directory(self):
        closed = self.folder / "closed"
        closed.mkdir()
        study = self.study(HEAD.replace("OUTPUT_PATH: .", f"OUTPUT_PATH: {closed}") + STEP)
        closed.chmod(0o555)
        if os.geteuid() == 0:
            # Without the right to override permissions, root is like anyone.
            process = self.start("--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search", "--",
                                 self.program(), "run", study, program="/usr/bin/setpriv")
        else:
            process = self.start("run", study)
        self.assertEqual(process.wait(), SYSTEM, process.out + process.err)
        self.assert_one_sentence(process, str(closed), "Permission denied")
        closed.chmod(0o755)
        self.assertEqual(list(closed.iterdir()), [])

    @staticmethod
    def program():
        from wflow_test import BIN
        return BIN / "wflow"

    def test_output_of_the_wrong_shape_for_the_network(self):
        # All simulations agree on a shape that no network of this kind can take: training says so, once.
        study = HEAD + """
samples: {design: uniform, count: 8, seed: 1, parameters: {x: [0, 1]}}
study:
  - name: make
    run:
      cmd: |
        import numpy
        numpy.save("cube.npy", numpy.full((2, 5, 7), $(x), dtype=numpy.float32))
      shell: /usr/bin/python3
  - name: data
    convert: {from: make, file: cube.npy, targets: [x], shard_samples: 8, split: {train: 4, validation: 2, test: 2}}
  - name: train
    train: {data: data, model: cosmoflow, epochs: 1, batch: 2, schedule: {warmup_epochs: 0}}
"""
        run = self.wflow("run", self.study(study), code=TASKS_FAILED)
        self.assertRegex(run.out, r"train after \d executions?: exit code 3")
        self.assertRegex(run.out, r"wflow-train: .*1 x 2 x 5 x 7")
        lines = (self.campaign() / "train" / "train.err").read_text().strip().split("\n")
        said = {line for line in lines if "warning:" not in line}  # a busy machine's BLAS may seem slow
        self.assertEqual(len(said), 1, said)


if __name__ == "__main__":
    unittest.main()
