#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Fields of a sample from any of its files or parameters: the traps that new users met, and every role.

Usage: convert_fields_test.py PATH_OF_WFLOW_CONVERT [unittest options]
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py
import numpy as np

PROGRAM = ""


class Fields(unittest.TestCase):
    COUNT = 12

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="wflow-fields-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def samples(self, write, parameters=("a", "b")):
        """A folder a sample, which write(folder, i) fills, and the table."""
        rows = [",".join(["directory", *parameters])]
        for i in range(self.COUNT):
            folder = self.folder / f"s{i}"
            folder.mkdir()
            write(folder, i)
            rows.append(",".join([f"s{i}", *(repr(self.parameter(i, k)) for k in range(len(parameters)))]))
        (self.folder / "t.csv").write_text("\n".join(rows) + "\n")

    @staticmethod
    def parameter(i, k):
        return 0.5 + i / 7 + 10 * k

    def run_program(self, *arguments):
        return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "WFLOW_EVENTS": str(self.folder / "events")})

    def convert(self, code=0, **keys):
        config = {"samples": "t.csv", "output": "data", "split": {"train": 1.0}, **keys}
        path = self.folder / "convert.yaml"
        path.write_text(json.dumps({"convert": config}))
        done = self.run_program(path)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def data(self):
        """All samples of the training split, field by field."""
        manifest = json.loads((self.folder / "data/manifest.json").read_text())
        self.fields = {field["name"]: field for field in manifest["fields"]}
        self.statistics = manifest["statistics"]
        found = {}
        for shard in manifest["splits"]["train"]["shards"]:
            path = self.folder / "data" / shard["file"]
            with h5py.File(path) as file:
                for name in [*self.fields, "id"]:
                    found.setdefault(name, []).append(file[name][...])
            subprocess.run(["h5dump", "-H", str(path)], check=True, capture_output=True)
        verified = self.run_program("verify", self.folder / "data")
        self.assertEqual(verified.returncode, 0, verified.stdout)
        return {name: np.concatenate(parts) for name, parts in found.items()}

    def form(self, name):
        field = self.fields[name]
        return field["role"], tuple(field["shape"]), field["layout"], field["layout_from"]

    # The traps of issue 13

    def test_a_series(self):
        self.samples(lambda folder, i: np.save(folder / "u.npy", np.arange(256, dtype="f4") + i))
        out = self.convert(inputs={"u": {"file": "u.npy"}}, targets=["a", "b"])
        self.assertIn("axes T (assumed from their number; 'layout' says otherwise)", out)
        data = self.data()
        self.assertEqual(self.form("u"), ("input", (256,), "T", "rank"))
        self.assertEqual(data["u"].shape, (self.COUNT, 256))
        np.testing.assert_array_equal(data["u"][3], np.arange(256) + 3)
        np.testing.assert_array_equal(data["y"][3], [self.parameter(3, 0), self.parameter(3, 1)])

    def test_an_image_of_two_channels_is_what_layout_says(self):
        image = lambda i: np.arange(2 * 8 * 8, dtype="f4").reshape(2, 8, 8) + i
        self.samples(lambda folder, i: np.save(folder / "u.npy", image(i)))
        out = self.convert(inputs={"u": {"file": "u.npy"}}, targets=["a"])
        self.assertIn("(2, 8, 8) float32, axes D, H, W (assumed from their number", out)
        self.convert(inputs={"u": {"file": "u.npy", "layout": "CHW"}}, targets=["a"])
        data = self.data()
        self.assertEqual(self.form("u"), ("input", (2, 8, 8), "CHW", "layout"))
        self.assertEqual(len(self.statistics["u"]), 2)
        np.testing.assert_allclose(self.statistics["u"][1]["mean"], np.mean([image(i)[1] for i in range(self.COUNT)]))

    def test_named_channels(self):
        self.samples(lambda folder, i: np.save(folder / "u.npy", np.ones((2, 8, 8), "f4") * i))
        self.convert(inputs={"u": {"file": "u.npy", "channels": ["u", "v"]}}, targets=["a"])
        self.data()
        self.assertEqual(self.form("u")[1:3], ((2, 8, 8), "CHW"))
        self.assertEqual(self.fields["u"]["channels"], ["u", "v"])
        shutil.rmtree(self.folder / "data")
        for i in range(self.COUNT):
            np.save(self.folder / f"s{i}/u.npy", np.ones((8, 8, 2), "f4"))
        error = self.convert(4, inputs={"u": {"file": "u.npy", "channels": ["u", "v"]}}, targets=["a"])
        self.assertIn("has shape (8, 8, 2), but 2 channels are named; say which axis they are with 'layout', such as layout: HWC", error)
        self.convert(inputs={"u": {"file": "u.npy", "channels": ["u", "v"], "layout": "HWC"}}, targets=["a"])
        self.assertEqual(self.data()["u"].shape, (self.COUNT, 2, 8, 8))

    def test_scalars_float16_bool_and_complex(self):
        def write(folder, i):
            np.save(folder / "scalar.npy", np.float64(i))
            np.save(folder / "half.npy", np.arange(6, dtype="f2").reshape(2, 3) + i)
            np.save(folder / "mask.npy", np.arange(6).reshape(2, 3) % 2 == 0)
            np.save(folder / "wave.npy", np.full((2, 3), i + 2j, "c8"))
            with h5py.File(folder / "u.h5", "w") as file:
                file["scalar"] = float(i)
                file["half"] = np.full((2, 3), i, "f2")
                file["mask"] = np.array([True, False, True])
                file["wave"] = np.full((2, 3), i - 1j, "c16")
                file["wave"].attrs["time"] = 0.25 * i
                file["table"] = np.array([(1, 2.5, i), (3, 4.5, i)], [("k", "i4"), ("m", "f4"), ("i", "f8")])

        self.samples(write)
        out = self.convert(
            inputs={"half": {"file": "half.npy"}, "mask": {"file": "mask.npy"}, "wave": {"file": "wave.npy"},
                    "half5": {"file": "u.h5", "dataset": "/half"}, "mask5": {"file": "u.h5", "dataset": "mask"},
                    "wave5": {"file": "u.h5", "dataset": "wave"},
                    "table": {"file": "u.h5", "dataset": "table", "columns": ["m", "i"]},
                    "part": {"file": "u.h5", "dataset": "half", "slice": "1, ::2"}},
            targets={"scalar": {"file": "scalar.npy"}, "scalar5": {"file": "u.h5", "dataset": "scalar"},
                     "time": {"file": "u.h5", "dataset": "wave", "attribute": "time"}})
        self.assertIn("the files hold float16", out)
        self.assertIn("the files hold complex", out)
        data = self.data()
        order = data["id"]
        np.testing.assert_array_equal(data["scalar"], order)
        np.testing.assert_array_equal(data["scalar5"], order)
        np.testing.assert_array_equal(data["time"], 0.25 * order)
        np.testing.assert_array_equal(data["half"][5], np.arange(6).reshape(2, 3) + order[5])
        np.testing.assert_array_equal(data["mask"][0], [[1, 0, 1], [0, 1, 0]])
        np.testing.assert_array_equal(data["mask5"][0], [1, 0, 1])
        self.assertEqual(self.form("wave")[1:3], ((2, 2, 3), "CHW"))
        self.assertEqual(self.fields["wave"]["channels"], ["r", "i"])
        np.testing.assert_array_equal(data["wave"][4], [np.full((2, 3), order[4]), np.full((2, 3), 2)])
        np.testing.assert_array_equal(data["wave5"][4], [np.full((2, 3), order[4]), np.full((2, 3), -1)])
        np.testing.assert_array_equal(data["table"][4], [[2.5, 4.5], [order[4], order[4]]])  # C, T
        np.testing.assert_array_equal(data["part"][4], [order[4], order[4]])

    def test_csv_json_npz_and_text(self):
        def write(folder, i):
            (folder / "run.csv").write_text("t,x,v\n" + "".join(f"{k},{k + i},{-k}\n" for k in range(5)))
            (folder / "run.txt").write_text("# t x\n" + "".join(f"{k} {2 * k + i}\n" for k in range(4)))
            (folder / "run.json").write_text(json.dumps({"result": {"energy": i / 2, "list": [1, 2, i]}}))
            (folder / "flat.json").write_text(json.dumps({"flat": [i, 7]}))
            (folder / "log").write_text(f"starting\nstep 1 E = {i}\nstep 2 E = {i}.5D0\nsteps done: {i}\n")
            np.savez_compressed(folder / "run.npz", u=np.full((3, 4), i, ">i2"), v=np.arange(3))

        self.samples(write)
        self.convert(
            inputs={"path": {"file": "run.csv", "columns": ["x", "v"]}, "x": {"file": "run.txt", "columns": "x"},
                    "u": {"file": "run.npz", "dataset": "u"}},
            targets={"energy": {"file": "run.json", "json": "$.result.energy"}, "list": {"file": "run.json", "json": "/result/list"},
                     "flat": {"file": "flat.json"},
                     "last": {"file": "log", "regex": r"E = (\S+)", "match": "last"},
                     "all": {"file": "log", "regex": r"step (\d+) E = (\S+)", "match": "all"},
                     "done": {"file": "log", "regex": r"done: (\d+)"}, "end": {"file": "run.csv", "columns": "x", "slice": "-1"}})
        data = self.data()
        i = data["id"][7]
        self.assertEqual(self.form("path")[1:], ((2, 5), "CT", "format"))
        self.assertEqual(self.fields["path"]["channels"], ["x", "v"])
        np.testing.assert_array_equal(data["path"][7], [np.arange(5) + i, -np.arange(5)])
        np.testing.assert_array_equal(data["x"][7], 2 * np.arange(4) + i)
        np.testing.assert_array_equal(data["u"][7], np.full((3, 4), i))
        self.assertEqual(data["u"].dtype, np.int16)
        np.testing.assert_array_equal(data["list"][7], [1, 2, i])
        np.testing.assert_array_equal(data["flat"][7], [i, 7])
        np.testing.assert_array_equal(data["all"][7], [[1, 2], [i, i + 0.5]])
        self.assertEqual([data[k][7] for k in ("energy", "last", "done", "end")], [i / 2, i + 0.5, i, i + 4])

    def netcdf(self, path, form, i):
        import netCDF4
        with netCDF4.Dataset(path, "w", format=form) as file:
            file.createDimension("time", 1)
            file.createDimension("y", 3)
            file.createDimension("x", 4)
            packed = file.createVariable("u", "i2", ("time", "y", "x"), fill_value=-999)
            packed.scale_factor, packed.add_offset = 0.5, 100.0
            packed[:] = (np.arange(12).reshape(1, 3, 4) + i) * 0.5 + 100
            counts = file.createVariable("n", "i4", ("y", "x"), fill_value=-1)
            counts[:] = np.arange(12).reshape(3, 4)
            if i == 2:
                packed.set_auto_maskandscale(False)
                packed[0, 1, 1] = -999
            if i == 3:
                counts.set_auto_mask(False)
                counts[2, 2] = -1

    def test_netcdf_is_unpacked_and_missing_values_are_seen(self):
        def write(folder, i):
            self.netcdf(folder / "four.nc", "NETCDF4", i)
            self.netcdf(folder / "classic.nc", "NETCDF3_CLASSIC", i)

        self.samples(write)
        self.convert(inputs={"u": {"file": "four.nc", "variable": "u", "layout": "_HW"}, "n": {"file": "classic.nc", "variable": "n"}},
                     targets={"v": {"file": "classic.nc", "variable": "u", "slice": "0"}})
        data = self.data()
        self.assertEqual(list(data["id"]), [i for i in range(self.COUNT) if i not in (2, 3)])
        np.testing.assert_array_equal(data["u"][5], (np.arange(12).reshape(3, 4) + data["id"][5]) * 0.5 + 100)
        np.testing.assert_array_equal(data["v"], data["u"])
        self.assertEqual((data["u"].dtype, data["n"].dtype), (np.float64, np.int32))
        self.assertIn("scale_factor 0.5", self.fields["u"]["stored"])
        reasons = {m["sample"]: m["reason"] for m in json.loads((self.folder / "data/blocks/00000.json").read_text())["missing"]}
        self.assertIn("holds NaN or infinite values in u", reasons[2])
        self.assertIn("its value 10 is the missing value -1", reasons[3])

    # Roles

    def test_parameters_to_a_field(self):
        self.samples(lambda folder, i: np.save(folder / "t.npy", np.full((16, 16), i, "f4")))
        self.convert(inputs=["a", "b"], targets={"t": {"file": "t.npy"}})
        data = self.data()
        self.assertEqual(self.form("x"), ("input", (2,), "C", "format"))
        self.assertEqual(self.form("t"), ("target", (16, 16), "HW", "rank"))
        np.testing.assert_array_equal(data["x"][4], [self.parameter(4, 0), self.parameter(4, 1)])
        np.testing.assert_array_equal(data["t"][4], np.full((16, 16), 4))

    def test_parameters_to_numbers_of_a_log(self):
        self.samples(lambda folder, i: (folder / "log").write_text(f"period {i / 4}\n"))
        self.convert(inputs={"a": "parameter", "mass": {"parameter": "b"}}, targets={"period": {"file": "log", "regex": "period (.*)"}})
        data = self.data()
        self.assertEqual(self.form("mass"), ("input", (), "", "format"))
        np.testing.assert_array_equal(data["mass"], [self.parameter(i, 1) for i in range(self.COUNT)])
        np.testing.assert_array_equal(data["period"], np.arange(self.COUNT) / 4)

    def test_several_files_are_channels(self):
        def write(folder, i):
            for k in range(3):
                np.save(folder / f"z{k}.npy", np.full((4, 4), 10 * k + i, "f4"))

        self.samples(write)
        self.convert(inputs={"z": {"file": ["z0.npy", "z1.npy", "z2.npy"]}}, targets={"last": {"file": "z2.npy"}})
        data = self.data()
        self.assertEqual(self.form("z")[1:3], ((3, 4, 4), "CHW"))
        self.assertEqual(self.fields["z"]["channels"], ["z0.npy", "z1.npy", "z2.npy"])
        np.testing.assert_array_equal(data["z"][5][:, 0, 0], [5, 15, 25])

    def test_varying_lengths(self):
        self.samples(lambda folder, i: np.save(folder / "u.npy", np.arange(5 + i, dtype="f4")))
        error = self.convert(4, inputs={"u": {"file": "u.npy"}}, targets=["a"])
        self.assertIn("'pad: [lengths]' fills shorter samples up and adds a mask", error)
        self.convert(inputs={"u": {"file": "u.npy", "pad": [20], "pad_value": -1}}, targets=["a"])
        data = self.data()
        i = data["id"][6]
        np.testing.assert_array_equal(data["u"][6], [*range(5 + i), *[-1] * (15 - i)])
        np.testing.assert_array_equal(data["u_mask"][6], [1] * (5 + i) + [0] * (15 - i))
        self.assertEqual(self.form("u_mask")[0], "input")

    def test_images_and_transforms(self):
        from PIL import Image

        def write(folder, i):
            Image.fromarray(np.full((4, 6, 3), [i, 10, 20], np.uint8)).save(folder / "rgb.png")
            (folder / "grey.pgm").write_bytes(b"P5 6 4 255\n" + bytes(range(24)))

        self.samples(write)
        self.convert(inputs={"rgb": {"file": "rgb.png"}, "small": {"file": "grey.pgm", "transform": {"downsample": 2}},
                             "log": {"file": "grey.pgm", "transform": ["log1p", {"clip": [0, 2]}, {"scale": [10, 1]}]}},
                     targets=["a"])
        data = self.data()
        self.assertEqual(self.form("rgb")[1:], ((3, 4, 6), "CHW", "format"))
        self.assertEqual(self.fields["rgb"]["channels"], ["red", "green", "blue"])
        np.testing.assert_array_equal(data["rgb"][3][:, 1, 1], [data["id"][3], 10, 20])
        grey = np.arange(24, dtype="f4").reshape(4, 6)
        np.testing.assert_array_equal(data["small"][0], grey.reshape(2, 2, 3, 2).mean(axis=(1, 3)))
        np.testing.assert_allclose(data["log"][0], 10 * np.clip(np.log1p(grey), 0, 2) + 1, rtol=1e-6)

    def test_gadget_density(self):
        def write(folder, i):
            positions = np.random.default_rng(i).uniform(0, 8, (200, 3)).astype("f4")
            with h5py.File(folder / "snap.hdf5", "w") as file:
                header = file.create_group("Header")
                header.attrs["NumPart_ThisFile"] = np.array([0, 200, 0, 0, 0, 0], "i4")
                header.attrs["MassTable"] = np.array([0, 0.5, 0, 0, 0, 0])
                header.attrs["BoxSize"], header.attrs["NumFilesPerSnapshot"] = 8.0, 1
                file["PartType1/Coordinates"] = positions

        self.samples(write)
        self.convert(inputs={"rho": {"file": "snap.hdf5", "gadget": {"grid": 4, "types": [1]}}}, targets=["a"])
        data = self.data()
        self.assertEqual(self.form("rho")[1:], ((4, 4, 4), "DHW", "format"))
        np.testing.assert_allclose(data["rho"].sum(axis=(1, 2, 3)) * 8, 100, rtol=1e-5)  # cells of volume 8, mass 100
        # Cloud-in-cell, once more in numpy.
        positions = np.random.default_rng(int(data["id"][2])).uniform(0, 8, (200, 3)).astype("f4").astype("f8")
        expected = np.zeros((4, 4, 4))
        u = positions / 2 - 0.5
        base = np.floor(u).astype(int)
        for corner in np.ndindex(2, 2, 2):
            weight = np.prod(np.where(np.array(corner) == 1, u - base, 1 - (u - base)), axis=1)
            np.add.at(expected, tuple(((base + corner) % 4).T), 0.5 * weight)
        np.testing.assert_allclose(data["rho"][2], expected / 8, rtol=1e-5)

    # The split

    def split_of(self):
        manifest = json.loads((self.folder / "data/manifest.json").read_text())
        where = {}
        for name, split in manifest["splits"].items():
            for shard in split["shards"]:
                with h5py.File(self.folder / "data" / shard["file"]) as file:
                    where.update({int(i): name for i in file["id"]})
        return where

    def test_growing_moves_no_sample(self):
        self.samples(lambda folder, i: np.save(folder / "u.npy", np.full(4, i)))
        lines = (self.folder / "t.csv").read_text().splitlines()
        keys = dict(inputs={"u": {"file": "u.npy"}}, targets=["a"], split={"train": 0.5, "validation": 0.25}, shard_samples=4)
        (self.folder / "t.csv").write_text("\n".join(lines[:9]) + "\n")
        self.convert(**keys)
        before = self.split_of()
        old = (self.folder / "data/blocks/00000.json").read_bytes()
        (self.folder / "t.csv").write_text("\n".join(lines) + "\n")
        self.convert(**keys)
        after = self.split_of()
        self.assertEqual((len(before), len(after)), (8, 12))
        self.assertEqual({i: after[i] for i in before}, before)
        self.assertEqual((self.folder / "data/blocks/00000.json").read_bytes(), old)  # not converted again
        self.assertGreater(len(set(after.values())), 1)

    def test_groups_stay_together(self):
        self.samples(lambda folder, i: np.save(folder / "u.npy", np.full(4, i)))
        lines = (self.folder / "t.csv").read_text().splitlines()
        (self.folder / "t.csv").write_text("\n".join([lines[0] + ",seed"] + [f"{line},r{i % 4}" for i, line in enumerate(lines[1:])]) + "\n")
        self.convert(inputs={"u": {"file": "u.npy"}}, targets=["a"], split={"train": 0.5, "validation": 0.25, "group_by": "seed"})
        where = self.split_of()
        for group in range(4):
            self.assertEqual(len({where[i] for i in where if i % 4 == group}), 1)

    # Transforms, filters, storage

    def test_every_transform(self):
        field = lambda i: np.random.default_rng(i).uniform(0, 10, (8, 8)).astype("f4")
        self.samples(lambda folder, i: (np.save(folder / "u.npy", field(i)), np.save(folder / "k.npy", np.int32(i % 3))))
        u = lambda *steps, **keys: {"file": "u.npy", "transform": list(steps), **keys}
        self.convert(inputs={"crop": u({"crop": [4, 6]}), "hist": u({"histogram": [4, 0, 2, 10]}), "formula": u({"expression": "log(x + a) * b"}),
                             "cast": u(dtype="uint8"), "std": u("standardise"), "range": u({"min_max": [-1, 1]}), "level": u({"quantile": "normal"})},
                     targets={"kind": {"file": "k.npy", "transform": [{"one_hot": 3}]}})
        data = self.data()
        for row, i in enumerate(data["id"]):
            x = field(i)
            np.testing.assert_array_equal(data["crop"][row], x[2:6, 1:7])
            low = np.array([[(x[4 * j:4 * j + 4, 4 * k:4 * k + 4] < 2).mean() for k in range(2)] for j in range(2)])
            np.testing.assert_allclose(data["hist"][row], [low, 1 - low], atol=1e-6)
            np.testing.assert_allclose(data["formula"][row], np.log(x + self.parameter(i, 0)) * self.parameter(i, 1), rtol=1e-5)
            np.testing.assert_array_equal(data["cast"][row], np.rint(x))
            np.testing.assert_array_equal(data["std"][row], x)  # recorded: what h5py reads is as it was
            np.testing.assert_array_equal(data["kind"][row], np.arange(3) == i % 3)
        self.assertEqual((data["cast"].dtype, data["kind"].dtype), (np.uint8, np.uint8))
        self.assertEqual(self.fields["hist"]["layout"], "CHW")
        self.assertEqual(self.fields["std"]["normalisation"], {"kind": "standardise"})
        self.assertEqual(self.fields["range"]["normalisation"], {"kind": "min_max", "low": -1.0, "high": 1.0})
        levels = self.statistics["level"][0]["quantiles"]
        self.assertEqual(len(levels), 101)
        everything = np.concatenate([field(i).ravel() for i in data["id"]])
        for level, value in levels[1:-1]:
            self.assertAlmostEqual(value, np.quantile(everything, level), delta=0.02 * value + 0.02)
        self.assertEqual([levels[0][1], levels[-1][1]], [everything.min(), everything.max()])

    def test_subcubes(self):
        field = lambda i: np.arange(2 * 8 * 4, dtype="f4").reshape(2, 8, 4) + 100 * i
        self.samples(lambda folder, i: np.save(folder / "u.npy", field(i)))
        self.convert(inputs={"u": {"file": "u.npy", "layout": "CHW", "transform": {"subcubes": 4}}}, targets=["a"])
        data = self.data()
        self.assertEqual(data["u"].shape, (2 * self.COUNT, 2, 4, 4))
        for row, i in enumerate(data["id"]):
            np.testing.assert_array_equal(data["u"][row], field(i)[:, 4 * (row % 2):4 * (row % 2) + 4])
            self.assertEqual(data["y"][row][0], self.parameter(i, 0))
        np.testing.assert_allclose(self.statistics["u"][1]["mean"], np.mean([field(i)[1] for i in range(self.COUNT)]))
        self.assertEqual(self.fields["u"]["pieces"], 2)
        with h5py.File(self.folder / "data/train/shard-00000.h5") as file:
            np.testing.assert_array_equal(file["wflow/piece"], [0, 1] * self.COUNT)

    def test_filters(self):
        self.samples(lambda folder, i: np.save(folder / "u.npy", np.full(8, 0 if i == 3 else i, "f4")))
        self.convert(inputs={"u": {"file": "u.npy"}}, targets=["a"], drop_if=["max(u) == 0", "mean(u) > 9 and b > 0"])
        data = self.data()
        self.assertEqual(list(data["id"]), [1, 2, 4, 5, 6, 7, 8, 9])
        manifest = json.loads((self.folder / "data/manifest.json").read_text())
        self.assertEqual((manifest["dropped"], manifest["missing"]), ([0, 3, 10, 11], []))
        record = json.loads((self.folder / "data/blocks/00000.json").read_text())
        self.assertEqual(record["dropped"][0]["reason"], "drop_if: max(u) == 0")
        self.assertIn("there is no column 'c'", self.convert(4, inputs={"u": {"file": "u.npy"}}, targets=["a"], drop_if="c > 1"))
        self.assertIn("write mean(u), min, max, sum or std", self.convert(3, inputs={"u": {"file": "u.npy"}}, targets=["a"], drop_if="u > 1"))
        self.assertIn("is wrong at letter 5", self.convert(3, inputs={"u": {"file": "u.npy"}}, targets=["a"], drop_if="u > "))

    def test_whole_numbers_are_narrowed_without_loss(self):
        counts = lambda i: np.random.default_rng(i).poisson(3 if i != 7 else 300, (40, 40)).astype("f4")
        self.samples(lambda folder, i: (np.save(folder / "n.npy", counts(i)), np.save(folder / "x.npy", counts(i) + (0.5 if i == 9 else 0))))
        keys = dict(inputs={"n": {"file": "n.npy", "narrow": True}, "x": {"file": "x.npy", "narrow": True}}, targets=["a"])
        self.convert(**keys)
        data = self.data()
        self.assertEqual((data["n"].dtype, data["x"].dtype), (np.uint16, np.float32))  # 300 is no uint8, 0.5 no whole number
        for row, i in enumerate(data["id"]):
            np.testing.assert_array_equal(data["n"][row], counts(i))
        self.assertEqual(self.fields["n"]["dtype"], "float32")
        with h5py.File(self.folder / "data/train/shard-00000.h5") as file:
            self.assertEqual(file["n"].attrs["dtype"], "float32")
        first = (self.folder / "data/train/shard-00000.h5").read_bytes()
        shutil.rmtree(self.folder / "data")
        self.assertEqual(self.run_program(self.folder / "convert.yaml", "--threads", "1").returncode, 0)
        self.assertEqual((self.folder / "data/train/shard-00000.h5").read_bytes(), first)

    def test_compression_is_measured(self):
        noise = lambda i: np.random.default_rng(i).integers(0, 256, (64, 64)).astype("u1")
        self.samples(lambda folder, i: (np.save(folder / "noise.npy", noise(i)), np.save(folder / "flat.npy", np.zeros((64, 64), "f4") + i)))
        self.convert(inputs={"noise": {"file": "noise.npy"}, "flat": {"file": "flat.npy"}}, targets=["a"], compression="auto")
        data = self.data()
        np.testing.assert_array_equal(data["noise"][2], noise(data["id"][2]))
        self.assertEqual([self.fields[k]["compression"] for k in ("noise", "flat")], ["none", "gzip"])
        with h5py.File(self.folder / "data/train/shard-00000.h5") as file:
            self.assertEqual([file[k].compression for k in ("noise", "flat")], [None, "gzip"])

    def test_large_samples_lie_in_slabs(self):
        self.COUNT = 2
        field = lambda i: np.random.default_rng(i).poisson(2, (3, 37, 300, 300)).astype("f4")  # planes of 352 KiB, 38 MiB a sample
        self.samples(lambda folder, i: np.save(folder / "u.npy", field(i)))
        self.convert(inputs={"u": {"file": "u.npy", "layout": "CDHW", "chunk": "none"}}, targets=["a"])
        data = self.data()
        for row, i in enumerate(data["id"]):
            np.testing.assert_array_equal(data["u"][row], field(i))
        shard = self.folder / "data/train/shard-00000.h5"
        with h5py.File(shard) as file:
            self.assertEqual(file["u"].chunks, (1, 1, 19, 300, 300))
            self.assertEqual(file["wflow/index/u"].shape, (2 * 3 * 2, 4))
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
        import wflow
        train = wflow.open(self.folder / "data").train
        np.testing.assert_array_equal(train[1]["u"], field(train.ids[1]))
        for options in (["-f", "u:GZIP=1", "-f", "u:SHUF"], ["-l", "u:CHUNK=1x1x19x300x300"]):
            copy = self.folder / "copy.h5"
            subprocess.run(["h5repack", *options, str(shard), str(copy)], check=True)
            subprocess.run(["h5diff", str(shard), str(copy), "/u"], check=True)

    def test_samples_lie_in_bricks(self):
        """Chunks of plain HDF5, read by h5py, h5repack and the Python package; the last ones along an axis reach over its end."""
        self.COUNT = 3
        field = lambda i: np.random.default_rng(i).poisson(2, (2, 33, 40, 29)).astype("f4")
        self.samples(lambda folder, i: (np.save(folder / "u.npy", field(i)), np.save(folder / "v.npy", field(i)[0, 0])))
        inputs = {"u": {"file": "u.npy", "layout": "CDHW", "narrow": True, "chunk": [16, 64, 8]}, "v": {"file": "v.npy", "layout": "HW", "chunk": [8]}}
        self.convert(inputs=inputs, targets=["a"])
        data = self.data()
        for row, i in enumerate(data["id"]):
            np.testing.assert_array_equal(data["u"][row], field(i))
            np.testing.assert_array_equal(data["v"][row], field(i)[0, 0])
        self.assertEqual([self.fields[k].get("chunk") for k in ("u", "v", "y")], [[16, 64, 8], [8], None])
        shard = self.folder / "data/train/shard-00000.h5"
        with h5py.File(shard) as file:
            self.assertEqual((file["u"].chunks, file["u"].dtype), ((1, 2, 16, 40, 8), np.uint8))
            self.assertEqual(file["v"].chunks, (1, 40, 8))
            self.assertEqual(file["wflow/index/u"].shape, (3 * 3 * 4, 4))
            self.assertEqual(file.attrs["wflow_format"], 2)
            np.testing.assert_array_equal(file["u"][1, 1, 10:20, 3, 5:9], field(file["id"][1])[1, 10:20, 3, 5:9])
        self.assertIn("12 bricks of 2 x 16 x 40 x 8 a sample, deflate, held as uint8, indexed", self.run_program("shards", "info", shard).stdout)
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
        import wflow
        train = wflow.open(self.folder / "data").train
        np.testing.assert_array_equal(train[1]["u"], field(train.ids[1]))
        from wflow._shard import Shard
        self.assertEqual(len(Shard(shard, ["u"]).layouts["u"].chunks), 36)  # read without h5py
        for options in (["-f", "u:GZIP=1"], ["-l", "u:CHUNK=1x1x33x40x29"]):
            copy = self.folder / "copy.h5"
            subprocess.run(["h5repack", *options, str(shard), str(copy)], check=True)
            subprocess.run(["h5diff", str(shard), str(copy), "/u"], check=True)
        # A damaged brick is a damaged sample.
        with h5py.File(shard) as file:
            offset, i = int(file["wflow/index/u"][12 + 5][0]) + 20, int(file["id"][1])
        content = bytearray(shard.read_bytes())
        content[offset] ^= 1
        shard.write_bytes(content)
        done = self.run_program("verify", self.folder / "data")
        self.assertEqual(done.returncode, 4)
        self.assertIn(f"sample {i} of ", done.stdout + done.stderr)
        for keys, text in (({"chunk": [1, 2, 3, 4]}, "'chunk' of v has 4 numbers, and its samples have 2 axes"),
                           ({"chunk": [0]}, "'chunk' must be between 1"), ({"chunk": []}, "one to four numbers, or none")):
            with self.subTest(keys=keys):
                self.assertIn(text, self.convert(3, inputs={"v": {"file": "v.npy", **keys}}, targets=["a"], output="refused"))

    @unittest.skipIf("WFLOW_SANITIZED" in os.environ, "a sanitizer keeps what is freed")
    def test_a_large_sample_is_in_memory_twice(self):
        """While it is encoded, the next one is read. What chooses the compression had four copies of it."""
        self.COUNT = 2
        self.samples(lambda folder, i: np.save(folder / "u.npy", np.random.default_rng(i).poisson(2, (3, 37, 300, 300)).astype("f4")))  # 38 MiB
        self.convert(inputs={"u": {"file": "u.npy", "layout": "CDHW"}}, targets=["a"])
        shutil.rmtree(self.folder / "data")
        # Through a small process: the kernel counts what the one that starts a program had in memory, too.
        starter = "import os, sys; _, status, usage = os.wait4(os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:]), 0); print(status, usage.ru_maxrss // 1024)"
        command = [sys.executable, "-S", "-c", starter, PROGRAM, str(self.folder / "convert.yaml"), "--threads", "1"]
        status, most = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1].split()
        self.assertEqual(int(status), 0)
        self.assertLess(int(most), 140)

    def test_values_of_other_files_are_refused(self):
        """A simulation's output could bring any file that the user can read into the shards."""
        secret = self.folder / "secret.h5"
        with h5py.File(secret, "w") as file:
            file["u"] = np.arange(4.0)
        (self.folder / "secret.bin").write_bytes(np.arange(4.0).tobytes())

        def write(folder, i):
            with h5py.File(folder / "u.h5", "w") as file:
                file["own"] = np.arange(4.0)
                file["soft"] = h5py.SoftLink("/own")
                file["linked"] = h5py.ExternalLink(str(secret), "/u")
                file["through"] = h5py.SoftLink("/linked")
                file.create_dataset("stored", (4,), "f8", external=[(str(self.folder / "secret.bin"), 0, 32)])
                layout = h5py.VirtualLayout((4,), "f8")
                layout[:] = h5py.VirtualSource(str(secret), "u", shape=(4,))
                file.create_virtual_dataset("virtual", layout)
            shutil.copy(folder / "u.h5", folder / "u.nc")

        self.samples(write)
        for name, file in (("linked", secret), ("through", secret), ("stored", self.folder / "secret.bin"), ("virtual", secret)):
            with self.subTest(name):
                keys = {"inputs": {"u": {"file": "u.h5", "dataset": f"/{name}"}}, "targets": ["a"]}
                error = self.convert(4, **keys)
                self.assertIn(f"/{name} of ", error)
                self.assertIn(f"lies in another file, {file}; 'external_files: true' in convert: reads such files", error)
                self.convert(**keys, external_files=True)
                np.testing.assert_array_equal(self.data()["u"][0], np.arange(4.0))
                shutil.rmtree(self.folder / "data")
        self.assertIn("lies in another file", self.convert(4, inputs={"u": {"file": "u.nc", "variable": "own"}}, targets=["a"]))
        for name in ("own", "soft"):
            self.convert(inputs={"u": {"file": "u.h5", "dataset": name}}, targets=["a"])
            shutil.rmtree(self.folder / "data")

    def test_what_is_nearly_right_is_suggested(self):
        def write(folder, i):
            with h5py.File(folder / "u.h5", "w") as file:
                file["fields/density"] = np.arange(4.0)
            (folder / "r.json").write_text('{"result": {"energy": 1.5}}')
            np.save(folder / "u.npy", np.ones((3, 4)))

        self.samples(write)
        for part, field in (("did you mean '/fields/density'?", {"file": "u.h5", "dataset": "/fields/densty"}),
                            ("did you mean '/result/energy'?", {"file": "r.json", "json": "$.result.enrgy"}),
                            ("slice '0:9' does not fit: 9 is beyond the 3 entries of axis 0", {"file": "u.npy", "slice": "0:9"}),
                            ("the transform 'downsample' fails: its shape (3, 4) is not divisible by", {"file": "u.npy", "transform": {"downsample": 2}})):
            with self.subTest(part):
                error = self.convert(4, inputs={"u": field}, targets=["a"])
                self.assertIn(part, error)
                self.assertEqual(len([line for line in error.splitlines() if "is left out" in line]), 1, error)
                self.assertIn(f"{self.COUNT} samples are left out: ", error)

    def test_quantiles_of_zero_and_one(self):
        self.samples(lambda folder, i: np.save(folder / "u.npy", np.array([0.0, 1.0, 1.0, 1.0]) * (i % 2)))
        self.convert(inputs={"u": {"file": "u.npy", "transform": "quantile"}}, targets=["a"])
        self.data()
        [u] = self.statistics["u"]
        self.assertEqual({value for _, value in u["quantiles"]}, {0, 1})

    def test_a_damaged_index_is_named(self):
        self.samples(lambda folder, i: np.save(folder / "u.npy", np.random.default_rng(i).random((40, 40))))
        self.convert(inputs={"u": {"file": "u.npy"}}, targets=["a"])
        shard = self.folder / "data/train/shard-00000.h5"
        with h5py.File(shard) as file:
            offset = file["wflow/index/u"].id.get_offset() + 3 * 32 + 24  # a checksum
        content = bytearray(shard.read_bytes())
        content[offset] ^= 1
        shard.write_bytes(content)
        done = self.run_program("verify", self.folder / "data")
        self.assertEqual(done.returncode, 4)
        self.assertIn("the index of u in ", done.stdout)

    def test_strata_are_split_in_proportion(self):
        self.COUNT = 100
        self.samples(lambda folder, i: np.save(folder / "u.npy", np.full(4, i)))
        lines = (self.folder / "t.csv").read_text().splitlines()
        kinds = ["rare" if i % 10 == 0 else "common" for i in range(100)]
        (self.folder / "t.csv").write_text("\n".join([lines[0] + ",kind"] + [f"{line},{kinds[i]}" for i, line in enumerate(lines[1:])]) + "\n")
        split = {"train": 0.6, "validation": 0.2, "test": 0.2, "stratify_by": "kind"}
        keys = dict(inputs={"u": {"file": "u.npy"}}, targets=["a"], shard_samples=1000)
        self.convert(**keys, split=split)
        where = self.split_of()
        for kind, number in (("rare", 10), ("common", 90)):
            members = [where[i] for i in where if kinds[i] == kind]
            for part, share in (("train", 0.6), ("validation", 0.2), ("test", 0.2)):
                self.assertLessEqual(abs(members.count(part) - share * number), 2, (kind, part, members))
        (self.folder / "t.csv").write_text("\n".join((self.folder / "t.csv").read_text().splitlines()[:51]) + "\n")
        shutil.rmtree(self.folder / "data")
        self.convert(**keys, split=split)
        before = self.split_of()
        self.assertEqual({i: where[i] for i in before}, before)
        self.convert(**keys, split={**split, "stratify_by": {"column": "a", "edges": [5, 7]}})

    # Errors.

    def test_sentences(self):
        self.samples(lambda folder, i: np.save(folder / "u.npy", np.zeros((2, 3, 4, 5, 6), "f4")))
        u = lambda **keys: dict(inputs={"u": {"file": "u.npy", **keys}}, targets=["a"])
        for code, part, keys in (
                (3, "'inputs' and 'targets' go together", dict(inputs=["a"])),
                (3, "'u' must be the word parameter", dict(inputs={"u": "column"}, targets=["a"])),
                (3, "unknown key 'fil' in the field 'u'; did you mean 'file'?", dict(inputs={"u": {"fil": "u.npy"}}, targets=["a"])),
                (3, "the field 'u' is named twice", dict(inputs={"u": {"file": "u.npy"}}, targets={"u": "parameter"})),
                (3, "a field can't be named 'id'", dict(inputs={"id": {"file": "u.npy"}}, targets=["a"])),
                (3, "'X' is no axis; use C (channel)", u(layout="XY")),
                (3, "the axis 'H' stands in it twice", u(layout="HH")),
                (3, "'regex' has no group", u(regex="E = .*")),
                (3, "'regex' is for format text, but this field is of format hdf5", u(regex="(.*)", format="hdf5")),
                (3, "there is no transform 'log1'; known are log1p", u(transform="log1")),
                (3, "one of them may be the last step", u(transform=["standardise", "log1p"])),
                (3, "takes the cells of a block, then two or more rising edges", u(transform={"histogram": [2, 1]})),
                (3, "takes the number of classes", u(transform={"one_hot": 1})),
                (3, "the formula 'log(x' is wrong at letter 6: a ) is missing", u(transform={"expression": "log(x"})),
                (3, "'mean(u)' is for drop_if", u(transform={"expression": "x - mean(u)"})),
                (3, "'stratify_by' and 'group_by' exclude each other", dict(**u(), split={"train": 0.5, "stratify_by": "a", "group_by": "b"})),
                (3, "'slice' is written as in NumPy", u(slice="a:b")),
                (3, "'layout' stands in each field where 'inputs' is given", dict(**u(), layout="CHW")),
                (3, "order: hash goes with fractions", dict(**u(), split={"train": 10, "validation": 1, "test": 1, "order": "hash"})),
                (4, "has shape (2, 3, 4, 5, 6), but one to four axes with values are expected; 'layout' drops axes", u()),
                (4, "and layout: CHW names 3 axes", u(layout="CHW")),
                (4, "expected (7, 7)", u(shape=[7, 7])),
                (4, "no such file", dict(inputs={"u": {"file": "none.npy"}}, targets=["a"])),
                (4, "there is no column 'c'", dict(inputs={"u": {"file": "u.npy"}}, targets=["c"]))):
            with self.subTest(part):
                self.assertIn(part, self.convert(code, **keys))
        self.convert(**u(shape=[6, 120]))
        self.assertEqual(self.data()["u"].shape, (self.COUNT, 6, 120))
        self.convert(**u(slice="1, :, 2"))
        self.assertEqual(self.form_after("u"), ((3, 5, 6), "DHW"))

    def form_after(self, name):
        self.data()
        return self.form(name)[1:3]


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
