#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole runs of wflow-train with a `tournament`: rounds, restarts, models that diverge. With Debian's python3 (numpy)."""

import glob
import json
import pathlib
import shutil
import subprocess
import tempfile

import numpy

import train_run_test as whole

SAMPLES = 200
LAYERS = [{"dense": 6, "name": "code", "part": "encoder"}, "tanh", {"dense": 1, "name": "out", "part": "head"}]


class NumberRun(whole.TrainRun):
    """A small network that learns one number from two."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="wflow-train-test-")
        cls.root = pathlib.Path(cls.directory.name)
        rng = numpy.random.default_rng(1)
        rows = ["id,a,b,y"]
        for i in range(SAMPLES + 40):
            a, b = rng.uniform(-1, 1, 2)
            rows.append(f"{i},{a},{b},{numpy.sin(3 * a) + b * b}")
        (cls.root / "table.csv").write_text("\n".join(rows) + "\n")
        (cls.root / "convert.yaml").write_text(
            f"samples: {cls.root}/table.csv\ninputs: [a, b]\ntargets: [y]\nshard_samples: 100\n"
            f"split: {{train: {SAMPLES}, validation: 20, test: 20, seed: 3}}\noutput: {cls.root}/shards\nname: numbers\n")
        subprocess.run([whole.PROGRAMS.convert, cls.root / "convert.yaml"], check=True, stdout=subprocess.DEVNULL)

    def config(self, name, **keys):
        return super().config(name, **{"transform": None, "augment": None, "model": {"layers": LAYERS},
                                       "batch": 8, "epochs": 4, **keys})


class Tournament(NumberRun):
    def trainer(self, name, number):
        return f"{name}/trainer-{number}"

    def rows(self, name):
        return [json.loads(line) for line in (self.root / name / "metrics.jsonl").read_text().splitlines()]

    def rounds(self, name):
        return [one for row in self.rows(name) for one in row.get("rounds", [])]

    def states(self, name, trainers):
        """The bits of all trainers' last checkpoints, their steps and what they decided."""
        found = []
        for number in range(1, trainers + 1):
            weights, header = self.weights(self.trainer(name, number))
            found.append((weights, header["step"], header["tournament"]))
        return found

    def test_one_trainer_is_a_plain_training(self):
        self.train(self.config("plain"))
        self.train(self.config("alone", tournament=1))
        self.assertEqual(self.weights("plain")[0], self.weights(self.trainer("alone", 1))[0])
        for file in ("predictions.csv", "model.onnx"):
            self.assertEqual((self.root / "plain" / file).read_bytes(), (self.root / "alone" / file).read_bytes())
        self.assertEqual(self.result("plain")["test"], self.result("alone")["test"])
        self.assertEqual(self.result("alone")["tournament"]["rounds"], 0)

    def test_three_trainers(self):
        events = self.root / "events.jsonl"
        done = self.train(self.config("three", ranks=3, tournament={"trainers": 3, "metrics": ["loss", "mae_ratio"], "exchange": "all",
                                                                    "perturb": {"optimizer.learning_rate": [0.5, 2]}}), 3,
                          env={"WFLOW_EVENTS": str(events)})
        result = self.result("three")
        tournament = result["tournament"]
        self.assertEqual((tournament["trainers"], tournament["rounds"], len(tournament["bouts"])), (3, 3, 9))
        samples = 0
        taken = 0
        for round_number in (1, 2, 3):
            bouts = {bout["trainer"]: bout for bout in tournament["bouts"] if bout["round"] == round_number}
            self.assertEqual(set(bouts), {1, 2, 3})
            self.assertEqual([bout["partner"] for bout in bouts.values()].count(None), 1)
            for bout in bouts.values():
                if bout["partner"] is None:
                    self.assertFalse(bout["took"])
                    continue
                self.assertEqual(bouts[bout["partner"]]["partner"], bout["trainer"])
                # The decision follows from the scores.
                self.assertEqual(bout["took"], all(score["partner"] < score["own"] for score in bout["scores"]))
                taken += bout["took"]
        self.assertGreater(taken, 0)
        for number in (1, 2, 3):
            own = [bout for bout in tournament["bouts"] if bout["trainer"] == number]
            self.assertEqual(self.rounds(self.trainer("three", number)), own)
            trainer = self.result(self.trainer("three", number))
            samples += trainer["data"]["train"]
            factor = trainer["tournament"]["rate_factor"]
            self.assertEqual(factor, own[-1]["rate_factor"])
            row = self.rows(self.trainer("three", number))[-1]
            plain = 0.01 * 0.5 * (1 + numpy.cos(numpy.pi * (row["step"] - 1) / row["step"]))
            self.assertLess(abs(row["learning_rate"] / factor - plain), 0.05 * plain)
        self.assertTrue(0.8 * SAMPLES < samples < SAMPLES, samples)  # the others are held out
        # The best model in validation is the result.
        losses = [entry["validation"]["loss"] for entry in tournament["ranking"]]
        self.assertEqual(losses, sorted(losses))
        best = tournament["best"]
        self.assertEqual(tournament["ranking"][0]["trainer"], best)
        self.assertEqual(self.rows(self.trainer("three", best))[-1]["validation_loss"], losses[0])
        for file in ("model.pt", "model.onnx", "predictions.csv", "predictions.h5", "metrics.jsonl"):
            self.assertEqual((self.root / "three" / file).read_bytes(), (self.root / self.trainer("three", best) / file).read_bytes())
        self.assertEqual(result["ranks"], 3)
        self.assertIn(f"  1. trainer {best}", done.stdout)
        self.assertIn("trainer 2/3 round 3 of 3: ", done.stdout)
        self.assertEqual(done.stdout.count("mean abs error"), 1)
        lines = [json.loads(line) for line in events.read_text().splitlines()]
        self.assertEqual([line["kind"] for line in lines if line["type"] == "artifact"], ["model", "predictions"])
        self.assertEqual(sum(line["type"] == "metric" and line["name"] == "validation_loss" for line in lines), 4)

    def test_the_winner_s_weights_replace_the_loser_s(self):
        # A rate that moves no weight: all weights are those of the beginning, or of a partner.
        still = {"ranks": 2, "epochs": 2, "optimizer": {"name": "sgd", "learning_rate": 1e-30}, "schedule": "none"}
        self.train(self.config("begun", **still, tournament={"trainers": 2, "rounds": 1, "metrics": "r2", "every": 15}), 2)
        begun = [self.network("begun", number) for number in (1, 2)]
        took = {one["trainer"]: one["took"] for one in self.result("begun")["tournament"]["bouts"]}
        self.assertNotEqual(took[1], took[2], "both trainers prefer the same one of two fixed models")
        loser = 1 if took[1] else 2
        for name, values in begun[loser - 1].items():
            numpy.testing.assert_array_equal(values, begun[2 - loser][name])
        self.train(self.config("parts", **still, tournament={"trainers": 2, "rounds": 1, "metrics": "r2", "every": 15,
                                                             "exchange": ["encoder"]}), 2)
        parts = [self.network("parts", number) for number in (1, 2)]
        took = {one["trainer"]: one["took"] for one in self.result("parts")["tournament"]["bouts"]}
        self.assertTrue(took[1] or took[2])
        for name in parts[0]:
            same = (parts[0][name] == parts[1][name]).all()
            self.assertEqual(same, name.startswith("code") and took[1] != took[2], name)

    def network(self, name, number):
        data, header = self.weights(self.trainer(name, number))
        return {array["name"]: numpy.frombuffer(data, "<f4", int(numpy.prod(array["shape"])), array["offset"])
                for array in header["arrays"] if array["kind"] == "parameter"}

    def test_sigkill_at_any_time_gives_the_same_bits(self):
        keys = {"ranks": 2, "epochs": 4, "batch": 4, "checkpoint": {"every_steps": 5},
                "tournament": {"trainers": 2, "every": 9, "exchange": "all",
                               "perturb": {"optimizer.learning_rate": [0.8, 1.25], "optimizer.weight_decay": [0.5, 2]}}}
        self.train(self.config("unbroken", **keys), 2)
        expected = self.states("unbroken", 2)
        self.assertGreater(len({step for _, step, _ in expected}), 1, "trainers with unequal data")
        path = self.config("broken", **keys)
        for step in (9, 25, 45):
            self.kill_after_step(path, step, 2, "trainer-1/checkpoints")
        self.train(path, 2)
        self.assertEqual(self.states("broken", 2), expected)
        bouts = self.result("unbroken")["tournament"]["bouts"]
        self.assertEqual(self.result("broken")["tournament"]["bouts"], bouts)
        # A trainer that lacks the last round's checkpoints takes all back to the round before.
        last = max(bout["step"] for bout in bouts)
        folder = self.root / self.trainer("broken", 2) / "checkpoints"
        for file in folder.glob("step-*.wfck"):
            if int(file.name[5:17]) >= last:
                file.unlink()
        self.assertTrue(list(folder.glob("step-*.wfck")), "the round before is kept")
        done = self.train(path, 2)
        self.assertEqual(done.stdout.count("continued from"), 2)
        self.assertEqual(self.states("broken", 2), expected)
        # Nothing is left to train.
        done = self.train(path, 2)
        self.assertEqual(done.stdout.count("nothing is left to train"), 2)
        self.assertEqual(self.result("broken")["tournament"]["bouts"], bouts)
        # One without any checkpoint: all begin anew.
        shutil.rmtree(folder)
        done = self.train(path, 2)
        self.assertEqual(done.stdout.count("not every trainer has a checkpoint of the same round: the training starts anew"), 1)
        self.assertEqual(self.states("broken", 2), expected)

    def test_models_that_diverge_are_replaced(self):
        keys = {"ranks": 2, "guard": False, "epochs": 4, "tournament": {"trainers": 2}}
        # A bit of trainer 2's weights becomes huge in the second epoch.
        flip = "weights,step=16,bit=30,seed=10,rank=1"
        done = self.train(self.config("diverged", **keys), 2, "--inject-bit-flips", flip)
        self.assertIn("trainer 2/2 the loss is not finite", done.stderr)
        self.assertIn("the trainer waits for the next round and the model of a partner", done.stderr)
        bouts = {(bout["round"], bout["trainer"]): bout for bout in self.result("diverged")["tournament"]["bouts"]}
        lost = bouts[2, 2]
        self.assertTrue(lost["diverged"] and lost["took"])
        self.assertIsNone(lost["scores"][0]["own"])
        self.assertFalse(bouts[2, 1]["diverged"] or bouts[2, 1]["took"])
        self.assertFalse(bouts[3, 2]["diverged"])
        self.assertTrue(all(entry["has_model"] for entry in self.result("diverged")["tournament"]["ranking"]))
        self.assertEqual([row["epoch"] for row in self.rows(self.trainer("diverged", 2))], [1, 2, 3, 4])

        # After the last round there is no other model.
        last = "weights,step=32,bit=30,seed=10,rank=1"
        steps = self.weights(self.trainer("diverged", 2))[1]["step"]
        self.train(self.config("late", **keys), 2, "--inject-bit-flips", last.replace("32", str(steps - 2)))
        ranking = self.result("late")["tournament"]["ranking"]
        self.assertEqual([(entry["trainer"], entry["has_model"]) for entry in ranking], [(1, True), (2, False)])

        alone = {"guard": False, "tournament": 1, "optimizer": {"name": "sgd", "learning_rate": 1000}}
        self.assertRegex(self.train(self.config("alone_diverged", **alone), code=4).stderr, r"^wflow-train: the (loss|gradient) is not finite at")
        self.assertIn("every trainer has diverged before round 1", self.train(
            self.config("all", **{**keys, "guard": True, "batch": 2, "optimizer": {"name": "sgd", "learning_rate": 1000}}), 2, code=4).stderr)

    def test_several_ranks_a_trainer_a_time_limit_and_the_guard(self):
        keys = {"ranks": 4, "tournament": {"trainers": 2, "data": "shared", "every": 9}, "ema": 0.9}
        self.train(self.config("limit", **keys, max_seconds=1e-3), 4, code=6)
        self.assertFalse((self.root / "limit/result.json").exists())
        self.train(self.config("limit", **keys), 4)
        # A wrong gradient in the first step after a round: the guard goes back to the round, not before it.
        flips = ["--inject-bit-flips", "gradients,step=27,bit=30,rank=3,seed=3"]
        done = self.train(self.config("flipped", **keys), 4, *flips)
        self.assertIn("trainer 2/2 injected gradients", done.stderr)
        self.assertEqual([self.result(self.trainer("flipped", k))["rollbacks"] for k in (1, 2)], [0, 1])
        self.assertEqual(self.states("flipped", 2), self.states("limit", 2))
        self.assertEqual([self.result(self.trainer("limit", k))["ranks"] for k in (1, 2)], [2, 2])
        sizes = [self.result(self.trainer("limit", k))["data"]["train"] for k in (1, 2)]
        self.assertEqual(sizes[0], sizes[1])
        self.assertTrue(0.8 * SAMPLES < sizes[0] < SAMPLES)

    def parts(self, name, trainers, rounds, skip=(), **keys):
        """Runs the tasks of a tournament as a campaign does: part by part, of trainer after trainer."""
        def folder(part, trainer=1):
            return f"{name}/trainer-{trainer}-part-{part}"

        def run(part, trainer, before, ranks, output):
            if (part, trainer) in skip:
                return
            rules = {**keys["tournament"], "trainers": trainers, "as": "tasks", "part": part, "trainer": trainer,
                     "before": [str(self.root / one) for one in before]}
            path = self.config(output, **{**keys, "ranks": ranks, "tournament": rules})
            return self.train(path, ranks)

        (self.root / name).mkdir()
        run(0, 1, [], 1, folder(0))
        for part in range(1, rounds + 2):
            for trainer in range(1, trainers + 1):
                before = [folder(0)]
                if part > 1:
                    partner = self.partner_of[part - 1].get(trainer)
                    before = [folder(part - 1, trainer)] + ([folder(part - 1, partner)] if partner else [])
                run(part, trainer, before, keys["ranks"] // trainers, folder(part, trainer))
        return run(rounds + 2, 1, [folder(rounds + 1, trainer) for trainer in range(1, trainers + 1)], 1, f"{name}/fit")

    def test_tasks_have_the_bits_of_one_job(self):
        keys = {"ranks": 6, "epochs": 5, "ema": 0.9,
                "tournament": {"exchange": "all", "metrics": ["loss", "mae_ratio"], "perturb": {"optimizer.learning_rate": [0.5, 2], "optimizer.weight_decay": [0.1, 10]}}}
        self.train(self.config("job", **{**keys, "tournament": {**keys["tournament"], "trainers": 3}}), 6)
        job = self.result("job")["tournament"]
        self.partner_of = {n: {bout["trainer"]: bout["partner"] for bout in job["bouts"] if bout["round"] == n} for n in range(1, 5)}
        self.assertTrue(any(bout["took"] for bout in job["bouts"]))
        self.assertTrue(any(bout["weight_decay_factor"] != 1 for bout in job["bouts"]))
        done = self.parts("tasks", 3, 4, **keys)
        tasks = self.result("tasks/fit")["tournament"]
        self.assertEqual(tasks["bouts"], job["bouts"])
        self.assertEqual((tasks["best"], tasks["rounds"], tasks["trainers"]), (job["best"], 4, 3))
        self.assertIn(f"  1. trainer {job['best']}", done.stdout)
        for trainer in (1, 2, 3):
            one, other = self.weights(f"job/trainer-{trainer}"), self.weights(f"tasks/trainer-{trainer}-part-5")
            self.assertEqual(one[0], other[0])
            self.assertEqual(one[1]["normalisation"], other[1]["normalisation"])
        for file in ("predictions.csv", "model.onnx"):
            self.assertEqual((self.root / "job" / file).read_bytes(), (self.root / "tasks/fit" / file).read_bytes())
        self.assertEqual(self.result("tasks/fit")["ranks"], 6)
        self.assertEqual([entry["folder"] for entry in tasks["ranking"]], [f"../trainer-{entry['trainer']}-part-5" for entry in job["ranking"]])
        # A part that runs again does the same again, from its folder or from nothing.
        expected = self.weights("tasks/trainer-2-part-3")
        path = self.root / "tasks/trainer-2-part-3.yaml"
        self.train(path, 2)
        self.assertEqual(self.weights("tasks/trainer-2-part-3")[0], expected[0])
        shutil.rmtree(self.root / "tasks/trainer-2-part-3")
        self.train(path, 2)
        self.assertEqual(self.weights("tasks/trainer-2-part-3")[0], expected[0])
        shutil.rmtree(self.root / "tasks/trainer-2-part-2/checkpoints")
        shutil.rmtree(self.root / "tasks/trainer-2-part-3")
        self.assertRegex(self.train(path, 2, code=4).stderr, "^wflow-train: .*trainer-2-part-2 has no checkpoint of the trainer's part before")

    def test_tasks_go_on_without_a_trainer_that_is_lost(self):
        keys = {"ranks": 2, "epochs": 4, "tournament": {}}
        self.partner_of = {n: {1: 2, 2: 1} for n in (1, 2, 3)}
        done = self.parts("lost", 2, 3, skip=[(2, 2), (3, 2), (4, 2)], **keys)
        self.assertRegex(done.stderr, "warning: trainer 2 is lost: there is no .*trainer-2-part-4/trainer.json")
        result = self.result("lost/fit")["tournament"]
        self.assertEqual([(entry["trainer"], entry["has_model"]) for entry in result["ranking"]], [(1, True), (2, False)])
        self.assertEqual([bout["partner"] for bout in result["bouts"]], [2, None, None])
        path = self.root / "lost/trainer-1-part-3.yaml"
        shutil.rmtree(self.root / "lost/trainer-1-part-3")
        self.assertRegex(self.train(path, 1).stderr, "warning: .*trainer 2 is lost: .*trainer-2-part-2 has no checkpoint of it before round 2; "
                                                     "this trainer keeps its model")

    def test_errors_are_one_sentence(self):
        def refusal(started, code, **keys):
            done = self.train(self.config("refused", **keys), started, code=code)
            self.assertEqual(done.stderr.count("wflow-train: "), 1, done.stderr)
            return done.stderr

        self.assertIn("3 ranks can't be 2 trainers", refusal(3, 3, ranks=4, tournament=2))
        two = {"ranks": 2, "model": {"name": "mlp", "dense": [4]}}
        self.assertIn("'exchange' names 'generator', which is no part of the network: it has encoder, head", refusal(
            2, 3, **two, tournament={"trainers": 2, "exchange": ["generator"]}))
        self.assertIn("samples are too few for 2 trainers", refusal(2, 4, **two, tournament={"trainers": 2, "fraction": 0.001}))
        self.assertIn("'rounds: 9' are too many: ", refusal(2, 3, **two, tournament={"trainers": 2, "every": 10, "rounds": 9}))
        done = self.train(self.config("dry", ranks=4, tournament=2), 1, "--dry-run")
        self.assertRegex(done.stdout, r"tournament      2 trainers of 2 ranks, 3 rounds\ntrainer 1       \d+ training and \d+ held-out samples, \d+ steps\n")


if __name__ == "__main__":
    whole.run_tests()
