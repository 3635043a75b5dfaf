# SPDX-License-Identifier: Apache-2.0
"""Successive halving: which trainings go on, how that is shown, and SIGKILL of everything in the middle of a rung."""

import json
import unittest

import torch

from wflow_test import DATA, OK, SPEC, TASKS_FAILED, CampaignTest, read_text

RATES = [0.0001, 0.03, 0.003, 0.0003, 0.01, 0.001]
RUNGS = [2, 20, 40]  # of six trainings 6, 3 and 1
NAMES = [f"RATE.{rate}" for rate in RATES]

STUDY = """
description: {{name: search, description: learning rates}}
env: {{variables: {{OUTPUT_PATH: .}}}}
parameters: {{RATE: {{values: {rates}, label: RATE.%%}}}}
samples: {{design: sobol, count: 200, parameters: {{a: [-1, 1], b: [-1, 1]}}}}
study:
  - name: simulate
    bundle: 50
    run: {{cmd: "awk -F, 'NR == 1 {{print \\"y\\"; next}} {{print $1 * $2 + $1}}' OFMT=%.9g $(WFLOW_SAMPLES_FILE) > y.csv"}}
  - {{name: data, convert: {{from: simulate, inputs: [a, b], targets: {{y: {{file: y.csv, column: y}}}}, shard_samples: 100}}}}
  - name: train
    train:
      data: data
      batch: 8
      model: {{name: mlp, dense: [32, 32]}}
      optimizer: {{learning_rate: $(RATE)}}
      checkpoint: {{every_steps: 5}}
      search: {{metric: {metric}, keep: 1/2, rungs: {rungs}}}
"""


def study(rates=RATES, metric="validation_loss"):
    return STUDY.format(rates=rates, rungs=RUNGS, metric=metric)


class Search(CampaignTest):
    def metrics(self, directory, name):
        return [json.loads(line) for line in read_text(directory / "train" / name / "metrics.jsonl").splitlines()]

    def epochs(self, directory):
        return {name: [row["epoch"] for row in self.metrics(directory, name)] for name in NAMES}

    def expected(self, directory):
        """Who trains in each rung, worked out anew from the losses."""
        rungs = [NAMES]
        for epochs, count in zip(RUNGS, (3, 1)):
            losses = {name: self.metrics(directory, name)[epochs - 1]["validation_loss"] for name in rungs[-1]}
            rungs.append(sorted(rungs[-1], key=lambda name: (losses[name], NAMES.index(name)))[:count])
        return rungs

    def check(self, directory):
        rungs = self.expected(directory)
        # Each has trained the epochs that it needed, and none of them twice in the end.
        for name, epochs in self.epochs(directory).items():
            last = max(i for i, names in enumerate(rungs) if name in names)
            self.assertEqual(epochs, list(range(1, RUNGS[last] + 1)), name)
        (best,) = rungs[2]
        search = json.loads((directory / "train" / "search.json").read_text())
        self.assertEqual((search["best"], search["model"]), (best, f"{best}/model.pt"))
        self.assertEqual([t["training"] for t in search["trainings"]][:1], [best])
        self.assertEqual(sorted(t["rung"] for t in search["trainings"]), [1, 1, 1, 2, 2, 3])
        self.assertEqual([name for name in NAMES if (directory / "train" / name / "model.pt").exists()], [best])
        return best

    def test_the_best_go_on(self):
        run = self.wflow("run", self.study(study()), "-j", "2")
        directory = self.campaign()
        best = self.check(directory)
        status = self.status()
        self.assertEqual((status["state"], status["failures"]), ("finished", []))
        rows = status["trainings"]
        self.assertEqual([row["search"]["rung"] for row in rows], [3, 2, 2, 1, 1, 1])
        self.assertEqual([row["search"]["stopped_at_place"] for row in rows], [None, 2, 3, 4, 5, 6])
        self.assertEqual([row["epoch"] for row in rows], [40, 20, 20, 2, 2, 2])
        self.assertEqual(rows[0]["task"], f"train/{best}")
        out = self.wflow("status", directory).out
        self.assertIn("6 trainings by validation_loss:", out)
        self.assertRegex(out, r"(?m)^5 .* stopped at rung 1 of 3, place 5 of 6 ")
        model = f"the best of train is {best}: {directory}/train/{best}/model.pt"
        self.assertIn(model, out)
        self.assertIn(model, run.out + run.err)
        self.assertEqual(len([text for text in self.history("note") if text.startswith("stopped by the search: place 3 of 3 at 20")]), 1)
        curves = json.loads(self.wflow("curves", directory, "--json").out)
        self.assertEqual([len(curve["value"]) for curve in curves], [40, 20, 20, 2, 2, 2])

    def test_killed_in_the_middle_of_a_rung(self):
        run = self.start("run", self.study(study()), "-j", "2")
        directory = self.wait_for_campaign(run)
        self.wait(lambda: any(len(epochs) > RUNGS[0] + 1 for epochs in self.epochs(directory).values()), "the second rung", run)
        self.kill_everything()
        self.assertFalse((directory / "train" / "search.json").exists(), "the search was over before the test could disturb it")
        self.assertLess(max(len(epochs) for epochs in self.epochs(directory).values()), RUNGS[2])
        self.wflow("resume", directory, "-j", "2")
        best = self.check(directory)
        self.assert_nothing_half_written()
        undisturbed = self.folder / "undisturbed"
        undisturbed.mkdir()
        self.wflow("run", self.study(study(), "again.yaml"), "-j", "2", "--vars", f"OUTPUT_PATH={undisturbed}")
        (reference,) = undisturbed.glob("search_*")
        self.assertEqual(self.check(reference), best)
        for name in NAMES:
            ours, theirs = self.metrics(directory, name), self.metrics(reference, name)
            self.assertEqual([row["validation_loss"] for row in ours], [row["validation_loss"] for row in theirs])
        ours, theirs = (torch.jit.load(str(d / "train" / best / "model.pt")).state_dict() for d in (directory, reference))
        self.assertEqual(ours.keys(), theirs.keys())
        for key in ours:
            self.assertTrue(torch.equal(ours[key], theirs[key]), key)

    def test_one_whose_loss_is_not_finite_is_out_of_it(self):
        rates = [0.001, 900, 0.003, 0.01]  # of sgd
        text = study(rates).replace("{learning_rate", "{name: sgd, learning_rate")
        self.wflow("run", self.study(text), "-j", "2")
        status = self.status()
        self.assertEqual((status["state"], status["failures"]), ("finished", []))
        self.assertEqual(len([text for text in self.history("note") if text.startswith("out of the search: the ")]), 1)
        search = json.loads((self.campaign() / "train" / "search.json").read_text())
        self.assertEqual((search["trainings"][-1]["training"], search["trainings"][-1]["value"]), ("RATE.900", None))

    def test_without_the_metric(self):
        self.wflow("run", self.study(study(metric="validation_mae_ratio/z")), "-j", "2", code=TASKS_FAILED)
        err = "".join(path.read_text() for path in self.campaign().glob("train.rung_2/*/train.err"))
        self.assertIn("has come to 2 epochs with a validation_mae_ratio/z", err)

    def test_alone_it_is_refused(self):
        config = self.study("{data: shards, search: {rungs: [1, 2]}}", "train.yaml")
        done = self.wflow(config, program="wflow-train", code=SPEC)
        self.assertIn("'search' compares the trainings of a campaign's step", done.err)


if __name__ == "__main__":
    unittest.main()
