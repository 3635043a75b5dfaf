# SPDX-License-Identifier: Apache-2.0
"""A tournament whose trainers are tasks: the result of one job, SIGKILL of everything between the rounds, a trainer that is lost."""

import json
import re
import unittest

from wflow_test import SPEC, CampaignTest, read_text

TRAINERS, EPOCHS = 3, 4
STUDY = """
description: {{name: {name}, description: three trainers}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: sobol, count: 240, parameters: {{a: [-1, 1], b: [-1, 1]}}}}
study:
  - name: simulate
    run:
      cmd: echo $(a) $(b) | awk '{{print "y =", $1 * $2 + $1}}' > y.txt
  - {{name: data, convert: {{from: simulate, inputs: [a, b], targets: {{y: {{file: y.txt, regex: 'y = (.+)'}}}}, shard_samples: 80}}}}
  - name: fit
    train:
      data: data
      batch: 8
      ranks: 3
      epochs: 4
      model: {{name: mlp, dense: [16]}}
      checkpoint: {{every_steps: 3}}
      tournament: {{trainers: 3, every: 1 epoch, exchange: all, as: {form}}}
  - {{name: use, run: {{cmd: "ls $(fit.workspace)/model.pt", depends: [fit]}}}}
"""


class TournamentTasks(CampaignTest):
    def run_study(self, form, *options, code=0):
        folder = self.folder / form
        folder.mkdir(exist_ok=True)
        run = self.wflow("run", self.study(STUDY.format(name=form, form=form), form + ".yaml"), "-j", "3", "--vars", f"OUTPUT_PATH={folder}",
                         *options, code=code)
        self.out = run.out
        (directory,) = folder.glob(form + "_*")
        return directory

    def result(self, directory):
        return json.loads((directory / "fit/result.json").read_text())

    def assert_same(self, directory, job):
        ours, theirs = self.result(directory)["tournament"], self.result(job)["tournament"]
        self.assertEqual(ours["bouts"], theirs["bouts"])
        self.assertEqual((ours["rounds"], ours["best"]), (theirs["rounds"], theirs["best"]))
        self.assert_same_weights(directory / "fit/model.pt", job / "fit/model.pt")

    def test_has_the_result_of_one_job(self):
        directory = self.run_study("tasks")
        names = {path.name for path in directory.glob("fit*")}
        self.assertEqual(names, {"fit", "fit.begin"} | {f"fit.trainer_{k}.part_{p}" for k in range(1, 4) for p in range(1, EPOCHS + 1)})
        epochs = re.findall(r"(fit\.trainer_\d)\S* epoch (\d)|\] epoch (\d)", self.out)
        self.assertEqual(len(epochs), len(set(epochs)), self.out)  # a part repeats no epoch of the parts before
        end = self.out[self.out.index("tasks  finished"):]
        self.assertEqual(re.findall(r"^ {4}(fit\S+)", end[:end.index("validation_loss")], re.MULTILINE), [f"fit.trainer_{k}" for k in range(1, 4)])
        job = self.run_study("job")
        self.assert_same(directory, job)
        ranking = self.result(directory)["tournament"]["ranking"]
        self.assertEqual(ranking[0]["folder"], f"../fit.trainer_{ranking[0]['trainer']}.part_{EPOCHS}")
        out = self.wflow("status", directory).out
        self.assertIn("tournament: the best of 3 models is that of trainer ", out)
        rows = json.loads(self.wflow("status", directory, "--json").out)["trainings"]
        self.assertEqual(sorted(row["task"] for row in rows), [f"fit.trainer_{k}.part_{EPOCHS}" for k in range(1, 4)])
        self.assertEqual([row["epoch"] for row in rows], [EPOCHS] * 3)
        report = re.search(r"\S+\.html", self.wflow("report", directory).out)[0]
        self.assertIn("fit: ancestors of the models", read_text(report))
        # A slow node, which this machine does not have.
        slow = "node n3 takes 1.4 times as long as the others"
        result = self.result(directory)
        result["ranks_this_segment"] = {"slow": slow}
        (directory / "fit/result.json").write_text(json.dumps(result))
        report = re.search(r"\S+\.html", self.wflow("report", directory).out)[0]
        self.assertIn(f"fit: {slow}.", read_text(report))

    def test_killed_between_the_rounds(self):
        run = self.start("run", self.study(STUDY.format(name="tasks", form="tasks"), "tasks.yaml"), "-j", "3")
        directory = self.wait_for_campaign(run)
        self.wait(lambda: (directory / "fit.trainer_2.part_2/checkpoints").exists(), "the second part", run)
        self.kill_everything()
        self.assertFalse((directory / "fit/result.json").exists(), "the tournament was over before the test could disturb it")
        self.wflow("resume", directory, "-j", "3")
        self.assert_nothing_half_written()
        self.assert_same(directory, self.run_study("job"))

    def test_wrong_studies(self):
        def refusal(**changes):
            text = STUDY.format(name="wrong", form="tasks")
            for old, new in changes.values():
                self.assertIn(old, text)
                text = text.replace(old, new)
            return self.wflow("validate", self.study(text, "wrong.yaml"), code=SPEC).err

        self.assertIn("'ranks' (4) must be a multiple of 'trainers' (3)", refusal(ranks=("ranks: 3", "ranks: 4")))
        self.assertIn("write 'rounds', or an 'every' in epochs", refusal(every=("every: 1 epoch", "every: 7")))
        self.assertIn("'part' of tournament: is set by the campaign itself", refusal(part=("as: tasks", "as: tasks, part: 2")))
        self.assertIn("'epochs' can't depend on parameters", refusal(
            epochs=("epochs: 4", "epochs: $(E)"), parameters=("study:\n", "parameters: {E: {values: [4, 5], label: E.%%}}\nstudy:\n")))


if __name__ == "__main__":
    unittest.main()
