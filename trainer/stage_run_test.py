#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole runs of wflow-train with `stage:`: the same bits, each byte read once at the start, nothing left behind."""

import argparse
import collections
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
import unittest.mock

import h5py

import train_run_test

MEMORY_AND_FILES = ("memory", "local")


class StageRun(train_run_test.TrainRun):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.scratch = cls.root / "scratch"
        cls.scratch.mkdir()
        cls.shards = sorted(p for p in (cls.root / "shards").rglob("*.h5"))

    def reads(self, config, ranks, env):
        """Returns the bytes that all processes of a job have read of each file of the data set; None in a sanitized build, where they can't be counted."""
        if not train_run_test.PROGRAMS.counter:
            return None, self.train(config, ranks, env=env)
        log = self.root / "reads.log"
        log.unlink(missing_ok=True)
        done = self.train(config, ranks, env={**env, "LD_PRELOAD": train_run_test.PROGRAMS.counter,
                                              "READ_COUNTER_FOLDER": str(self.root / "shards"), "READ_COUNTER_LOG": str(log)})
        bytes_of = collections.Counter()
        for line in log.read_text().splitlines():
            path, count = line.rsplit(" ", 1)
            bytes_of[pathlib.Path(path)] += int(count)
        return bytes_of, done


class Staging(StageRun):
    def staged(self, name, where, **keys):
        stage = {"local": str(self.scratch)} if where == "local" else where
        return self.config(name, stage=stage, cache=0, epochs=2, batch=8, **keys)

    def test_same_bits_and_each_byte_read_once(self):
        sizes = {path: path.stat().st_size for path in self.shards}
        self.assertEqual(len(sizes), 9)
        for ranks, nodes in ((1, 1), (2, 1), (2, 2), (3, 2), (4, 2), (4, 4)):
            env = {"WFLOW_RANKS_PER_GROUP": str(-(-ranks // nodes))}
            plain = f"plain{ranks}"
            if not (self.root / plain).exists():
                found, _ = self.reads(self.config(plain, cache=0, epochs=2, batch=8), ranks, env)
                if found is not None:
                    self.assertGreater(found[self.shards[0]], sizes[self.shards[0]])  # checks that the counter works
            for where in MEMORY_AND_FILES:
                with self.subTest(where, ranks=ranks, nodes=nodes):
                    name = f"{where}{ranks}on{nodes}"
                    found, done = self.reads(self.staged(name, where), ranks, env)
                    if found is not None:
                        self.assertEqual({path: found[path] for path in self.shards}, sizes)
                    self.assertEqual(self.weights(name)[0], self.weights(plain)[0])
                    self.assertEqual(self.result(name)["test"], self.result(plain)["test"])
                    staging = self.result(name)["staging"]
                    self.assertEqual(staging["bytes"], sum(sizes.values()))
                    self.assertEqual(staging["nodes"], nodes)
                    self.assertEqual(staging["fetched_bytes"] > 0, nodes > 1)
                    self.assertIn("staged 9 shards", done.stdout)
                    self.assertEqual(list(self.scratch.iterdir()), [])

    def test_killed_in_the_middle(self):
        """Kills all processes of a training: nothing stays on the scratch disk, and the next start ends with the same bits."""
        keys = {"checkpoint": {"every_steps": 2}}
        env = {**os.environ, "WFLOW_RANKS_PER_GROUP": "1"}
        for where in MEMORY_AND_FILES:
            whole = self.staged(f"{where}whole", where, **keys)
            self.train(whole, 2, env=env)
            path = self.staged(f"{where}killed", where, **keys)
            self.kill_after_step(path, 2, 2, env=env)
            self.assertEqual(list(self.scratch.iterdir()), [])
            self.assertRegex(self.train(path, 2, env=env).stdout, r"continued from epoch \d+, step \d+")
            self.assertEqual(self.weights(f"{where}killed")[0], self.weights(f"{where}whole")[0])

    def test_every_way_of_storing(self):
        """Compressed and uncompressed. Samples of less than 4 KiB share a chunk, as in the other tests of this file."""
        for compression in ("gzip", "none"):
            root = self.root / compression
            root.mkdir()
            with unittest.mock.patch.object(train_run_test, "CELLS", 16):
                train_run_test.make_data(root, f"compression: {compression}\n")
            keys = {"data": str(root / "shards"), "cache": 0, "epochs": 1, "batch": 8}
            for augment in (None, ["flip"]):  # reads directly into the batch, and not
                name = f"{compression}{len(augment or [])}"
                self.train(self.config(f"{name}-memory", augment=augment, stage="memory", transform=None, **keys), 2,
                           env={"WFLOW_RANKS_PER_GROUP": "1"})
                self.train(self.config(f"{name}-none", augment=augment, transform=None, **keys), 2)
                self.assertEqual(self.weights(f"{name}-memory")[0], self.weights(f"{name}-none")[0])
                self.assertGreater(self.result(f"{name}-memory")["staging"]["fetched_bytes"], 0)

    def test_no_room(self):
        """The error comes before anything is read."""
        small = self.root / "small"
        small.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], capture_output=True).returncode != 0:
            self.skipTest("no right to mount")
        try:
            done = self.train(self.config("small", stage={"local": str(small)}), 2, code=5)
            self.assertRegex(done.stderr, r"stage: local: \S+ would hold \S+ KiB of shards, and .*/small has \S+ KiB free; "
                                          r"use more nodes, another folder")
            self.assertEqual(done.stderr.count("wflow-train: stage:"), 1)
        finally:
            subprocess.run(["umount", small], check=True)

    def test_wrong_places_and_words(self):
        done = self.train(self.config("nowhere", stage={"local": str(self.root / "nowhere-at-all")}), 2, code=5)
        self.assertIn("stage: local: cannot use", done.stderr)
        done = self.train(self.config("word", stage="memry"), code=3)
        self.assertIn("did you mean 'memory'", done.stderr)

    def test_shard_that_only_hdf5_can_read(self):
        shards = self.root / "rewritten"
        shutil.copytree(self.root / "shards", shards)
        shard = next((shards / "train").glob("*.h5"))
        with h5py.File(shard, "r+") as file:
            x = file["x"][:]
            attributes = dict(file["x"].attrs)
            del file["x"]
            file.create_dataset("x", data=x, chunks=(2, 1, 8, 8, 8), compression="gzip").attrs.update(attributes)
        self.train(self.config("rewritten-none", data=str(shards), epochs=1))
        done = self.train(self.config("rewritten-memory", data=str(shards), epochs=1, stage="memory"), 2, code=4)
        self.assertIn(f"{shard} was rewritten by another tool", done.stderr)

    def test_damaged_sample_of_another_node(self):
        shards = self.root / "damaged"
        shutil.copytree(self.root / "shards", shards)
        for shard in (shards / "train").glob("*.h5"):
            with h5py.File(shard) as file:
                offset = int(file["wflow/index/x"][0][0])
            data = bytearray(shard.read_bytes())
            data[offset + 20] ^= 0xff
            shard.write_bytes(data)
        done = self.train(self.config("damage", data=str(shards), stage="memory", cache=0), 2, code=4,
                          env={"WFLOW_RANKS_PER_GROUP": "1"})
        self.assertRegex(done.stderr, r"x of samples \d+ to \d+ of .*/damaged/train/shard-0000\d.h5 is damaged")


class Subsets(StageRun):
    """`stage: {subset: N}`: each rank draws samples and keeps them."""

    def drawn(self, name, size=10, folder=False, **keys):
        stage = {"subset": size, **({"local": str(self.scratch)} if folder else {})}
        return self.config(name, **{"stage": stage, "batch": 8, "ranks": 2, "epochs": 3, "cache": 0, **keys})

    def test_same_bits_in_files_and_on_fewer_ranks(self):
        done = self.train(self.drawn("memory"), 2)
        self.assertRegex(done.stdout, r"each of 2 ranks trains on 10 draws from \d+ samples \(seed 1\): \d+ distinct ones in all")
        self.train(self.drawn("file", folder=True), 2)
        self.assertEqual(list(self.scratch.iterdir()), [])
        self.assertEqual(self.weights("file")[0], self.weights("memory")[0])
        self.train(self.drawn("other_seed", seed=2), 2)
        self.assertNotEqual(self.weights("other_seed")[0], self.weights("memory")[0])
        result = self.result("memory")
        self.assertEqual(result["steps"], 3 * 3)  # 2 ranks of 10 samples in batches of 8
        staging = result["staging"]
        self.assertEqual((staging["subset"], staging["subsets"], staging["seed"]), (10, 2, 1))
        self.assertLessEqual(staging["distinct_on_a_rank"][1], 10)
        self.assertLessEqual(staging["distinct"], sum(staging["distinct_on_a_rank"]))
        # One rank keeps both subsets: the same samples in each step, summed in another order.
        self.train(self.drawn("one"), 1, "--allow-any-ranks")
        self.assertEqual(self.result("one")["staging"]["distinct"], staging["distinct"])
        self.assertAlmostEqual(self.result("one")["train_loss"], result["train_loss"], delta=1e-4 * result["train_loss"])

    def test_reads_nothing_of_the_training_samples_after_the_start(self):
        train = [path for path in self.shards if path.parent.name == "train"]
        totals = []
        for epochs in (1, 6):
            found, _ = self.reads(self.drawn(f"epochs{epochs}", epochs=epochs, checkpoint={"every_epochs": 0}), 2, {})
            if found is None:
                self.skipTest("reads can't be counted in a sanitized build")
            totals.append(sum(found[path] for path in train))
        self.assertGreater(totals[0], 0)
        self.assertEqual(*totals)

    def test_a_sample_is_read_once_in_the_whole_job(self):
        """Four ranks draw nearly every sample each: together they read little more than the shards have."""
        root = self.root / "large"
        root.mkdir()
        with unittest.mock.patch.object(train_run_test, "CELLS", 16):  # chunks of one sample
            train_run_test.make_data(root, "compression: none\n")
        read = {}
        for ranks in (1, 4):
            keys = {"data": str(root / "shards"), "epochs": 1, "ranks": ranks, "transform": None}
            self.train(self.drawn(f"once{ranks}", 150, **keys), ranks)
            result = self.result(f"once{ranks}")
            self.assertGreater(result["staging"]["distinct_on_a_rank"][0], 25)
            read[ranks] = sum(result["reading"]["bytes_this_segment"])
        self.assertLess(read[4], 1.2 * read[1])

    def test_killed_in_the_middle(self):
        whole = self.drawn("whole", epochs=8, checkpoint={"every_steps": 2})
        self.train(whole, 2)
        killed = self.drawn("killed", epochs=8, checkpoint={"every_steps": 2})
        self.kill_after_step(killed, 4, 2)
        self.assertRegex(self.train(killed, 2).stdout, r"continued from epoch \d+, step \d+")
        self.assertEqual(self.weights("killed")[0], self.weights("whole")[0])

    def test_labels_alone(self):
        keys = {"inputs": ["amplitude"], "targets": ["slope"], "model": "mlp", "transform": None, "augment": None}
        self.train(self.drawn("labels", **keys), 2)
        self.assertEqual(self.result("labels")["staging"]["bytes"], 0)

    def test_another_draw_is_another_training(self):
        self.train(self.drawn("size", epochs=1), 2)
        done = self.train(self.drawn("size", 12, epochs=1), 2, code=4)
        self.assertIn("'stage.subset' was 10 and is 12", done.stderr)
        # Without `ranks` in the file, there are as many subsets as ranks.
        self.train(self.drawn("by_hand", epochs=1, ranks=None), 2)
        done = self.train(self.drawn("by_hand", epochs=1, ranks=None), 1, code=4)
        self.assertIn("'ranks' was 2 and is 1", done.stderr)

    def test_refused(self):
        done = self.train(self.drawn("uneven", ranks=None, batch=7), 2, code=3)
        self.assertIn("needs a 'batch' that is a multiple of 'ranks'", done.stderr)
        done = self.train(self.drawn("too_many"), 4, code=3)
        self.assertIn("draws samples for 2 ranks ('ranks'), and there are 4", done.stderr)
        done = self.train(self.drawn("huge", 2000000000, epochs=1), 1, "--allow-any-ranks", "--dry-run")
        self.assertIn("subset          2000000000 draws on each of 2 ranks", done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--train", "--convert", "--mpirun"):
        parser.add_argument(option, required=True)
    parser.add_argument("--counter", help="the library that counts what is read; not in a sanitized build")
    train_run_test.PROGRAMS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
