# SPDX-License-Identifier: Apache-2.0
"""A training that begins while its samples are simulated: stages, the same bits whatever the order of events, SIGKILL, a goal that ends
the simulations."""

import json
import sqlite3
import unittest
from contextlib import closing

from wflow_test import OK, SPEC, CampaignTest, read_text

SAMPLES, BLOCK = 240, 40
STUDY = """
description: {{name: follow, description: a training in stages}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: sobol, count: 240, parameters: {{a: [-1, 1], b: [-1, 1]}}}}
study:
  - name: simulate
    run:
      cmd: |
        {wait}
        echo $(a) $(b) | awk '{{print "y =", $1 * $2 + $1}}' > y.txt
  - {{name: data, convert: {{from: simulate, inputs: [a, b], targets: {{y: {{file: y.txt, regex: 'y = (.+)'}}}}, shard_samples: 40}}}}
  - name: fit
    train:
      data: data
      batch: 8
      ranks: 2
      epochs: 3
      model: {{name: mlp, dense: [16]}}
      checkpoint: {{every_steps: 3}}
      follow: {{stages: 2, epochs: 2}}
      {until}
  - {{name: use, run: {{cmd: "ls $(fit.workspace)/model.pt", depends: [fit]}}}}
"""
# Later samples wait for the first stage and take long then, so that most have not begun when the coordinator knows of the goal.
WAIT = """[ $(MERLIN_SAMPLE_ID) -lt 80 ] || { until [ -e $(fit.follow_1.workspace)/goal.json ]; do sleep 0.1; done; sleep 0.5; }"""


GROUPS = "workers: {one: {steps: [simulate], slots: 1}, others: {steps: [data, fit, use], slots: 2}}\n"


def samples_of(folder):
    splits = json.loads((folder / "manifest.json").read_text())["splits"]
    return sum(split["samples"] for split in splits.values())


class Follow(CampaignTest):
    def text(self, wait="true", until=""):
        return STUDY.format(wait=wait, until=until)

    def run_study(self, name, text, jobs="2", code=OK):
        folder = self.folder / name
        folder.mkdir()
        self.out = self.wflow("run", self.study(text, name + ".yaml"), "-j", jobs, "--vars", f"OUTPUT_PATH={folder}", code=code).out
        (directory,) = folder.glob("follow_*")
        return directory

    def test_stages_have_the_first_blocks_and_the_same_bits(self):
        directory = self.run_study("two", self.text())
        self.assertEqual([samples_of(directory / f"fit.follow_{k}/shards") for k in (1, 2)], [80, 160])
        self.assertEqual(samples_of(directory / "data"), SAMPLES)
        epochs = [len(read_text(directory / f"{name}/metrics.jsonl").splitlines()) for name in ("fit.follow_1", "fit.follow_2", "fit")]
        self.assertEqual(epochs, [2, 2, 3])
        self.assertIn("begins with the weights of", read_text(directory / "fit/train.out"))
        self.assertIn("begins with the weights of", read_text(directory / "fit.follow_2/train.out"))
        other = self.run_study("four", self.text(), "4")
        self.assert_same_weights(directory / "fit/model.pt", other / "fit/model.pt")

    def test_killed_in_a_stage(self):
        run = self.start("run", self.study(self.text(), "killed.yaml"), "-j", "2")
        directory = self.wait_for_campaign(run)
        self.wait(lambda: list((directory / "fit.follow_1/checkpoints").glob("step-*")), "the first stage", run)
        self.kill_everything()
        self.assertFalse((directory / "fit/result.json").exists(), "the training was over before the test could disturb it")
        self.wflow("resume", directory, "-j", "2")
        self.assert_nothing_half_written()
        self.assert_same_weights(directory / "fit/model.pt", self.run_study("left_alone", self.text()) / "fit/model.pt")

    def test_a_goal_ends_the_simulations(self):
        # One simulation waits at a time, on a worker of its own.
        text = self.text(WAIT, "until: validation_error < 1000") + GROUPS
        directory = self.run_study("goal", text)
        goal = json.loads((directory / "fit.follow_1/goal.json").read_text())
        self.assertEqual((goal["goal"], goal["stage"], goal["epoch"]), ("validation_mae_ratio < 1000", 1, 1))
        self.assertIn("has met the goal", read_text(directory / "fit.follow_2/train.out"))
        self.assertFalse((directory / "fit.follow_2/checkpoints").exists())
        status = json.loads(self.wflow("status", directory, "--json").out)
        self.assertEqual(status["state"], "finished")
        notes = "\n".join(row["text"] for row in status["history"] if row["kind"] == "note")
        self.assertRegex(notes, r"fit.follow_1: the goal is met in stage 1, after epoch 1: .* samples that had not begun are skipped")
        manifest = json.loads((directory / "data/manifest.json").read_text())
        made = samples_of(directory / "data")
        self.assertEqual(made + len(manifest["missing"]), SAMPLES)
        # Counted in the status, without an event and a row for each.
        data = next(step for step in status["steps"] if step["name"] == "data")
        self.assertEqual([(r["reason"], r["samples"]) for r in data["missing"]["reasons"]], [("its task of simulate was skipped", SAMPLES - made)])
        with closing(sqlite3.connect(f"file:{directory}/.wflow/campaign.db?mode=ro", uri=True)) as database:
            self.assertEqual(database.execute("SELECT count(*) FROM missing").fetchone()[0], 0)
        self.assertIn(f"{made} of {SAMPLES} samples are usable in the data set of data: {SAMPLES - made} were skipped", self.wflow("status", directory).out)
        self.assertGreaterEqual(made, 80)
        self.assertLess(made, SAMPLES - BLOCK)
        self.assertIn("begins with the weights of", read_text(directory / "fit/train.out"))
        self.assertTrue((directory / "fit/model.pt").exists())
        self.wflow("resume", directory, "-j", "2")  # nothing is left to do
        self.assertEqual(samples_of(directory / "data"), made)

    def test_wrong_studies(self):
        def refusal(old, new):
            text = self.text()
            self.assertIn(old, text)
            return self.wflow("validate", self.study(text.replace(old, new), "wrong.yaml"), code=SPEC).err

        follow = "follow: {stages: 2, epochs: 2}"
        self.assertIn("'until' needs 'follow: true'", refusal(follow, "until: validation_error < 0.1"))
        self.assertIn("'until' must compare a metric in validation with a number", refusal(follow, "follow: true, until: soon".replace(", ", "\n      ")))
        self.assertIn("'follow' and 'members' do not go together", refusal(follow, follow + "\n      members: 2"))
        self.assertIn("'stage' of follow: is set by the campaign itself", refusal(follow, "follow: {stages: 2, stage: 1}"))
        self.assertIn("needs a data set that a convert: step of this study writes", refusal("data: data", "data: ./elsewhere"))
        self.assertIn("the step name 'fit.follow_2' is taken", refusal("{name: use", "{name: fit.follow_2"))


if __name__ == "__main__":
    unittest.main()
