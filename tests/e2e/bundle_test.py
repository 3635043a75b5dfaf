# SPDX-License-Identifier: Apache-2.0
"""Simulators that take many samples a process, and files that tasks declare."""

import json
import unittest

import h5py
import numpy

from wflow_test import OK, SPEC, TASKS_FAILED, CampaignTest

# Reads its rows as a user's program would, and leaves a file a sample and one of all; fails sample 7 the first time.
SIMULATOR = '''
import csv, json, os, sys
import numpy
rows = list(csv.DictReader(open(sys.argv[1])))
assert len(rows) == int(sys.argv[3]) and int(rows[0]["MERLIN_SAMPLE_ID"]) == int(sys.argv[2])
print("process", sys.argv[2], sys.argv[3], file=open(sys.argv[4], "a"))
stack = "stack.npy"
if not os.path.exists(stack):
    numpy.save(stack, numpy.full((BUNDLE, 4), numpy.nan, "f4"))
array = numpy.load(stack, mmap_mode="r+")
for row in rows:
    sample, x = int(row["MERLIN_SAMPLE_ID"]), float(row["x"])
    if sample == 7 and not os.path.exists(sys.argv[4] + ".tried"):
        open(sys.argv[4] + ".tried", "w")
        with open(os.environ["WFLOW_EVENTS"], "a") as events:
            print(json.dumps({"type": "sample_failed", "sample": sample, "error": "did not converge", "exit_code": 104}), file=events)
        continue
    values = numpy.array([sample, x, x * x, 1], "f4")
    array[sample % BUNDLE] = values
    numpy.save(f"u_{sample}.npy", values)
array.flush()
'''


def bundled(folder, bundle, count, convert):
    script = folder / "simulator.py"
    script.write_text(SIMULATOR.replace("BUNDLE", str(bundle)))
    return f"""
description: {{name: bundled, description: many samples a process}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: sobol, count: {count}, parameters: {{x: [0, 1]}}}}
study:
  - name: sim
    run:
      cmd: /usr/bin/python3 {script} $(WFLOW_SAMPLES_FILE) $(WFLOW_FIRST) $(WFLOW_COUNT) {folder}/processes
      bundle: {bundle}
      retry_delay: 0
  - name: data
    convert: {{from: sim, {convert}, targets: [x], shard_samples: 9, split: {{train: 1.0, validation: 0.0}}}}
"""


class Bundles(CampaignTest):
    def data(self):
        data = self.campaign() / "data"
        manifest = json.loads((data / "manifest.json").read_text())
        self.assertEqual(manifest["missing"], [])
        samples = {}
        for shard in manifest["splits"]["train"]["shards"]:
            with h5py.File(data / shard["file"]) as file:
                for sample, x, y in zip(file["id"][...], file["x"][...], file["y"][...]):
                    samples[int(sample)] = (x.ravel(), float(y[0]))
        return samples

    def check(self, convert):
        self.wflow("run", self.study(bundled(self.folder, 10, 25, convert)), "-j", "2")
        self.assertEqual(self.counts("sim")["done"], 25)
        processes = sorted((self.folder / "processes").read_text().split("\n")[:-1])
        self.assertEqual(processes, ["process 0 10", "process 10 10", "process 20 5", "process 7 1"])
        samples = self.data()
        self.assertEqual(sorted(samples), list(range(25)))
        for sample, (x, target) in samples.items():
            numpy.testing.assert_allclose(x, [sample, target, target * target, 1], rtol=1e-6)

    def test_a_file_a_sample(self):
        self.check("file: u_$(MERLIN_SAMPLE_ID).npy")

    def test_stacked_files(self):
        self.check("file: stack.npy, stacked: true")

    def test_one_file_of_several_samples_must_be_said_to_be_stacked(self):
        study = self.study(bundled(self.folder, 10, 25, "file: stack.npy"))
        self.assertIn("stacked: true", self.wflow("validate", study, code=SPEC).err)


class Outputs(CampaignTest):
    def test_declared_outputs(self):
        script = self.folder / "simulator.py"
        script.write_text('''
import sys
import h5py, numpy
n = int(sys.argv[1])
values = numpy.full((4, 4) if n != 1 else (4, 5), float(n), "f4")
if n == 2: values[3, 1] = numpy.nan
if n == 3: sys.exit(0)
with h5py.File("u.h5", "w") as file:
    file["density" if n != 4 else "mass"] = values
if n == 5: open("u.h5", "r+b").truncate(1000)
''')
        self.wflow("run", self.study(f"""
description: {{name: declared, description: outputs that must be right}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: list, columns: [n], values: [[0], [1], [2], [3], [4], [5], [6]]}}
study:
  - name: sim
    run:
      cmd: /usr/bin/python3 {script} $(n)
      outputs:
        - u.h5
        - {{file: u.h5, dataset: density, shape: [4, 4], finite: true}}
"""), "-j", "2", code=TASKS_FAILED)
        failures = {f["task"]: f for f in self.status()["failures"]}
        self.assertEqual(sorted(failures), [f"sim/{n}" for n in range(1, 6)])
        self.assertEqual({f["reason"] for f in failures.values()}, {"its output is missing or wrong"})
        for n, sentence in ((1, "has shape (4, 5), and (4, 4) is declared"), (2, "holds NaN or infinite values"),
                            (3, "u.h5 is not there"), (4, "has no dataset density"), (5, "u.h5")):
            self.assertIn(sentence, failures[f"sim/{n}"]["detail"])
            self.assertEqual(len(failures[f"sim/{n}"]["detail"].strip().split("\n")), 1)
        self.assertEqual(self.counts("sim")["done"], 2)


if __name__ == "__main__":
    unittest.main()
