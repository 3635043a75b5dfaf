# SPDX-License-Identifier: Apache-2.0
"""The user's view of samples: their values, split and records; those that a data set misses; too many that fail."""

import csv
import io
import json
import re
import shutil
import sqlite3
import unittest
from contextlib import closing

import h5py

from wflow_test import INTERRUPTED, OK, TASKS_FAILED, USAGE, CampaignTest

PYTHON = "/usr/bin/python3"
# Writes u.npy of 4 x 4 values; what fault.py of the folder says is another form, or other values, for some. numpy takes longer to load than
# all else that a task does, so that only a fault that looks at the values loads it.
SIMULATE = """
import struct, sys
sample, x, folder = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]

class Names(dict):
    def __missing__(self, name):
        if name not in ("numpy", "values"):
            raise KeyError(name)
        import numpy
        self.update(numpy=numpy, values=numpy.full((4, 4), x, "f4"))
        return self[name]

names = Names()
exec(open(folder + "/fault.py").read(), globals(), names)
open(folder + "/executions", "a").write(f"{sample}\\n")
if "values" not in names:
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4), }".ljust(117) + "\\n"
    open("u.npy", "wb").write(b"\\x93NUMPY" + struct.pack("<BBH118s16f", 1, 0, 118, header.encode(), *16 * [x]))
elif names["values"] is not None:
    names["numpy"].save("u.npy", names["values"])
"""


def study(count, block=10, extra="", convert=""):
    return f"""
description: {{name: fields, description: small fields}}
samples: {{design: sobol, count: {count}, parameters: {{x: [0, 1], y: [2, 3]}}}}
study:
  - name: simulate
    run: {{cmd: "{PYTHON} $(SPECROOT)/simulate.py $(MERLIN_SAMPLE_ID) $(x) $(SPECROOT)", max_retries: 0{extra}}}
  - name: data
    convert:
      from: simulate
      inputs: [x, y]
      targets: {{u: {{file: u.npy, layout: HW}}}}
      shard_samples: {block}{convert}
"""


class Fields(CampaignTest):
    def run_fields(self, text, fault="", code=OK, *options):
        (self.folder / "simulate.py").write_text(SIMULATE)
        (self.folder / "fault.py").write_text(fault)
        return self.wflow("run", self.study(text), "-j", "2", *options, code=code)

    def ids(self):
        """Samples of the shards by split."""
        data = self.campaign() / "data"
        manifest = json.loads((data / "manifest.json").read_text())
        found = {}
        for name, split in manifest["splits"].items():
            for shard in split["shards"]:
                with h5py.File(data / shard["file"]) as file:
                    found.setdefault(name, []).extend(file["id"][...].tolist())
        return found

    def rows(self, *arguments):
        return list(csv.DictReader(io.StringIO(self.wflow(*arguments, "--csv", code=OK).out)))


class Samples(Fields):
    def check_split(self, text):
        self.run_fields(text)
        found = self.ids()
        rows = self.rows("samples")
        self.assertEqual([int(row["id"]) for row in rows], list(range(40)))
        for name in ("train", "validation", "test"):
            self.assertEqual([int(row["id"]) for row in rows if row["split"] == name], sorted(found.get(name, [])), name)
        return rows

    def test_split_is_that_of_the_shards(self):
        rows = self.check_split(study(40))
        self.assertEqual(rows[0]["state"], "done")
        for row in rows:
            self.assertTrue((self.campaign() / "simulate" / row["directory"].split("/simulate/")[1] / "u.npy").exists())
        listed = json.loads(self.wflow("samples", "--json", code=OK).out)
        self.assertEqual([{"id": str(s["id"]), "split": s["split"]} for s in listed],
                         [{"id": r["id"], "split": r["split"]} for r in rows])
        self.assertEqual([str(s["values"]["x"]) for s in listed], [str(float(r["x"])) for r in rows])
        chosen = self.rows("samples", "--where", "x > 0.5")
        self.assertEqual([r["id"] for r in chosen], [r["id"] for r in rows if float(r["x"]) > 0.5])

    def test_a_campaign_of_an_earlier_version_keeps_its_split(self):
        """Its fractions were met by a hash of each sample's number."""
        def order():
            manifest = json.loads((self.campaign() / "data/manifest.json").read_text())
            return manifest["split"]["order"], {name: split["samples"] for name, split in manifest["splits"].items()}

        (self.folder / "simulate.py").write_text(SIMULATE)
        (self.folder / "fault.py").write_text("")
        self.wflow("run", self.study(study(40)), "--dry")
        for options in self.campaign().glob(".wflow/**/options.json"):
            written = json.loads(options.read_text())
            for key in ("split_version", "wflow_checksum"):
                written.pop(key, None)
            options.write_text(json.dumps(written))
        self.wflow("resume", self.campaign(), "-j", "2")
        self.assertEqual(order()[0], "hash")
        before = self.ids()
        self.assertIn("nothing differs", self.wflow("diff").out)
        self.wflow("redo", "data", "-j", "2", "-q")
        self.assertEqual(self.ids(), before)
        self.wflow("rm", self.campaign(), "--yes")
        self.check_split(study(40))
        self.assertEqual(order(), ("even", {"train": 32, "validation": 4, "test": 4}))

    def test_exact_counts(self):
        self.check_split(study(40, convert="\n      split: {train: 20, validation: 12, test: 8, seed: 7}"))

    def test_strata(self):
        self.check_split(study(40, convert="\n      split: {train: 0.5, validation: 0.25, test: 0.25, stratify_by: {column: x, edges: [0.3, 0.6]}}"))

    def test_done_tasks_are_shown_in_full(self):
        self.run_fields(study(12))
        rows = self.rows("tasks", "--step", "simulate", "--parameters")
        self.assertEqual(len(rows), 12)
        by_id = {r["id"]: r for r in self.rows("samples")}
        for row in rows:
            self.assertGreater(float(row["duration"]), 0.01)
            self.assertGreater(float(row["cpu"]), 0.01)
            self.assertGreater(int(row["peak_bytes"]), 1 << 20)
            self.assertGreater(float(row["started"]), 1.7e9)
            self.assertTrue(row["worker"])
            self.assertEqual((row["x"], row["y"]), (by_id[row["sample"]]["x"], by_id[row["sample"]]["y"]))
        slowest = max(float(row["duration"]) for row in rows)
        above = self.rows("tasks", "--step", "simulate", "--where", f"duration >= {slowest!r} and state = done")
        self.assertEqual([r["sample"] for r in above], [r["sample"] for r in rows if float(r["duration"]) == slowest])
        self.assertEqual(len(self.rows("tasks", "--step", "simulate", "--worker", rows[0]["worker"])), 12)
        self.assertEqual(self.rows("tasks", "--step", "simulate", "--worker", "nobody"), [])
        table = self.wflow("tasks", "--step", "simulate", "--parameters", code=OK).out.splitlines()
        self.assertRegex(table[0], r"duration +cpu +memory +worker .*x +y")
        self.assertIn(rows[0]["x"], table[1])

    def test_without_samples(self):
        self.wflow("run", self.study("description: {name: s, description: d}\nstudy: [{name: a, run: {cmd: 'true'}}]\n"), code=OK)
        self.assertIn("no samples", self.wflow("samples", code=USAGE).err)


class Missing(Fields):
    NAN = "if sample in (3, 17): values[1, 2] = numpy.nan\n"

    def missing(self):
        steps = {step["name"]: step for step in self.status()["steps"]}
        return steps["data"]["missing"]

    def test_nan_is_a_state(self):
        run = self.run_fields(study(20), self.NAN)
        listed = json.loads(self.wflow("tasks", "--state", "missing", "--json", code=OK).out)
        self.assertEqual([t["task"] for t in listed], ["simulate/3", "simulate/17"])
        for task in listed:
            self.assertEqual((task["state"], task["exit_code"]), ("missing", 0))
            self.assertIn("u.npy holds NaN or infinite values", task["message"])
            self.assertNotIn(str(self.folder), task["message"])
        self.assertEqual(self.wflow("tasks", "--state", "done", "--step", "simulate", "--count", code=OK).out.strip(), "18")
        self.assertEqual(self.wflow("tasks", "--where", "state = missing and sample > 5", "--count", code=OK).out.strip(), "1")
        self.assertEqual(self.missing(), {"samples": 2, "reasons": [{"reason": "u.npy holds NaN or infinite values in u", "samples": 2, "first": 3}]})
        for text in (run.out, self.wflow("status", code=OK).out):
            self.assertIn("2 samples missing", text)
            self.assertIn("u.npy holds NaN or infinite values", text)
            self.assertIn("redo", text)
            self.assertIn("outputs: [{file: u.npy, finite: true}]", text)
        explained = self.wflow("explain", "simulate/3", code=OK).out
        self.assertIn("simulate/3  missing", explained)
        self.assertIn("data: u.npy holds NaN", explained)
        self.assertIn("  done", self.wflow("explain", "simulate/4", code=OK).out.replace(": succeeded", "  "))
        self.assertEqual([r["id"] for r in self.rows("samples", "--state", "missing")], ["3", "17"])
        with closing(sqlite3.connect(self.campaign() / ".wflow" / "campaign.db")) as database:
            rows = database.execute("select step, sample, state, detail from v_tasks order by sample").fetchall()
        self.assertEqual([row[:3] for row in rows], [("simulate", 3, "missing"), ("simulate", 17, "missing")])
        self.assertIn("data: u.npy holds NaN", rows[0][3])
        # Declared as outputs, such a task fails as it ends.
        self.run_fields(study(20, extra=", outputs: {file: u.npy, finite: true}"), self.NAN, TASKS_FAILED)
        failed = json.loads(self.wflow("tasks", "--state", "failed", "--json", code=OK).out)
        self.assertEqual([t["sample"] for t in failed], [3, 17])

    def test_a_wrong_first_sample_does_not_decide(self):
        self.run_fields(study(20), "if sample == 0: values = values[:2]\n")
        self.assertEqual(sorted(sum(self.ids().values(), [])), list(range(1, 20)))
        [task] = json.loads(self.wflow("tasks", "--state", "missing", "--json", code=OK).out)
        self.assertEqual(task["task"], "simulate/0")
        self.assertIn("u.npy holds (2, 4) float32 of u, most samples of the block (4, 4)", task["message"])

    def test_a_wrong_block_does_not_decide(self):
        self.run_fields(study(30), "if sample < 10: values = values[:2]\n")
        self.assertEqual(sorted(sum(self.ids().values(), [])), list(range(10, 30)))
        listed = json.loads(self.wflow("tasks", "--state", "missing", "--json", code=OK).out)
        self.assertEqual([t["sample"] for t in listed], list(range(10)))
        self.assertIn("block 0 holds (2, 4) float32 in u, most samples of the data set (4, 4)", listed[0]["message"])

    def test_ten_samples_without_output(self):
        # Where a failed simulation is, the task says so; where one ended well without its file, it is missing.
        self.run_fields(study(40), "if sample % 4 == 1: values = None\n")
        self.assertEqual(self.missing()["samples"], 10)
        self.assertIn("30 of 40 samples are usable in the data set of data: of 10 the output is not usable", self.wflow("status", code=OK).out)
        groups = json.loads(self.wflow("tasks", "--group", "--json", code=OK).out)
        self.assertEqual([(g["tasks"], g["step"], g["ended"], g["first"]) for g in groups], [(10, "simulate", "missing", "simulate/1")])

    CRASH = "numpy.save('u.npy', values)\nif sample % 10 == 4: sys.exit(1)\n"

    def test_a_crash_after_its_output_is_no_training_data(self):
        """The state of its task decides, not the file that is there."""
        run = self.run_fields(study(40), self.CRASH, TASKS_FAILED)
        self.assertIn("36 of 40 samples are usable in the data set of data: 4 failed", run.out)
        found = sorted(sum(self.ids().values(), []))
        self.assertEqual(found, [i for i in range(40) if i % 10 != 4])
        self.assertEqual(self.missing()["reasons"], [{"reason": "its task of simulate failed", "samples": 4, "first": 4}])
        self.assertIn("36 of 40 samples", self.wflow("status", code=OK).out)
        # After a retry the samples are there.
        (self.folder / "fault.py").write_text("")
        self.wflow("retry", "--step", "simulate", "-j", "2", "-q", code=OK)
        self.assertEqual(sorted(sum(self.ids().values(), [])), list(range(40)))
        shutil.rmtree(self.campaign())
        self.run_fields(study(40, convert=", use_failed: true".replace(", ", "\n      ")), self.CRASH, TASKS_FAILED)
        self.assertEqual(sorted(sum(self.ids().values(), [])), list(range(40)))

    CHAIN = """
  - name: measure
    run: {{cmd: "cp {up}/u.npy . || cp $(SPECROOT)/other.npy u.npy", depends: [simulate]}}
"""

    def test_a_chain_that_failed_is_left_out_in_all_dialects(self):
        for merlin in (False, True):
            text = study(20).replace("from: simulate", "from: measure")
            text = text.replace("  - name: data", self.CHAIN.format(up="$(simulate.workspace)/$(MERLIN_SAMPLE_PATH)").lstrip("\n") + "  - name: data")
            if merlin:
                text = "# wflow: merlin\n" + re.sub(r"(  - name: \w+\n)", r"\1    description: of the test\n", text)
                shutil.rmtree(self.campaign())
            (self.folder / "other.npy").write_bytes(b"")
            self.run_fields(text, self.CRASH, TASKS_FAILED)
            self.assertEqual(self.counts("measure")["done"], 20 if merlin else 18)
            self.assertEqual(self.counts("measure")["skipped"], 0 if merlin else 2)
            self.assertEqual(sorted(sum(self.ids().values(), [])), [i for i in range(20) if i % 10 != 4])
            self.assertEqual(self.missing()["reasons"], [{"reason": "its task of simulate failed", "samples": 2, "first": 4}])

    def test_only_failed_ones(self):
        """A failed task is not done: redo would find nothing."""
        text = self.run_fields(study(20), "if sample < 3: sys.exit(9)\n", TASKS_FAILED).out
        self.assertIn("17 of 20 samples are usable in the data set of data: 3 failed", text)
        self.assertIn("run the simulations that failed again: wflow retry", text)
        self.assertNotIn("redo", text)

    def test_mended_and_run_again(self):
        """After a retry of its simulation the mark is gone."""
        self.run_fields(study(20), "if sample == 4: sys.exit(9)\nif sample == 5: values[0] = numpy.inf\n", TASKS_FAILED)
        self.assertEqual(self.missing()["samples"], 2)
        text = self.wflow("status", code=OK).out
        self.assertIn("run the simulation that failed again: wflow retry", text)
        self.assertIn("run their simulations again: wflow redo", text)
        (self.folder / "fault.py").write_text("")
        self.wflow("retry", "--step", "simulate", "-j", "2", "-q", code=OK)
        # The block was converted again, and says anew what is missing.
        self.assertEqual(self.missing()["samples"], 1)
        self.assertEqual([r["id"] for r in self.rows("samples", "--state", "missing")], ["5"])


class FailureLimits(Fields):
    def test_the_first_twenty_pause_the_step(self):
        run = self.run_fields(study(400), "sys.exit(7)\n", TASKS_FAILED)
        steps = {step["name"]: step["counts"] for step in self.status()["steps"]}
        self.assertGreaterEqual(steps["simulate"]["failed"], 20)
        self.assertLess(steps["simulate"]["failed"], 200)
        self.assertIn("the step 'simulate' is paused: its first", run.out)
        self.assertIn("exit code 7", run.out)
        # The mistake is mended: retry goes on with all of it.
        (self.folder / "fault.py").write_text("")
        self.wflow("retry", "-j", "2", "-q", code=OK)
        self.assertEqual(self.counts("simulate")["done"], 400)

    def test_resume_counts_anew(self):
        self.run_fields(study(100, extra=", max_failures: 5"), "if sample < 30: sys.exit(7)\n", TASKS_FAILED)
        first = self.counts("simulate")["failed"]
        self.assertGreaterEqual(first, 5)
        self.assertLess(first, 30)
        self.assertEqual(self.status()["state"], "interrupted")
        self.wflow("resume", "-j", "2", code=TASKS_FAILED)
        self.assertGreaterEqual(self.counts("simulate")["failed"], first + 5)

    def test_a_part_of_the_tasks(self):
        self.run_fields(study(200, extra=", max_failures: 5 %"), "if sample % 2: sys.exit(7)\n", TASKS_FAILED)
        counts = self.counts("simulate")
        self.assertGreaterEqual(counts["failed"], 10)
        self.assertLess(counts["failed"], 60)

    def test_none(self):
        self.run_fields(study(40, extra=", max_failures: none"), "sys.exit(7)\n", TASKS_FAILED)
        self.assertEqual(self.counts("simulate")["failed"], 40)

    def test_a_step_that_succeeds_at_first_is_not_paused(self):
        self.run_fields(study(60), "if sample > 1: sys.exit(7)\n", TASKS_FAILED)
        self.assertEqual(self.counts("simulate")["failed"], 58)

    def test_what_it_may_be(self):
        for wrong in ("0", "-3", "5 percent", "0 %", "101 %", "[1]"):
            text = study(4, extra=f", max_failures: {wrong}")
            self.assertIn("'max_failures' must be", self.wflow("validate", self.study(text), code=3).err)


class OwnTraining(CampaignTest):
    def test_is_shown_like_a_train_step(self):
        """`wflow train` in a run: step: its curves, and paths that can be used wherever one stands."""
        (self.folder / "train.yaml").write_text("data: DATA\noutput: out\nmodel: {name: mlp}\nepochs: 3\nbatch: 4\n")
        run = self.wflow("run", self.study("""
description: {name: own, description: a training of the user's own}
samples: {design: uniform, count: 40, seed: 1, parameters: {x: [0, 1], y: [3, 4]}}
study:
  - name: simulate
    run: {cmd: "echo $(x) > out.txt"}
  - name: data
    convert: {from: simulate, inputs: [x, y], targets: {t: {file: out.txt, format: text, regex: '(\\S+)'}}, shard_samples: 20}
  - name: fit
    run: {cmd: "sed s#DATA#$(data.workspace)# $(SPECROOT)/train.yaml > train.yaml && wflow train train.yaml", depends: [data], max_retries: 0}
  - name: train
    train: {data: data, model: {name: mlp}, epochs: 3, batch: 4}
"""), "-j", "2", code=OK)
        self.assertIn("epoch 3: train_loss", run.out)
        status = self.status()
        points = {}
        for metric in status["metrics"]:
            points.setdefault(metric["task"], set()).add((metric["name"], metric["epoch"]))
        self.assertIn(("validation_loss", 3), points["train"])
        self.assertEqual(points["fit"], points["train"])
        paths = {(a["step"], a["kind"]): a["path"] for a in status["artifacts"]}
        self.assertEqual(paths[("fit", "model")], str(self.campaign() / "fit" / "out" / "model.pt"))
        self.assertEqual(paths[("train", "model")], str(self.campaign() / "train" / "model.pt"))


if __name__ == "__main__":
    unittest.main()
