# SPDX-License-Identifier: Apache-2.0
"""examples/active_learning as a user runs it: the model chooses samples until it has found the minimum. Then what a
propose: step makes of failed simulations, of values that carry no model, and of wrong blocks."""

import csv
import json
import unittest

from wflow_test import OK, SOURCE, SPEC, TASKS_FAILED, CampaignTest

LEAST = 0.397887  # of Branin's function

STUDY = """\
description: {name: choosing, description: the least value of a parabola}
env: {variables: {OUTPUT_PATH: .}}
samples: {design: sobol, count: 5, parameters: {x: [0, 4], y: [1, 100]}}
iterate: {max: 12, samples: $(PREVIOUS)/choose/new.csv}
study:
  - name: simulate
    run:
      cmd: |
        %s
  - name: choose
    propose: %s
"""
PARABOLA = "awk -v x=$(x) -v y=$(y) 'BEGIN { print (x - 3) ^ 2 + (log(y) - 2) ^ 2 }' > value.txt"


TRAINED = """
description: {name: trained, description: an ensemble chooses}
env: {variables: {OUTPUT_PATH: .}}
samples: {design: sobol, count: 24, parameters: {x: [0, 1], y: [0, 1]}}
iterate: {max: 2, samples: $(PREVIOUS)/choose/new.csv}
study:
  - {name: simulate, run: {cmd: "awk -v x=$(x) -v y=$(y) 'BEGIN { print x * y }' > value.txt"}}
  - {name: data, convert: {from: simulate, inputs: [x, y], targets: {z: {file: value.txt, regex: '(.+)'}}}}
  - {name: fit, train: {data: data, epochs: 5, batch: 8, members: 2, model: {name: mlp, dense: [8]}}}
  - name: choose
    propose: {from: simulate, file: value.txt, rule: variance, count: 12, models: [$(fit.workspace)/member-1, $(fit.workspace)/member-2]}
    depends: [fit]
"""


class ActiveLearning(CampaignTest):
    def test_finds_the_minimum(self):
        study = SOURCE / "examples" / "active_learning" / "active_learning.yaml"
        self.wflow("run", study, "-j", "2", "--vars", f"OUTPUT_PATH={self.folder}", code=OK)
        status = self.status()
        self.assertRegex(status["iterations"], r"^converged in iteration \d+$")
        last = self.folder / status["followups"][-1]["directory"] / "choose"
        record = json.loads((last / "proposal.json").read_text())
        self.assertEqual(record["known"], 10 + 4 * len(status["followups"]))
        self.assertLess(record["best"]["value"], LEAST + 0.01, record)
        self.assertTrue(record["converged"])
        with (last / "values.csv").open() as table:
            values = [float(row["value"]) for row in csv.DictReader(table)]
        self.assertEqual(len(values), record["known"])
        self.assertEqual(min(values), record["best"]["value"])

    def choosing(self, command=PARABOLA, block="{from: simulate, file: value.txt, count: 3, until: 0.01}", code=OK):
        study = self.folder / "study.yaml"
        study.write_text(STUDY % (command, block))
        return self.wflow("run", study, "-j", "2", code=code)

    def record(self, step="choose"):
        status = self.status()
        directory = status["followups"][-1]["directory"]
        return json.loads((self.folder / directory / step / "proposal.json").read_text())

    def test_failed_simulations_are_counted_and_not_chosen_again(self):
        # Every point with x above 3.5 fails, and leaves a value that must not count.
        failing = PARABOLA + "\n        awk -v x=$(x) 'BEGIN { exit x > 3.5 }'"
        study = self.folder / "study.yaml"
        study.write_text(STUDY % (failing, "{from: simulate, file: value.txt, count: 3, until: 0.01}"))
        self.wflow("run", study, "-j", "2", "--keep-going", code=TASKS_FAILED)
        record = self.record()
        self.assertGreater(record["without_value"], 0)
        self.assertLess(record["best"]["value"], 0.05)
        rows = (self.folder / self.status()["followups"][-1]["directory"] / "choose" / "values.csv").read_text().split()
        self.assertEqual(len(rows), len(set(rows)))

    def test_trained_models_choose(self):
        study = self.folder / "study.yaml"
        study.write_text(TRAINED)
        self.wflow("run", study, "-j", "2", code=OK)
        record = self.record()
        self.assertEqual(record["known"], 24 + 12)
        self.assertEqual(record["model"]["kind"], "trained")
        self.assertEqual([model[-8:] for model in record["model"]["models"]], ["member-1", "member-2"])
        self.assertGreater(record["promised"], 0)

    def test_equal_values_end_with_a_sentence(self):
        self.choosing(command="true $(x); echo 7 > value.txt", code=TASKS_FAILED)
        error = (self.campaign() / "choose" / "choose.err").read_text()
        self.assertIn("all 5 known values are 7", error)

    def test_missing_values_end_with_a_sentence(self):
        self.choosing(block="{from: simulate, file: result.txt}", code=TASKS_FAILED)
        error = (self.campaign() / "choose" / "choose.err").read_text()
        self.assertIn("0 of 5 known samples have a value", error)
        self.assertIn("there is no file", error)

    def test_maximin_needs_no_values(self):
        study = self.folder / "study.yaml"
        study.write_text(STUDY.replace("max: 12", "max: 2") % ("true $(x)", "{from: simulate, rule: maximin}"))
        self.wflow("run", study, "-j", "2", code=OK)
        self.assertEqual(self.record()["known"], 5 + 4)

    def test_wrong_blocks_are_refused(self):
        for block, expected in (
            ("{file: value.txt}", "needs the key 'from'"),
            ("{from: simulator}", "'simulator', which is not in the study"),
            ("{from: simulate, bounds: {x: [0, 1]}}", "the columns of samples: in their order: x, y"),
            ("{from: simulate, known: a.csv}", "belongs to wflow propose alone"),
            ("{from: simulate, rule: best}", "expected_improvement"),
            ("{from: simulate, unitl: 3}", "until"),
        ):
            with self.subTest(block):
                self.assertIn(expected, self.choosing(block=block, code=SPEC).err)


if __name__ == "__main__":
    unittest.main()
