# SPDX-License-Identifier: Apache-2.0
"""`wflow extend`: a campaign gets more samples, and nothing of what is there runs, moves or changes."""

import hashlib
import json
import unittest

import h5py

from wflow_test import INTERRUPTED, OK, SMALL, SPEC, USAGE, CampaignTest, Gate, lines_of

FEW, MANY = (40, 80) if SMALL else (200, 400)
BLOCK = 16 if SMALL else 64


class GrowTest(CampaignTest):
    """A simulator of one line, a data set in blocks, and a small network."""

    samples = f"{{design: sobol, count: {FEW}, parameters: {{a: [0, 1], b: [1, 2]}}}}"
    split = ""

    def text(self, gate=None, train=""):
        before = f"{gate.command()}\n        " if gate else ""
        return f"""# a study
description: {{name: grows, description: a campaign that grows}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {self.samples}
study:
  - name: simulate
    run:
      cmd: |
        {before}echo $(MERLIN_SAMPLE_ID) >> {self.folder}/ran
        echo "y = $(a)" > run.log
        echo "$(a) $(b)" > values
  - name: data
    convert:
      from: simulate
      inputs: [a, b]
      targets: {{y: {{file: run.log, regex: 'y = (\\S+)'}}}}
      shard_samples: {BLOCK}
      {self.split}
  - name: train
    train: {{data: data, epochs: 2, batch: 8, output: ., model: {{name: mlp, dense: [8]}}{train}}}
"""

    def run_study(self, **keywords):
        self.wflow("run", self.study(self.text(**keywords)), "-j", "2", code=OK)
        self.directory = self.campaign()
        self.note_state()

    def shards(self):
        return {str(p.relative_to(self.directory)): (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns)
                for p in sorted(self.directory.glob("data/*/shard-*.h5"))}

    def values(self):
        """The rows of samples as the simulations got them, by number and directory."""
        return {str(p.parent.relative_to(self.directory)): (p.read_text(), p.stat().st_mtime_ns)
                for p in self.directory.glob("simulate/**/values")}

    def manifest(self):
        return json.loads((self.directory / "data/manifest.json").read_text())

    def splits(self):
        found = {}
        for split, entry in self.manifest()["splits"].items():
            for shard in entry["shards"]:
                with h5py.File(self.directory / "data" / shard["file"]) as file:
                    found.update({int(sample): split for sample in file["id"][:]})
        return found

    def ran(self):
        return sorted(int(n) for n in lines_of(self.folder / "ran"))

    def result(self):
        return json.loads((self.directory / "train/result.json").read_text())

    def note_state(self):
        self.before = (self.values(), self.shards(), self.splits(), self.ran())

    def assert_grown(self, count, killed=False):
        """Nothing of the earlier samples has run, moved or changed, and the new ones are there."""
        values, shards, splits, ran = self.before
        status = self.status()
        self.assertEqual(status["state"], "finished", status)
        now = self.values()
        for directory, state in values.items():
            self.assertEqual(now[directory], state)
        self.assertEqual(len(now), count)
        after = self.shards()
        for name, state in shards.items():
            self.assertEqual(after[name], state, name)
        self.assertGreater(len(after), len(shards))
        grown = self.splits()
        self.assertEqual(sorted(grown), list(range(count)))
        for sample, split in splits.items():
            self.assertEqual(grown[sample], split)
        again = self.ran()
        self.assertEqual(sorted(set(again)), list(range(count)))
        for sample in set(ran):
            self.assertEqual(again.count(sample), ran.count(sample), f"sample {sample} ran again")
        if not killed:
            self.assertEqual(again, list(range(count)))
        data = self.result()["data"]
        self.assertEqual(data["train"] + data["validation"] + data["test"], count)

    def extend(self, *arguments, code=OK):
        return self.wflow("extend", self.directory, *arguments, "-j", "2", code=code)


class Grow(GrowTest):
    def test_more_of_the_design(self):
        self.run_study()
        weights = self.result()["begun_from"]
        self.assertEqual(weights, "")
        said = self.extend("--count", MANY).out
        self.assertIn(f"{FEW} samples become {MANY}", said)
        self.assert_grown(MANY)
        self.assertEqual(self.result()["begun_from"], "")
        # The file still has the old count: taking it in would lose what was grown.
        self.assertIn(f"the campaign has grown since ({MANY} samples)", self.wflow("diff").out)
        # The same rows as in a campaign of so many from the start.
        rows = {int(n): v for n, v in ((self.number(d), v[0]) for d, v in self.values().items())}
        self.assertEqual(len(set(rows.values())), MANY)

    @staticmethod
    def number(directory):
        parts = directory.split("/")[1:]
        value = 0
        for part in parts:
            value = value * 25 + int(part)
        return value

    def test_training_goes_on_from_the_last_model(self):
        self.run_study(train=", init_from: last")
        self.extend("--count", MANY)
        self.assert_grown(MANY)
        self.assertRegex(self.result()["begun_from"], r"initial.wfck \(epoch 2, data \w+\)")
        self.assertIn("begins with the weights of initial.wfck", (self.directory / "train/train.out").read_text())

    def test_on_two_ranks(self):
        # One test sample: a rank has none.
        self.split = f"split: {{train: {FEW - 2}, validation: 1, test: 1}}"
        self.run_study(train=", ranks: 2, threads: 1, init_from: last")
        self.assertEqual(len((self.directory / "train/predictions.csv").read_text().splitlines()), 1 + 1)
        self.extend("--count", MANY)
        self.assert_grown(MANY)
        self.assertRegex(self.result()["begun_from"], r"initial.wfck \(epoch 2, data \w+\)")
        data = self.result()["data"]
        self.assertEqual(len((self.directory / "train/predictions.csv").read_text().splitlines()), 1 + data["test"])

    def test_grown_twice_and_again_by_little(self):
        self.run_study()
        self.extend("--count", MANY)
        self.assert_grown(MANY)
        self.note_state()
        self.extend("--count", MANY + 1)
        self.assert_grown(MANY + 1)

    def test_a_plan_changes_nothing(self):
        self.run_study()
        self.extend("--count", MANY, "--plan")
        self.assertEqual(self.before, (self.values(), self.shards(), self.splits(), self.ran()))
        self.assertEqual(self.status()["state"], "finished")

    def test_a_live_campaign(self):
        gate = Gate(self.folder, FEW // 2)
        run = self.start("run", self.study(self.text(gate)), "-j", "2")
        self.directory = self.wait_for_campaign(run)
        self.wait(lambda: gate.waiting() == 2, "two tasks wait", run)
        self.assertIn(f"{FEW} samples become {MANY}", self.extend("--count", MANY, "--plan").out)
        self.assertEqual(self.status()["state"], "running")
        extend = self.start("extend", self.directory, "--count", MANY)
        self.wait(lambda: self.status()["state"] == "draining", "the campaign drains", extend)
        gate.open()
        self.assertEqual(run.wait(), INTERRUPTED)
        self.assertEqual(extend.wait(), OK, extend.err)
        self.assertEqual(self.ran(), list(range(MANY)))
        self.assertEqual(sorted(self.splits()), list(range(MANY)))
        self.assertEqual(self.status()["state"], "finished")

    def test_killed_in_the_middle(self):
        gate = Gate(self.folder, FEW + 6)
        self.run_study(gate=gate)
        process = self.start("extend", self.directory, "--count", MANY, "-j", "2")
        self.wait(lambda: gate.waiting() == 2, "two tasks wait", process)
        self.kill_everything()
        gate.open()
        self.wflow("resume", self.directory, "-j", "2", code=OK)
        self.assert_grown(MANY, killed=True)

    def test_killed_while_it_trains_on(self):
        self.run_study(train=", init_from: last")
        process = self.start("extend", self.directory, "--count", MANY, "-j", "2")
        self.wait(lambda: (self.directory / "train/initial.wfck").exists(), "the training begins", process)
        self.kill_everything()
        self.wflow("resume", self.directory, "-j", "2", code=OK)
        self.assert_grown(MANY)
        self.assertIn("initial.wfck", self.result()["begun_from"])

    def test_a_count_raised_in_the_file(self):
        """wflow resume --update with an edited study is the same."""
        self.run_study()
        self.study(self.text().replace(f"count: {FEW}", f"count: {MANY}"))
        self.wflow("resume", self.directory, "--update", "--yes", "-j", "2", code=OK)
        self.assert_grown(MANY)

    def test_processes_of_several_samples(self):
        self.wflow("run", self.study(f"""
description: {{name: bundles}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: sobol, count: 40, parameters: {{a: [0, 1]}}}}
study:
  - name: pack
    run: {{cmd: 'echo $(WFLOW_FIRST) $(WFLOW_COUNT) >> {self.folder}/packs; cp $(WFLOW_SAMPLES_FILE) rows', bundle: 16}}
"""), "-j", "2", code=OK)
        self.directory = self.campaign()
        self.extend("--count", "80")
        packs = sorted(tuple(map(int, line.split())) for line in (self.folder / "packs").read_text().splitlines())
        self.assertEqual(packs, [(0, 16), (16, 16), (32, 8), (40, 16), (56, 16), (72, 8)])
        self.assertEqual(len(list(self.directory.glob("pack/**/rows"))), 6)

    def test_wrong_input(self):
        self.run_study()
        few = self.folder / "few.csv"
        few.write_text("a,b\n0.5,1.5\n")
        rows = [state[0].replace(" ", ",") for _, state in sorted(self.values().items())]
        columns = self.folder / "columns.csv"
        columns.write_text("a,c\n" + "".join(rows) + "0.5,1.5\n")
        changed = self.folder / "changed.csv"
        changed.write_text("a,b\n" + "".join(rows[:5]) + "7,1.5\n" + "".join(rows[6:]) + "0.5,1.5\n")
        for arguments, words in (
                (("--count", FEW), f"the campaign has {FEW} samples"),
                (("--count", FEW - 1), f"the campaign has {FEW} samples"),
                (("--samples", few), f"there are 1 samples, the campaign has {FEW}"),
                (("--samples", changed), "sample 5 has a = 7, in the campaign it has "),
                (("--samples", self.folder / "none.csv"), "none.csv"),
                (("--count", MANY, "--range", "c=0:1"), "'c' is no column of the samples"),
                (("--count", MANY, "--range", "a=1"), "a range is LOW:HIGH")):
            process = self.start("extend", self.directory, *arguments, "-j", "2")
            self.assertIn(process.wait(), (USAGE, SPEC), process.out)
            self.assert_one_sentence(process, words)
        self.wflow("extend", self.directory, "--samples", columns, code=USAGE)
        self.assertEqual(self.before, (self.values(), self.shards(), self.splits(), self.ran()))
        self.extend(code=USAGE)


class GrowDesigns(GrowTest):
    """Each of the other designs, and tables."""

    def grow(self, samples, *arguments, count=MANY):
        self.samples = samples
        self.run_study()
        self.extend(*arguments)
        self.assert_grown(count)

    def column(self, index):
        return [float(v[0].split()[index]) for v in self.values().values()]

    def test_latin_hypercube(self):
        self.grow(f"{{design: latin_hypercube, count: {FEW}, parameters: {{a: [0, 1], b: [1, 2]}}}}", "--count", MANY)
        self.assertEqual(len({int(value * MANY) for value in self.column(0)}), MANY)

    def test_latin_hypercube_by_the_file(self):
        self.samples = f"{{design: latin_hypercube, count: {FEW}, parameters: {{a: [0, 1], b: [1, 2]}}}}"
        self.run_study()
        self.study(self.text().replace(f"count: {FEW}", f"count: {MANY}"))
        self.wflow("resume", self.directory, "--update", "--yes", "-j", "2", code=OK)
        self.assert_grown(MANY)

    def test_uniform(self):
        self.grow(f"{{design: uniform, count: {FEW}, parameters: {{a: [0, 1], b: [1, 2]}}}}", "--count", MANY)

    def test_halton(self):
        self.grow(f"{{design: halton, count: {FEW}, seed: 3, parameters: {{a: [0, 1], b: [1, 2]}}}}", "--count", MANY)

    def test_a_smaller_box(self):
        self.grow(f"{{design: sobol, count: {FEW}, parameters: {{a: [0, 1], b: [1, 2]}}}}", "--count", MANY,
                  "--range", "a=0.25:0.35")
        self.assertGreaterEqual(len([a for a in self.column(0) if 0.25 <= a <= 0.35]), MANY - FEW)

    def table(self, name, rows):
        path = self.folder / name
        path.write_text("a,b\n" + "".join(f"{i / 100},{1 + i / 100}\n" for i in rows))
        return path

    def test_a_table_that_goes_on(self):
        self.table("table.csv", range(FEW))
        self.grow("{file: table.csv}", "--samples", self.table("more.csv", range(MANY)))

    def test_a_table_of_further_samples(self):
        self.grow(f"{{design: sobol, count: {FEW}, parameters: {{a: [0, 1], b: [1, 2]}}}}", "--append",
                  self.table("more.csv", range(10)), count=FEW + 10)
        (self.folder / "more.csv").unlink()  # the campaign has its own copy
        self.wflow("resume", self.directory, code=OK)

    def test_exact_counts_of_the_split(self):
        test = FEW // 8
        self.split = f"split: {{train: {FEW - 2 * test}, validation: {test}, test: {test}}}"
        self.grow(f"{{design: sobol, count: {FEW}, parameters: {{a: [0, 1], b: [1, 2]}}}}", "--count", MANY)
        self.assertEqual(list(self.splits().values()).count("test"), 2 * test)

    def test_more_directories_than_a_level_has(self):
        self.grow("{design: sobol, count: 5, level_max_dirs: 5, parameters: {a: [0, 1], b: [1, 2]}}", "--count", FEW, count=FEW)
        self.assertEqual(len(list((self.directory / "simulate").glob("*/values"))), FEW)


if __name__ == "__main__":
    unittest.main()
