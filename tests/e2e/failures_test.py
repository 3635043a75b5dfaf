# SPDX-License-Identifier: Apache-2.0
"""Simulations that fail: tried again as the study says, reported, and named in the shards; the rest goes on."""

import json
import unittest
from collections import Counter

import h5py

from wflow_test import OK, TASKS_FAILED, CampaignTest, Gate, quickstart

UNIVERSES = 12
BROKEN = 5    # fails always
FLAKY = 7     # fails the first time


class Failures(CampaignTest):
    def test_failed_universe(self):
        gate = Gate(self.folder, UNIVERSES)
        failing = (f'if [ $(MERLIN_SAMPLE_ID) = {BROKEN} ]; then echo to standard output; echo no convergence in cell 17 >&2; exit 23; fi; '
                   f'if [ $(MERLIN_SAMPLE_ID) = {FLAKY} ] && [ ! -e {self.folder}/tried ]; then touch {self.folder}/tried; exit 9; fi')
        study = quickstart(UNIVERSES, 2, gate=gate, failing=failing)
        self.assertIn("max_retries: 2", study)
        run = self.wflow("run", self.study(study), "-j", "2", code=TASKS_FAILED)
        directory = self.campaign()

        expected = Counter({n: 1 for n in range(UNIVERSES)})
        expected[BROKEN] = 3  # once, and two retries
        expected[FLAKY] = 2
        self.assertEqual(Counter(gate.began()), expected)

        for text in (run.out, self.wflow("status", directory).out):
            self.assertIn(f"simulate/{BROKEN}", text)
            self.assertIn("exit code 23", text)
            self.assertIn("no convergence in cell 17", text)
            self.assertNotIn(f"simulate/{FLAKY} ", text)
        self.assertIn("no convergence in cell 17", self.wflow("logs", directory, f"simulate/{BROKEN}").out)

        status = self.status()
        self.assertEqual(status["state"], "finished with failures")
        self.assertEqual([(f["task"], f["reason"], f["final"], f["attempt"]) for f in status["failures"]],
                         [(f"simulate/{BROKEN}", "exit code 23", True, 2)])
        self.assertEqual(self.counts("simulate")["done"], UNIVERSES - 1)
        self.assertEqual(self.counts("simulate")["failed"], 1)
        self.assertEqual(self.counts("train")["done"], 1)
        self.assertTrue((directory / "train" / "model.pt").exists())
        self.check_missing(directory / "data")

        # Resuming changes nothing, and says so with the same code.
        self.wflow("resume", directory, code=TASKS_FAILED)
        self.assertEqual(Counter(gate.began()), expected)

    def check_missing(self, data):
        manifest = json.loads((data / "manifest.json").read_text())
        self.assertEqual(manifest["missing"], [BROKEN])
        self.assertEqual(sum(split["samples"] for split in manifest["splits"].values()), UNIVERSES - 1)
        missing, present = [], []
        for split in manifest["splits"].values():
            for shard in split["shards"]:
                with h5py.File(data / shard["file"]) as file:
                    missing += file["missing"][...].tolist()
                    present += file["id"][...].tolist()
        # A part of a block without a usable sample has no shard that could name it; its block's record does.
        records = [json.loads(p.read_text()) for p in sorted((data / "blocks").glob("*.json"))]
        recorded = [entry["sample"] for record in records for entry in record["missing"]]
        self.assertEqual(recorded, [BROKEN])
        self.assertEqual(missing, [BROKEN])
        self.assertEqual(sorted(present), [n for n in range(UNIVERSES) if n != BROKEN])

    def test_everything_fails(self):
        study = quickstart(4, 2, failing="exit 3")
        study = study.replace("shard_samples: 4", "shard_samples: 2").replace("max_retries: 2", "max_retries: 0")
        run = self.wflow("run", self.study(study), code=TASKS_FAILED)
        self.assertIn("exit code 3", run.out)
        self.assertFalse((self.campaign() / "train" / "model.pt").exists())
        self.assertEqual(self.counts("train")["skipped"], 1)

    def test_wrong_shape(self):
        # One universe writes other cells than the rest: unusable, named with its reason; the rest is trained on.
        study = quickstart(UNIVERSES, 2).replace("wflow-cola --omega-m", f"cells=32; [ $(MERLIN_SAMPLE_ID) = {BROKEN} ] && cells=16\n        wflow-cola --omega-m")
        study = study.replace("--cells 32", "--cells $cells")
        self.wflow("run", self.study(study), "-j", "2", code=OK)
        data = self.campaign() / "data"
        self.check_missing(data)
        inspected = self.wflow("convert", "inspect", data).out
        self.assertIn("holds (2, 16, 16, 16)", inspected)
        self.assertIn(str(BROKEN), inspected)


class RetryAfterTraining(CampaignTest):
    def test_everything_below_runs_again(self):
        cure = self.folder / "cure"
        study = quickstart(UNIVERSES, 2, failing=f'[ $(MERLIN_SAMPLE_ID) != {BROKEN} ] || [ -e {cure} ] || exit 101')
        self.wflow("run", self.study(study), "-j", "2", "-q", code=TASKS_FAILED)
        train, data = self.campaign() / "train", self.campaign() / "data"
        old_model, old_manifest = (train / "model.pt").read_bytes(), json.loads((data / "manifest.json").read_text())
        self.assertEqual(old_manifest["missing"], [BROKEN])
        cure.touch()
        self.wflow("retry", "--step", "simulate", "-j", "2", "-q", code=OK)
        manifest = json.loads((data / "manifest.json").read_text())
        self.assertEqual(manifest["missing"], [])
        self.assertEqual(sum(split["samples"] for split in manifest["splits"].values()), UNIVERSES)
        # Trained anew on the new data, with a message; not refused, not continued from the old checkpoint.
        self.assertNotEqual((train / "model.pt").read_bytes(), old_model)
        self.assertTrue(any("training starts anew" in text for text in self.history("note")), self.history())
        self.assertEqual({k: v for k, v in self.counts("train").items() if v}, {"done": 1})
        self.assertEqual({s["name"]: s["counts"]["done"] for s in self.status()["steps"]}["simulate"], UNIVERSES)
        # Without new data there is nothing to train: resume ends at once.
        model = (train / "model.pt").stat().st_mtime_ns
        self.wflow("resume", "-q", code=OK)
        self.assertEqual((train / "model.pt").stat().st_mtime_ns, model)


class WhatTasksPrint(CampaignTest):
    def test_bytes_that_are_no_text(self):
        # They go into the record, through the coordinator's answers and onto terminals: never an internal error.
        gate = Gate(self.folder, 2)
        study = self.study(f"""
description: {{name: bytes, description: prints anything}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: uniform, count: 3, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run:
      cmd: |
        {gate.command()}
        printf 'a\\377\\033[31mb\\000c\\n' >&2
        exit 3
""")
        run = self.start("run", study, "-j", "1")
        self.wait_for_campaign(run)
        self.wait(lambda: self.counts("work")["failed"] == 2, "two have failed", run)
        self.assertIn("a\ufffdb?c", self.wflow("explain", "work/0").out)
        self.assertEqual(json.loads(self.wflow("explain", "work/0", "--json").out)["executions"][0]["detail"].strip(), "a\ufffdb?c")
        gate.open()
        self.assertEqual(run.wait(), TASKS_FAILED, run.err)
        self.assertNotIn("\x1b", run.out + self.wflow("status").out)
        self.assertEqual(json.loads(self.wflow("logs", "work/1", "--json").out)["err"], "a\ufffdb?c\n")

    def test_follow(self):
        study = self.study(f"""
description: {{name: slow, description: prints bit by bit}}
env: {{variables: {{OUTPUT_PATH: .}}}}
study:
  - name: work
    run:
      cmd: |
        echo first
        until [ -e {self.folder}/go ]; do sleep 0.1; done
        echo second
""")
        run = self.start("run", study)
        self.wait_for_campaign(run)
        self.wait(lambda: self.status()["coordinator"], "a coordinator", run)
        follow = self.start("logs", self.campaign(), "work", "--follow")
        self.wait(lambda: follow.out == "first\n", "what is there", follow)
        (self.folder / "go").touch()
        self.assertEqual(follow.wait(), OK, follow.err)
        self.assertEqual(follow.out, "first\nsecond\n")
        self.assertEqual(run.wait(), OK, run.err)
        self.assertEqual(self.wflow("logs", "work", "--follow").out, "first\nsecond\n", "at rest it ends at once")


if __name__ == "__main__":
    unittest.main()
