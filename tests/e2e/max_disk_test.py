# SPDX-License-Identifier: Apache-2.0
"""Simulations whose files a conversion deletes: never before their shard is safe, never more on the disk than max_disk and
a block, and made again where something needs them again."""

import json
import os
import shutil
import signal
import struct
import subprocess
import unittest
from collections import Counter
from pathlib import Path

import h5py
import numpy

from wflow_test import BIN, OK, SMALL, TASKS_FAILED, CampaignTest, Gate, lines_of

BLOCK = 4
KIB = 1024
VALUES = 16 * KIB  # of a sample: 64 KiB and a header
HEADER = 128
RAW = 4 * VALUES + HEADER

# Writes the sample, then notes how many bytes all simulations have on the disk at that moment: the highest of these notes
# is the most that there ever was, but for files that were written and deleted in between.
SIMULATOR = f"""
import os, struct, sys
number, folder, fail = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if os.path.exists(f"{{fail}}/{{number}}"):
    sys.exit(1)
header = "{{'descr': '<f4', 'fortran_order': False, 'shape': ({VALUES},), }}"
header += " " * (117 - len(header)) + "\\n"
with open("field.npy", "wb") as file:
    file.write(b"\\x93NUMPY\\x01\\x00" + struct.pack("<H", len(header)) + header.encode())
    file.write(struct.pack("<f", number) * {VALUES})
used = 0
for place, _, names in os.walk(f"{{os.environ['WFLOW_CAMPAIGN']}}/simulate"):
    for name in names:
        try:
            used += os.stat(f"{{place}}/{{name}}").st_size if name == "field.npy" else 0
        except FileNotFoundError:
            pass
with open(f"{{folder}}/used", "a") as file:
    file.write(f"{{used}}\\n")
with open(f"{{folder}}/ran", "a") as file:
    file.write(f"{{number}}\\n")
"""


class DiskTest(CampaignTest):
    samples = 80

    def setUp(self):
        super().setUp()
        (self.folder / "simulator.py").write_text(SIMULATOR)
        (self.folder / "fail").mkdir()

    def text(self, max_disk="600 KiB", gate=None, targets="[x]", more="", convert="", retries=""):
        before = f"{gate.command()}\n        " if gate else ""
        limit = f"max_disk: {max_disk}\n" if max_disk else ""
        return f"""
description: {{name: disk, description: files that are deleted}}
env: {{variables: {{OUTPUT_PATH: .}}}}
{limit}samples: {{design: uniform, count: {self.samples}, parameters: {{x: [0, 1], y: [0, 1]}}}}
study:
  - name: simulate
    run:
      cmd: |
        {before}exec /usr/bin/python3 -S {self.folder}/simulator.py $(MERLIN_SAMPLE_ID) {self.folder} {self.folder}/fail
  - name: data
    convert: {{from: simulate, file: field.npy, targets: {targets}, shard_samples: {BLOCK}, delete_inputs: true{convert}}}
{more}"""

    def raw(self):
        return sorted(self.campaign().glob("simulate/**/field.npy"))

    def ran(self):
        """The executions since the last call."""
        counts = Counter(int(n) for n in lines_of(self.folder / "ran"))
        (self.folder / "ran").write_text("")
        return counts

    def most_used(self):
        return max(int(n) for n in lines_of(self.folder / "used"))

    def in_shards(self):
        """Samples by number; their values are right."""
        manifest = json.loads((self.campaign() / "data/manifest.json").read_text())
        found = Counter()
        for entry in manifest["splits"].values():
            for shard in entry["shards"]:
                with h5py.File(self.campaign() / "data" / shard["file"]) as file:
                    for row, sample in enumerate(file["id"][:]):
                        self.assertTrue(numpy.all(file["x"][row] == sample), sample)
                        found[int(sample)] += 1
        return found

    def assert_whole(self, missing=()):
        self.assertEqual(self.in_shards(), Counter(set(range(self.samples)) - set(missing)))
        self.assertEqual(self.raw(), [])
        verify = subprocess.run([f"{BIN}/wflow-convert", "verify", self.campaign() / "data"], capture_output=True, text=True, check=False)
        self.assertEqual(verify.returncode, 0, verify.stdout + verify.stderr)


class MaxDisk(DiskTest):
    def test_far_more_than_the_disk(self):
        self.samples = 40 if SMALL else 160
        self.wflow("run", self.study(self.text(max_disk=f"{2 * BLOCK * RAW}")), "-j", "3", code=OK)
        self.assert_whole()
        self.assertEqual(self.ran(), Counter(range(self.samples)))
        self.assertLessEqual(self.most_used(), 3 * BLOCK * RAW)
        self.assertEqual(self.status()["state"], "finished")

    def test_less_than_a_block(self):
        done = self.wflow("run", self.study(self.text(max_disk="100 KiB")), "-j", "3", code=OK)
        self.assert_whole()
        self.assertLessEqual(self.most_used(), BLOCK * RAW)
        notes = [text for text in self.history("note") if "max_disk" in text]
        self.assertEqual(len(notes), 1, done.out + done.err)
        self.assertRegex(notes[0], r"max_disk is 100.0 KiB, and what must be on the disk at the same time takes about 256.5 KiB")

    def test_held_back_until_there_is_room(self):
        gate = Gate(self.folder, BLOCK - 1)
        run = self.start("run", self.study(self.text(max_disk=f"{BLOCK * RAW}", gate=gate)), "-j", "3")
        self.wait_for_campaign(run)
        self.wait_for_done("simulate", BLOCK - 1, run)
        held = "disk 256.5 KiB of 256.5 KiB, conversion catches up"
        self.wait(lambda: self.status()["steps"][0]["held"] == held, "the simulations are held back", run)
        self.assertEqual(sorted(gate.began()), list(range(BLOCK)), "no sample of the next block")
        self.assertIn(f"simulate is held back: {held}", self.wflow("status").out)
        gate.open()
        self.assertEqual(run.wait(), OK)
        self.assert_whole()
        self.assertLessEqual(self.most_used(), BLOCK * RAW)

    def test_everything_is_killed(self):
        gate = Gate(self.folder, 10)
        run = self.start("run", self.study(self.text(max_disk=f"{2 * BLOCK * RAW}", gate=gate)), "-j", "3")
        self.wait_for_campaign(run)
        self.wait_for_done("simulate", 10, run)
        everything = self.kill_everything()
        run.wait()
        self.wait_until_gone(everything)
        gate.open()
        self.wflow("resume", "-j", "3", code=OK)
        self.assert_whole()
        self.assertLessEqual(self.most_used(), 3 * BLOCK * RAW)
        self.assertTrue(all(times == 1 for times in self.ran().values()))

    def test_conversions_that_fail(self):
        """Nothing waits for ever: the campaign ends, and says why."""
        text = self.text(max_disk=f"{BLOCK * RAW}", convert=", on_missing: fail")
        self.wflow("run", self.study(text.replace("field.npy, targets", "absent.npy, targets")), "-j", "3", code=TASKS_FAILED)
        self.assertEqual(self.counts("data")["done"], 0)

    def test_what_is_refused(self):
        analyse = "  - name: analyse\n    run: {cmd: look $(x), depends: [simulate]}\n"
        report = "  - name: report\n    run: {cmd: 'ls $(simulate.workspace)', depends: [data]}\n"
        second = "  - name: second\n    convert: {from: simulate, file: field.npy, targets: [y]}\n"
        for more, message in ((analyse, r"'data' would delete files of 'simulate' which the step 'analyse' may still read"),
                              (second, r"'data' would delete files of 'simulate' which the step 'second' may still read"),
                              (report, None)):
            study = self.study(self.text(more=more))
            done = self.wflow("validate", study, code=3 if message else OK)
            if message:
                self.assertRegex(done.err, message)
        study = self.study(self.text().replace(", delete_inputs: true", ""))
        self.assertRegex(self.wflow("validate", study, code=3).err, r"'max_disk' needs a convert: step with 'delete_inputs: true'")
        study = self.study(self.text(convert=", split: {train: 0.5, validation: 0.1, test: 0.1}"))
        self.assertRegex(self.wflow("validate", study, code=3).err, r"every sample must belong to a part of the split")
        study = self.study(self.text(max_disk="much"))
        self.assertRegex(self.wflow("validate", study, code=3).err, r"max_disk")


class MadeAgain(DiskTest):
    samples = 12

    def test_other_targets(self):
        self.wflow("run", self.study(self.text(max_disk="")), "-j", "3", code=OK)
        self.assert_whole()
        self.ran()
        self.study(self.text(max_disk="", targets="[x, y]"))
        self.assertRegex(self.wflow("diff").out, rf"(?m)^simulate: raw outputs were deleted: {self.samples} simulations run again$")
        self.wflow("resume", "--update", "-j", "3", "-q", code=OK)
        self.assertEqual(self.ran(), Counter(range(self.samples)))
        self.assert_whole()

    def test_half_of_it_is_not_converted_yet(self):
        gate = Gate(self.folder, BLOCK)
        run = self.start("run", self.study(self.text(max_disk=f"{BLOCK * RAW}", gate=gate)), "-j", "2")
        self.wait_for_campaign(run)
        self.wait_for_done("data", 1, run)
        self.wait(lambda: gate.waiting() == 2, "two simulations wait", run)
        self.kill_everything()
        run.wait()
        gate.open()
        self.ran()
        self.study(self.text(max_disk=f"{BLOCK * RAW}", gate=gate, targets="[x, y]"))
        self.assertRegex(self.wflow("diff").out, rf"(?m)^simulate: raw outputs were deleted: {BLOCK} simulations run again$")
        self.wflow("resume", "--update", "-j", "2", "-q", code=OK)
        self.assertEqual(self.ran(), Counter(range(self.samples)))
        self.assert_whole()

    def test_redo_of_one(self):
        self.wflow("run", self.study(self.text(max_disk=f"{BLOCK * RAW}")), "-j", "3", code=OK)
        self.ran()
        self.wflow("redo", "simulate/5", "-j", "3", "-q", "--yes", code=OK)
        self.assertEqual(self.ran(), Counter(range(BLOCK, 2 * BLOCK)))
        self.assert_whole()

    def test_retry_of_one_that_failed(self):
        (self.folder / "fail" / "6").touch()
        self.wflow("run", self.study(self.text(max_disk=f"{BLOCK * RAW}")), "-j", "3", code=TASKS_FAILED)
        self.assert_whole(missing=[6])
        self.ran()
        (self.folder / "fail" / "6").unlink()
        self.wflow("retry", "-j", "3", "-q", code=OK)
        self.assertEqual(self.ran(), Counter(range(BLOCK, 2 * BLOCK)))
        self.assertTrue(any("raw outputs were deleted: 3 simulations run again" in text for text in self.history("retry")),
                        self.history("retry"))
        self.assert_whole()


@unittest.skipIf(SMALL, "a sanitizer's library must come first")
class KilledWhileDeleting(DiskTest):
    """wflow-convert, before and after each write, sync, rename and removal."""

    samples = 6

    def make(self, folder):
        folder.mkdir()
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({VALUES},), }}"
        header += " " * (117 - len(header)) + "\n"
        for sample in range(self.samples):
            with open(folder / f"{sample}.npy", "wb") as file:
                file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
                file.write(struct.pack("<f", sample) * VALUES)
        rows = "".join(f"{n},{n}.npy,{n}\n" for n in range(self.samples))
        (folder / "samples.csv").write_text("id,file,x\n" + rows)
        (folder / "convert.yaml").write_text(
            f"samples: samples.csv\noutput: data\nshard_samples: {BLOCK}\ndelete_inputs: true\nsplit: {{train: 0.5, validation: 0.5}}\n")

    def convert(self, folder, point=0, when="before"):
        count = folder.parent / f"{folder.name}.count"
        environment = self.environment | {"FAULT_PROGRAM": "wflow-convert", "FAULT_COUNT": str(count), "FAULT_FOLDER": str(folder),
                                          "FAULT_AT": str(point), "FAULT_WHEN": when, "LD_PRELOAD": str(self.folder / "fault_points.so")}
        done = subprocess.run([f"{BIN}/wflow-convert", "convert.yaml", "--threads", "1"], cwd=folder, env=environment, capture_output=True,
                              text=True, check=False)
        return done, struct.unpack("q", count.read_bytes())[0]

    @staticmethod
    def kept(folder):
        """Samples in shards that a block's record names, with their values."""
        found = set()
        for record in (folder / "data" / "blocks").glob("?????.json"):
            for shard in json.loads(record.read_text())["shards"]:
                with h5py.File(folder / "data" / shard["file"]) as file:
                    found |= {int(n) for row, n in enumerate(file["id"][:]) if numpy.all(file["x"][row] == n)}
        return found

    def test_every_write(self):
        source = Path(__file__).with_name("fault_points.c")
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", self.folder / "fault_points.so", source, "-ldl"],
                       check=True)
        folder = self.folder / "whole"
        self.make(folder)
        done, number = self.convert(folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(number, 2 * self.samples)
        points = int(os.environ.get("WFLOW_FAULT_POINTS", "30"))
        step = max(1, number // points) if points > 0 else 1
        killed = deleted = 0
        # The last ones are those that delete, among them the end of the second block.
        for point in sorted({*range(1, number + 1, step), *range(max(1, number - 15), number + 1)}):
            for when in ("before", "after"):
                with self.subTest(point=point, when=when):
                    folder = self.folder / f"round-{point}-{when}"
                    self.make(folder)
                    done, _ = self.convert(folder, point, when)
                    killed += done.returncode == -signal.SIGKILL
                    there = {n for n in range(self.samples) if (folder / f"{n}.npy").exists()}
                    deleted += len(there) < self.samples
                    self.assertEqual(there | self.kept(folder), set(range(self.samples)), "a file is gone, and its sample is in no shard")
                    again, _ = self.convert(folder)
                    self.assertEqual(again.returncode, 0, again.stderr)
                    self.assertEqual(list(folder.glob("*.npy")), [])
                    self.assertEqual(self.kept(folder), set(range(self.samples)))
                    shutil.rmtree(folder)
        print(f"{number} points, {killed} kills, {deleted} with some files deleted", flush=True)
        self.assertGreater(killed, 0)
        self.assertGreater(deleted, 0)


if __name__ == "__main__":
    unittest.main()
