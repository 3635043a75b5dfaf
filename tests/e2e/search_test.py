# SPDX-License-Identifier: Apache-2.0
"""Successive halving: which trainings go on, how that is shown, SIGKILL of everything in the middle of a rung, and what runs again."""

import json
import unittest

from wflow_test import DATA, OK, SPEC, TASKS_FAILED, CampaignTest, read_text

RATES = [0.0001, 0.01, 0.0005, 0.003]
RUNGS = [2, 20, 40]  # of four trainings 4, 2 and 1
NAMES = [f"RATE.{rate}" for rate in RATES]

STUDY = """
description: {{name: search, description: learning rates}}
env: {{variables: {{OUTPUT_PATH: .}}}}
parameters: {{RATE: {{values: {rates}, label: RATE.%%}}}}
samples: {{design: sobol, count: 100, parameters: {{a: [-1, 1], b: [-1, 1]}}}}
study:
  - name: simulate
    run:
      cmd: echo $(a) $(b) | awk '{{print "y =", $1 * $2 + $1}}' > y.txt
  - {{name: data, convert: {{from: simulate, inputs: [a, b], targets: {{y: {{file: y.txt, regex: 'y = (.+)'}}}}, shard_samples: 50}}}}
  - name: train
    train:
      data: data
      batch: 8
      model: {{name: mlp, dense: [32, 32]}}
      optimizer: {{learning_rate: $(RATE)}}
      checkpoint: {{every_steps: 5}}
      search: {{metric: {metric}, keep: 1/2, rungs: {rungs}}}
"""
FOLDERS = ["train.rung_1", "train.rung_2", "train"]


def study(rates=RATES, metric="validation_loss", rungs=RUNGS):
    return STUDY.format(rates=rates, rungs=rungs, metric=metric)


class Search(CampaignTest):
    def metrics(self, directory, name):
        """The result of the last rung in which it has trained."""
        files = [directory / folder / name / "metrics.jsonl" for folder in FOLDERS]
        files = [path for path in files if path.exists()]
        return [json.loads(line) for line in read_text(files[-1]).splitlines()] if files else []

    def losses(self, directory, name):
        return [row["validation_loss"] for row in self.metrics(directory, name)]

    def expected(self, directory, rungs):
        """Who trains in each rung, worked out anew from the losses."""
        names = [NAMES]
        for epochs, count in zip(rungs, (2, 1)):
            losses = {name: self.losses(directory, name)[epochs - 1] for name in names[-1]}
            names.append(sorted(names[-1], key=lambda name: (losses[name], NAMES.index(name)))[:count])
        return names

    def check(self, directory, rungs=RUNGS):
        names = self.expected(directory, rungs)
        for name in NAMES:
            last = max(i for i, of_rung in enumerate(names) if name in of_rung)
            self.assertEqual([row["epoch"] for row in self.metrics(directory, name)], list(range(1, rungs[last] + 1)), name)
        (best,) = names[2]
        search = json.loads((directory / "train" / "search.json").read_text())
        self.assertEqual((search["best"], search["model"]), (best, f"{best}/model.pt"))
        self.assertEqual(search["trainings"][0]["training"], best)
        self.assertEqual(sorted(t["rung"] for t in search["trainings"]), [1, 1, 2, 3])
        self.assertEqual([name for name in NAMES if (directory / "train" / name / "model.pt").exists()], [best])
        return best

    def fresh(self, text, name):
        """The campaign of a study that nothing disturbs."""
        folder = self.folder / name
        folder.mkdir()
        self.wflow("run", self.study(text, name + ".yaml"), "-j", "2", "--vars", f"OUTPUT_PATH={folder}")
        (directory,) = folder.glob("search_*")
        return directory

    def assert_same_bits(self, directory, reference, rungs=RUNGS):
        best = self.check(directory, rungs)
        self.assertEqual(best, self.check(reference, rungs))
        for name in NAMES:
            self.assertEqual(self.losses(directory, name), self.losses(reference, name), name)
        self.assert_same_weights(*(d / "train" / best / "model.pt" for d in (directory, reference)))

    def test_the_best_go_on(self):
        run = self.wflow("run", self.study(study()), "-j", "2")
        directory = self.campaign()
        best = self.check(directory)
        status = self.status()
        self.assertEqual((status["state"], status["failures"]), ("finished", []))
        rows = status["trainings"]
        self.assertEqual([row["search"]["rung"] for row in rows], [3, 2, 1, 1])
        self.assertEqual([row["search"]["stopped_at_place"] for row in rows], [None, 2, 3, 4])
        self.assertEqual([row["epoch"] for row in rows], [40, 20, 2, 2])
        self.assertEqual(rows[0]["task"], f"train/{best}")
        out = self.wflow("status", directory).out
        self.assertIn("4 trainings by validation_loss:", out)
        self.assertRegex(out, r"(?m)^4 .* stopped at rung 1 of 3, place 4 of 4 ")
        model = f"the best of train is {best}: {directory}/train/{best}/model.pt"
        self.assertIn(model, out)
        self.assertIn(model, run.out + run.err)
        self.assertEqual(len([text for text in self.history("note") if "stopped by the search: place 2 of 2 at 20" in text]), 1)
        curves = json.loads(self.wflow("curves", directory, "--json").out)
        self.assertEqual([len(curve["value"]) for curve in curves], [40, 20, 2, 2])
        self.wflow("report", directory)

    def test_killed_in_the_middle_of_a_rung(self):
        run = self.start("run", self.study(study()), "-j", "2")
        directory = self.wait_for_campaign(run)
        self.wait(lambda: any(len(self.metrics(directory, name)) > RUNGS[0] + 1 for name in NAMES), "the second rung", run)
        self.kill_everything()
        self.assertFalse((directory / "train" / "search.json").exists(), "the search was over before the test could disturb it")
        self.wflow("resume", directory, "-j", "2")
        self.assert_nothing_half_written()
        self.assert_same_bits(directory, self.fresh(study(), "undisturbed"))

    def test_other_rungs(self):
        """Results that the change does not touch stay, and the search comes to the end that a new one comes to."""
        self.wflow("run", self.study(study()), "-j", "2")
        directory = self.campaign()
        first_rung = {path: path.stat().st_mtime_ns for path in (directory / "train.rung_1").glob("*/metrics.jsonl")}
        self.assertEqual(len(first_rung), 4)
        rungs = [2, 5, 40]
        self.study(study(rungs=rungs))
        diff = self.wflow("diff", directory).out
        self.assertRegex(diff, r"(?m)^train.rung_2: train changed, 4 of 4 stale$")
        self.assertNotRegex(diff, r"(?m)^train.rung_1")
        self.assertIn("8 tasks to run", diff)
        self.wflow("resume", directory, "--update", "--yes", "-j", "2")
        self.assertEqual({path: path.stat().st_mtime_ns for path in first_rung}, first_rung)
        self.assert_same_bits(directory, self.fresh(study(rungs=rungs), "anew"), rungs)
        rows = self.status()["trainings"]
        self.assertEqual([row["search"]["rung"] for row in rows], [3, 2, 1, 1])
        self.assertEqual([row["epoch"] for row in rows], [40, 5, 2, 2])
        # A rung alone begins with the checkpoints of the one before.
        self.wflow("redo", directory, "train", "--yes", "-j", "2")
        self.check(directory, rungs)
        self.assertEqual({path: path.stat().st_mtime_ns for path in first_rung}, first_rung)

    def test_one_whose_loss_is_not_finite_is_out_of_it(self):
        rates = [0.001, 900, 0.003, 0.01]  # of sgd
        text = study(rates).replace("{learning_rate", "{name: sgd, learning_rate")
        self.wflow("run", self.study(text), "-j", "2")
        status = self.status()
        self.assertEqual((status["state"], status["failures"]), ("finished", []))
        self.assertEqual(len([text for text in self.history("note") if ": out of the search: the " in text]), 1)
        search = json.loads((self.campaign() / "train" / "search.json").read_text())
        self.assertEqual((search["trainings"][-1]["training"], search["trainings"][-1]["value"]), ("RATE.900", None))

    def test_one_that_fails_is_the_last(self):
        """The others go on without it, and the campaign says that it has failed. Of two that are equal the first one goes on."""
        text = study([0.003, 0.01, "1e-2", 0.001], rungs=[1, 3]).replace("batch: 8", "batch: 8\n      init_from: $(FROM)")
        text = text.replace("label: RATE.%%}", "label: RATE.%%}, FROM: {values: [none, none, none, missing], label: FROM.%%}")
        self.wflow("run", self.study(text), "-j", "2", code=TASKS_FAILED)
        directory = self.campaign()
        self.assertEqual([failure["task"] for failure in self.status()["failures"]], ["train.rung_1/FROM.missing.RATE.0.001"])
        trainings = json.loads((directory / "train" / "search.json").read_text())["trainings"]
        self.assertEqual((trainings[-1]["training"], trainings[-1]["value"]), ("FROM.missing.RATE.0.001", None))
        order = [t["training"] for t in trainings]
        self.assertLess(order.index("FROM.none.RATE.0.01"), order.index("FROM.none.RATE.1e-2"), trainings)
    def test_without_the_metric(self):
        self.wflow("run", self.study(study(metric="validation_mae_ratio/z")), "-j", "2", code=TASKS_FAILED)
        self.assertEqual(self.counts("train.rung_2")["skipped"], 0)
        err = "".join(path.read_text() for path in self.campaign().glob("train.rung_1/*/*.err"))
        self.assertIn("the search ranks by 'validation_mae_ratio/z', and the targets are y", err)

    def test_alone_it_is_refused(self):
        config = self.study("{data: shards, search: {rungs: [1, 2]}}", "train.yaml")
        done = self.wflow(config, program="wflow-train", code=SPEC)
        self.assertIn("'search' compares the trainings of a campaign's step", done.err)


if __name__ == "__main__":
    unittest.main()
