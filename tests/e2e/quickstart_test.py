# SPDX-License-Identifier: Apache-2.0
"""The quickstart campaign at reduced size: from one command to a model that Python loads."""

import csv
import json
import re
import unittest

import h5py
import numpy
import torch

from wflow_test import DATA, OK, SMALL, CampaignTest, quickstart, xxh3_128

UNIVERSES = 12 if SMALL else 30


class Quickstart(CampaignTest):
    def setUp(self):
        super().setUp()
        self.run_ = self.wflow("run", self.study(quickstart(UNIVERSES, epochs=2)), "-j", "2")
        self.directory = self.campaign()

    def test_campaign(self):
        self.check_output()
        self.check_status()
        universes = self.read_universes()
        manifest = json.loads((self.directory / "data" / "manifest.json").read_text())
        self.check_manifest(manifest)
        self.check_shards(manifest, universes)
        self.check_model(universes)
        self.check_nothing_runs_again()
        self.check_doctor()
        self.assert_nothing_half_written()

    def check_output(self):
        out = self.run_.out
        self.assertEqual(self.run_.err, "")
        self.assertNotIn("\x1b", out)
        self.assertIn("finished in", out)
        self.assertIn(str(self.directory / "train" / "model.pt"), out)
        self.assertRegex(out, r"epoch 2: .*train_loss")

    def check_status(self):
        status = self.status()
        self.assertEqual(status["state"], "finished")
        self.assertEqual(status["coordinator"], "")
        self.assertEqual(status["failures"], [])
        by_name = {step["name"]: step for step in status["steps"]}
        self.assertEqual(list(by_name), ["simulate", "data", "data.manifest", "train"])
        for step in by_name.values():
            self.assertEqual(step["counts"]["done"], step["elements"])
            self.assertEqual(sum(step["counts"].values()), step["elements"])
        self.assertEqual(by_name["simulate"]["elements"], UNIVERSES)
        self.assertEqual([m["epoch"] for m in status["metrics"] if m["name"] == "train_loss"], [1, 2])
        self.assertEqual({a["kind"] for a in status["artifacts"]}, {"manifest", "model", "predictions"})
        # So few universes under sanitizers that the trainer says how little its errors mean.
        notes = ["note"] if SMALL else []
        self.assertEqual([row["kind"] for row in status["history"]], ["started", "worker", *notes, "end"])

    def check_doctor(self):
        said = self.wflow("doctor", self.directory).out
        self.assertRegex(said, r"nothing is wrong; \d+ files that have checksums are as they were written")
        for name in ("data/train/shard-00000.h5", "train/model.pt", "train/result.json"):
            path = self.directory / name
            whole = path.read_bytes()
            path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
            said = self.wflow("doctor", self.directory, code=DATA).out
            self.assertIn(name, said)
            self.assertIn("wflow redo", said)
            path.write_bytes(whole)
        self.assertIn("nothing is wrong", self.wflow("doctor", self.directory).out)

    def read_universes(self):
        universes = {}
        for script in (self.directory / "simulate").rglob("simulate.sh"):
            words = re.search(r"--omega-m (\S+) --sigma8 (\S+) .*--index (\d+)", script.read_text())
            with h5py.File(script.parent / "universe.h5") as file:
                universes[int(words[3])] = (file["density"][...], [float(words[1]), float(words[2])])
            said = (script.parent / "simulate.out").read_text()
            self.assertEqual(len(re.findall(r"^universe ", said, flags=re.M)), 1, said)
        self.assertEqual(sorted(universes), list(range(UNIVERSES)))
        return universes

    def check_manifest(self, manifest):
        self.assertEqual(manifest["missing"], [])
        self.assertEqual(sum(split["samples"] for split in manifest["splits"].values()), UNIVERSES)
        for split in manifest["splits"].values():
            self.assertEqual(sum(shard["samples"] for shard in split["shards"]), split["samples"])
            for shard in split["shards"]:
                content = (self.directory / "data" / shard["file"]).read_bytes()
                self.assertEqual(len(content), shard["bytes"])
                self.assertEqual(xxh3_128(content), shard["xxh3_128"])

    def check_shards(self, manifest, universes):
        seen = []
        training = []
        for name, split in manifest["splits"].items():
            for shard in split["shards"]:
                with h5py.File(self.directory / "data" / shard["file"]) as file:
                    self.assertEqual(file.attrs["split"], name)
                    self.assertEqual(file["x"].chunks[0], 1)
                    self.assertEqual(list(file["missing"][...]), [])
                    self.assertEqual([n.decode() if isinstance(n, bytes) else n for n in file["y"].attrs["names"]],
                                     ["omega_m", "sigma_8"])
                    for row, sample in enumerate(file["id"][...]):
                        cube, parameters = universes[int(sample)]
                        numpy.testing.assert_array_equal(file["x"][row], cube)
                        numpy.testing.assert_allclose(file["y"][row], parameters, rtol=1e-12)
                        seen.append(int(sample))
                        if name == "train":
                            training.append(cube.astype(numpy.float64))
        self.assertEqual(sorted(seen), list(range(UNIVERSES)))
        statistics = manifest["statistics"]["x"]
        values = numpy.stack(training)
        numpy.testing.assert_allclose([c["mean"] for c in statistics], values.mean(axis=(0, 2, 3, 4)), rtol=1e-6)
        numpy.testing.assert_allclose([c["std"] for c in statistics], values.std(axis=(0, 2, 3, 4)), rtol=1e-6)
        self.wflow("convert", "verify", self.directory / "data")

    def check_model(self, universes):
        with open(self.directory / "train" / "predictions.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertGreater(len(rows), 0)
        model = torch.jit.load(str(self.directory / "train" / "model.pt"))
        model.eval()
        cubes = numpy.stack([universes[int(row["id"])][0] for row in rows]).astype(numpy.float32)
        with torch.no_grad():
            outputs = model(torch.from_numpy(cubes)).numpy()
        told = [[float(row["omega_m_predicted"]), float(row["sigma_8_predicted"])] for row in rows]
        numpy.testing.assert_allclose(outputs, told, rtol=2e-4, atol=2e-5)
        for row in rows:
            numpy.testing.assert_allclose([float(row["omega_m"]), float(row["sigma_8"])], universes[int(row["id"])][1], rtol=1e-9)

    def check_nothing_runs_again(self):
        def picture():
            return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in self.directory.rglob("*")
                    if p.is_file() and ".wflow" not in p.relative_to(self.directory).parts[:1]}

        before = picture()
        again = self.wflow("resume", self.directory, code=OK)
        self.assertIn("finished", again.out)
        self.assertEqual(picture(), before)
        self.assertEqual(self.status()["state"], "finished")


if __name__ == "__main__":
    unittest.main()
