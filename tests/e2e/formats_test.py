# SPDX-License-Identifier: Apache-2.0
"""Campaigns that earlier versions have stored (tests/formats): commands read them, `resume` finishes them, nothing of them is done
twice, their shards and models have the values that were written. A format that is newer than the program is refused by a sentence."""

import csv
import io
import json
import re
import shutil
import sqlite3
import sys
import unittest
from collections import Counter

import h5py
import numpy as np

from wflow_test import SOURCE, TASKS_FAILED, CampaignTest, xxh3_128

sys.path[:0] = [str(SOURCE / "tests" / "formats"), str(SOURCE / "python")]
import stored  # noqa: E402
import wflow  # noqa: E402

VERSION = 8
SAMPLES = 16
FAILED = 5  # the sample without a solution
ROWS, COLUMNS = np.mgrid[0:32, 0:32]


def parameters(i):
    return i / 16, 5 * i % 16 / 8


def truth(i):
    """The fields that the simulation of sample i wrote, worked out again."""
    a, b = parameters(i)
    return {"theta": [a, b], "u": (a * (ROWS % 4) + b * (COLUMNS % 8)).astype(np.float32), "energy": a * a + 2 * b}


def rewrite_json(path, key, value):
    """Its checksum, the first line, goes: files without one are read."""
    document = json.loads(path.read_text())
    document.pop("wflow_checksum", None)
    path.write_text(json.dumps({**document, key: value}))


def replace_bytes(path, old, new):
    data = path.read_bytes()
    assert old in data and len(old) == len(new), path
    path.write_bytes(data.replace(old, new))


def each_version(test):
    """Runs a test for the campaign of each stored version, unpacked elsewhere than it was made."""
    def run(self):
        versions = stored.stored_versions()
        self.assertTrue(versions, "no stored campaign")
        for version in versions:
            with self.subTest(version=version.name):
                self.unpack(version)
                test(self)

    return run


class StoredTest(CampaignTest):
    def unpack(self, version):
        self.expected = json.loads((version / "expected.json").read_text())
        shutil.rmtree(self.folder / "moved", ignore_errors=True)
        (self.folder / "moved").mkdir()
        self.directory = stored.unpack(version, self.folder / "moved")
        (self.directory / "gate").write_text(f"simulate {SAMPLES}\nrefine {SAMPLES}\n")

    def campaign(self):
        return self.directory

    def lines(self, name):
        return (self.directory / name).read_text().splitlines()

    def made(self):
        return Counter(self.lines("made"))

    def check_shards(self, samples):
        """By h5py alone, then by the Python package."""
        for split, ids in self.expected["splits"].items():
            found = []
            for path in sorted((self.directory / "data" / split).glob("*.h5")):
                with h5py.File(path) as shard:
                    for row, i in enumerate(shard["id"][:]):
                        for field, value in truth(i).items():
                            np.testing.assert_allclose(np.squeeze(shard[field][row]), value, rtol=1e-9, err_msg=f"{path}: {field} of {i}")
                        found.append(int(i))
            self.assertEqual(found, ids)
        data = wflow.open(self.directory / "data")
        self.assertEqual(data.manifest["missing"], [FAILED])
        self.assertEqual({split: list(data[split].ids) for split in self.expected["splits"]}, self.expected["splits"])
        for split in self.expected["splits"]:
            for row in range(len(data[split])):
                sample = data[split][row]
                for field, value in truth(sample["id"]).items():
                    np.testing.assert_allclose(np.squeeze(sample[field]), value, rtol=1e-9)
        self.assertEqual(sum(len(data[split]) for split in self.expected["splits"]), samples)


class Formats(StoredTest):
    def test_no_format_changes_without_a_stored_campaign(self):
        newest = stored.stored_versions()[-1]
        self.assertEqual(stored.formats_now(), json.loads((newest / "formats.json").read_text()),
                         f"a durable format of the sources is not that of {newest}: tests/formats/README.md says what to do")
        self.assertEqual(stored.unlisted_constants(), [], "name them in DURABLE or NOT_DURABLE of tests/formats/stored.py")
        self.unpack(newest)
        for name, (_, _, file) in stored.DURABLE.items():
            self.assertTrue(list(self.directory.glob(file)), f"{newest} has no file of the format '{name}'")

    @each_version
    def test_commands_read_it(self):
        self.check_files()
        status = self.status()
        self.assertEqual(status["state"], "interrupted")
        for step in status["steps"]:
            counts = self.expected["counts"][step["name"]]
            self.assertEqual({state: step["counts"][state] for state in counts}, counts, step["name"])
        self.check_texts()
        self.check_tables()
        doctor = self.start("doctor", self.directory)
        doctor.wait()
        # The training's worker may have had all of its results committed.
        self.assertRegex(doctor.out, r"^(\S+: nothing is wrong|1 journals of workers that have ended hold no result: \S+\n"
                                     r"  would: remove them\n\nnothing was changed)", doctor.err)

    def check_files(self):
        """Files that no command of this test reads, by their descriptions in docs/."""
        for i in range(SAMPLES):
            folder = self.directory / "simulate" / f"{i:02}"
            self.assertEqual((folder / "MERLIN_FINISHED").exists(), i != FAILED)
            if i != FAILED:
                made = json.loads((folder / "run.json").read_text())
                np.testing.assert_allclose(made["u"], truth(i)["u"], rtol=1e-6)
                self.assertAlmostEqual(made["energy"], truth(i)["energy"])
        with h5py.File(self.directory / "quick" / "predictions.h5") as file:
            predicted = {row["id"]: row["energy_predicted"] for row in self.expected["predictions"]}
            self.assertEqual(list(file["id"]), self.expected["splits"]["test"])
            np.testing.assert_allclose(file["prediction"][:, 0], [predicted[i] for i in file["id"]], rtol=1e-4)
        search = json.loads((self.directory / "tune" / "search.json").read_text())
        values = [json.loads(self.lines(f"{training}/metrics.jsonl")[-1])["validation_loss"]
                  for training in ("tune/RATE.0.01", "tune.rung_1/RATE.0.003")]
        self.assertEqual((search["best"], search["model"], search["rungs"]), ("RATE.0.01", "RATE.0.01/model.pt", [1, 2]))
        self.assertEqual(search["trainings"], [
            {"training": "RATE.0.01", "rung": 2, "place": 1, "of": 1, "epochs": 2, "value": values[0]},
            {"training": "RATE.0.003", "rung": 1, "place": 2, "of": 2, "epochs": 1, "value": values[1]}])
        noted = [int.from_bytes(file.read_bytes()[:8], "little") for file in self.directory.glob(".wflow/workers/*.count")]
        self.assertEqual(max(noted), self.expected["results_in_journal"])
        number, checksum = (self.directory / ".wflow" / "commits").read_text().split()
        self.assertEqual(checksum, xxh3_128(number.encode()))
        record, checksum = (self.directory / ".wflow" / "coordinator.lock").read_text().splitlines()
        self.assertEqual(checksum, xxh3_128(record.encode()))

    def check_texts(self):
        self.assertEqual(self.wflow("logs", self.directory, "refine/4", "--out").out, "refined sample 4\n")
        self.assertEqual(self.wflow("logs", self.directory, "refine/4", "--err").out, "warning of sample 4\n")
        self.assertIn("sample 5 has no solution", self.wflow("logs", self.directory, "simulate/5", "--err").out)
        self.assertIn("sample 5 has no solution", self.wflow("explain", self.directory, "simulate/5").out)
        self.assertIn('wflow_tasks{', self.wflow("metrics", self.directory).out)
        self.assertRegex(self.wflow("history", self.directory).out, r"(?s)\b1\b.*\b2\b")
        self.wflow("usage", self.directory)
        page = self.folder / "report.html"
        self.wflow("report", self.directory, "-o", page)
        self.assertIn("one of each durable format", page.read_text())

    def check_tables(self):
        rows = list(csv.DictReader(io.StringIO(self.wflow("samples", self.directory, "--csv").out)))
        self.assertEqual([(float(row["a"]), float(row["b"])) for row in rows], [parameters(i) for i in range(SAMPLES)])
        curves = json.loads(self.wflow("curves", self.directory, "--metric", "validation_loss", "--json").out)
        long = next(curve for curve in curves if "long" in json.dumps(curve))
        written = [json.loads(line) for line in self.lines("long/metrics.jsonl")]
        both = min(len(written), len(long["value"]))  # the database or the file may be an epoch ahead: the training was killed
        self.assertGreater(both, 1)
        self.assertEqual([[row["epoch"], row["validation_loss"]] for row in written[:both]],
                         [list(point) for point in zip(long["epoch"][:both], long["value"])])
        copy = self.folder / "copy.db"
        self.wflow("snapshot", self.directory, copy)
        with sqlite3.connect(copy) as database:
            self.assertEqual(database.execute("select step, name, value from v_removed_metrics").fetchall(), [("probe", "noise", 0.5)])
            self.assertEqual(database.execute("select sample, reason from v_failures where final").fetchall(), [(FAILED, "exited")])
        copy.unlink()

    @each_version
    def test_resume_finishes_it(self):
        before = self.made()
        done = {path: (path.stat().st_mtime_ns, path.read_bytes()) for step in ("data", "quick", "tune", "simulate", "gather/blocks")
                for path in (self.directory / step).rglob("*") if path.is_file()}
        epochs = self.lines("long/metrics.jsonl")
        self.wflow("resume", self.directory, "-j", "2", code=TASKS_FAILED)
        ran = ["probe 0", *(f"{step} {i}" for step in ("simulate", "refine") for i in range(SAMPLES) if i != FAILED)]
        self.assertEqual(self.made(), Counter(ran), "each once, before or now")
        self.assertGreater(len(ran), len(before))
        for path, state in done.items():
            self.assertEqual((path.stat().st_mtime_ns, path.read_bytes()), state, path)
        self.assertRegex("\n".join(self.history("worker")),
                         rf"(?m)^{self.expected['results_in_journal']} results of worker \S+ taken from its journal$")
        self.check_training(epochs)
        gathered = wflow.open(self.directory / "gather")
        found = {int(sample["id"]): sample for split in (gathered.train, gathered.validation, gathered.test) for sample in split}
        self.assertEqual(sorted(found), [i for i in range(SAMPLES) if i != FAILED])
        for i, sample in found.items():
            np.testing.assert_allclose(np.squeeze(sample["v"]), [*parameters(i), i])
        self.assertIn("nothing is wrong", self.wflow("doctor", self.directory).out)

    def check_training(self, epochs):
        """It went on behind its checkpoint, not from the beginning."""
        at = self.expected["checkpoint"]
        self.assertIn(f"long: continued from epoch {at['epoch']}, step {at['step']}", self.history("note"))
        kept = epochs[:at["epoch"]]
        self.assertGreater(len(kept), 1)
        self.assertEqual(self.lines("long/metrics.jsonl")[:len(kept)], kept)
        result = json.loads((self.directory / "long" / "result.json").read_text())
        self.assertEqual((result["segments"], result["epochs"]), (2, self.expected["epochs"]))

    @each_version
    def test_shards_have_their_values(self):
        self.check_shards(samples=SAMPLES - 1)

    @each_version
    def test_models_predict_the_same(self):
        out = self.wflow("predict", self.directory / "quick" / "model.pt", self.directory / "data").out
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(io.StringIO(out))]
        self.assertEqual(len(rows), len(self.expected["predictions"]))
        for row, expected in zip(rows, self.expected["predictions"]):
            self.assertEqual(row.keys(), expected.keys())
            np.testing.assert_allclose(list(row.values()), list(expected.values()), rtol=1e-4, atol=1e-5)


class NewerFormats(StoredTest):
    """Files of the newest stored version, as a later wflow may write them."""

    def setUp(self):
        super().setUp()
        self.unpack(stored.stored_versions()[-1])

    def refused(self, arguments, *parts, program="wflow"):
        self.assert_one_sentence(self.wflow(*arguments, code=VERSION, program=program), *parts)

    def one(self, pattern):
        return next(self.directory.glob(pattern))

    def test_database(self):
        for change, word in ((1, "a newer wflow"), (-2, "an older wflow")):
            with sqlite3.connect(self.directory / ".wflow" / "campaign.db") as database:
                version = database.execute("pragma user_version").fetchone()[0] + change
                database.execute(f"pragma user_version={version}")
            database.close()
            for command in ("status", "resume"):
                self.refused([command, self.directory], "campaign.db", word, f"format {version}")

    def test_study_copy(self):
        rewrite_json(self.directory / ".wflow" / "studies" / "2" / "options.json", "version", 2)
        for command in ("status", "resume"):
            self.refused([command, self.directory], "newer wflow")

    def test_keys(self):
        rewrite_json(self.directory / ".wflow" / "keys.json", "format", 2)
        self.refused(["resume", self.directory], "keys.json", "newer wflow")

    def test_worker_journal(self):
        journals = list(self.directory.glob(".wflow/workers/*.journal"))
        before = {}
        for journal in journals:
            replace_bytes(journal, b"WfJ1", b"WfJ2")
            before[journal] = journal.read_bytes()
        self.refused(["resume", self.directory, "-j", "2"], ".journal", "newer wflow")
        self.assertEqual({journal: journal.read_bytes() for journal in journals}, before)
        doctor = self.wflow("doctor", self.directory, code=4).out
        self.assertIn("newer wflow", doctor)

    def test_packed_output(self):
        replace_bytes(self.one("refine/packed/*.index"), b"WFLOWIX2", b"WFLOWIX3")
        self.refused(["logs", self.directory, "refine/4"], ".index", "newer wflow")
        self.assertIn("newer wflow", self.wflow("doctor", self.directory, code=4).out)

    def test_manifest(self):
        rewrite_json(self.directory / "data" / "manifest.json", "wflow_format", 99)
        self.refused(["inspect", self.directory / "data"], "manifest.json", "format 99", program="wflow-convert")
        self.refused(["predict", self.directory / "quick" / "model.pt", self.directory / "data"], "manifest.json", "format 99")
        with self.assertRaisesRegex(wflow.NewerFormat, "format 99"):
            wflow.open(self.directory / "data")

    def test_shard(self):
        path = self.one("data/train/shard-00000.h5")
        with h5py.File(path, "r+") as shard:
            shard.attrs.modify("wflow_format", 99)
        self.refused(["shards", "sample", self.directory / "data", "0"], path.name, "format 99")
        with self.assertRaisesRegex(wflow.NewerFormat, "format 99"):
            wflow.open(self.directory / "data").train[0]

    def test_checkpoint(self):
        newest = max(self.directory.glob("long/checkpoints/step-*.wfck"))
        data = bytearray(newest.read_bytes())
        data[8] = 3
        newest.write_bytes(data)
        config = (self.directory / "long" / "train.yaml").read_text()
        made_at = re.search(r'output: "?(.*?)/long"?$', config, flags=re.M)[1]
        study = self.study(config.replace(made_at, str(self.directory)), "train.yaml")
        said = self.wflow(study, code=VERSION, program="wflow-train").err.strip().split("\n")
        self.assertRegex(said[-1], f"^wflow-train: checkpoint .*{newest.name} has format 3, .*; use a newer one$")
        self.assertEqual([line for line in said[:-1] if "warning:" not in line], [])
        self.assertEqual(newest.read_bytes(), data)


if __name__ == "__main__":
    unittest.main()
