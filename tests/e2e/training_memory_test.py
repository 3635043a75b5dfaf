# SPDX-License-Identifier: Apache-2.0
"""wflow plan and wflow validate show what the trainings of a study need in memory, as soon as their data sets are there."""

import json
import unittest

from wflow_test import SPEC, CampaignTest

STUDY = """
description: {name: boxes, description: a training that shares its samples}
env: {variables: {OUTPUT_PATH: ., MEMORY: 4GiB}}
samples: {design: sobol, count: 12, parameters: {a: [-1, 1]}}
study:
  - name: simulate
    run:
      cmd: |
        /usr/bin/python3 -c 'import numpy; numpy.save("x.npy", numpy.full((8, 8, 8), $(a), "f4"))'
        echo "y = $(a)" > y.txt
  - name: data
    convert:
      from: simulate
      inputs: {x: {file: x.npy, layout: DHW}}
      targets: {y: {file: y.txt, regex: 'y = (.+)'}}
  - name: train
    train: {data: data, ranks: 2, batch: 2, grid: auto, memory: $(MEMORY), model: {name: cnn, width: 4}}
  - name: plain
    train: {data: data, batch: 2, model: {name: mlp, dense: [4]}}
"""
TABLE = r"(?m)^memory a rank   grid +at once +activations .*\n +whole samples +1 "
MISSING = "there is no data set of the step 'data' yet: after wflow run --until data, wflow plan shows what the training needs\n"
REFUSED = r"train: the training needs more memory than 'memory' \(20.0 MiB\) allows: with .* a rank: .*; start more ranks"


class TrainingMemory(CampaignTest):
    def test_before_and_after_the_data(self):
        study = self.study(STUDY)
        for command in ("plan", "validate"):
            out = self.wflow(command, study).out
            self.assertIn("train: " + MISSING, out)
            self.assertEqual("plain: " + MISSING in out, command == "plan")
            self.assertNotIn("memory a rank", out)
            self.assertEqual(json.loads(self.wflow(command, study, "--json").out)["trainings"][0], {"training": "train", "missing": "train: " + MISSING.strip()})
        self.wflow("run", study, "--until", "data", "-j", "2")
        data = self.campaign().name + "/data"
        plan = self.wflow("plan", study).out
        self.assertRegex(plan, TABLE)
        self.assertEqual(plan.count("memory a rank"), 2)
        self.assertRegex(plan, rf"(?m)^train on 2 ranks, with the data set .*{data}\n")
        valid = self.wflow("validate", study).out
        self.assertRegex(valid, TABLE)
        self.assertEqual(valid.count("memory a rank"), 1, "a training that leaves nothing open is left out")
        trainings = json.loads(self.wflow("plan", study, "--json").out)["trainings"]
        self.assertEqual([entry["training"] for entry in trainings], ["train", "plain"])
        self.assertTrue(trainings[0]["earlier_data"])
        self.assertTrue(trainings[0]["data"].endswith(data))
        self.assertEqual([grid["grid"] for grid in trainings[0]["grids"]][:2], [[1, 1, 1], [1, 1, 2]])
        self.assertEqual((trainings[0]["ranks"], trainings[0]["refusal"], trainings[0]["chosen"]), (2, None, None))
        self.assertGreater(trainings[1]["grids"][0]["memory_bytes"]["all"], 2 ** 20)
        valid = json.loads(self.wflow("validate", study, "--json").out)["trainings"]
        self.assertEqual([entry["training"] for entry in valid], ["train"])

        # The data of the last campaign may not be those of the next one.
        little = ("--vars", "MEMORY=20MiB")
        done = self.wflow("validate", study, *little)
        self.assertRegex(done.err, rf"warning: {REFUSED}.* \(by the data set of the last campaign, .*{data}\)")
        self.assertRegex(self.wflow("plan", study, *little).out, rf"(?m)^refused: {REFUSED}")
        # A data set that is there.
        (own,) = self.folder.glob("boxes_*/data")
        fixed = STUDY.replace("train: {data: data", f"train: {{data: {own}")
        self.assertRegex(self.wflow("validate", self.study(fixed), *little, code=SPEC).err, REFUSED)

    def test_seconds_of_the_last_campaign(self):
        study = self.study(STUDY)
        self.wflow("run", study, "-j", "2")
        (entry,) = json.loads(self.wflow("validate", study, "--json").out)["trainings"]
        self.assertGreater(entry["grids"][entry["chosen"]]["seconds"]["step"], 0)
        out = self.wflow("plan", study).out
        self.assertRegex(out, r"(?m)^ .* s  chosen$")
        self.assertRegex(out, rf"(?m)^the seconds are those of the last plan \(.*{self.campaign().name}/train/plan.json\)$")


if __name__ == "__main__":
    unittest.main()
