# SPDX-License-Identifier: Apache-2.0
"""Campaigns that are corrected: from the wrong study to the right data set with the shortest command, and nothing runs that need not."""

import json
import os
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import unittest
from collections import Counter
from contextlib import closing
from pathlib import Path

from wflow_test import BIN, DATA, INTERRUPTED, OK, SMALL, SPEC, TASKS_FAILED, USAGE, CampaignTest, Terminal, lines_of, read_text

# Random studies, from the first seed up to before the second, and edits of each.
SEEDS = [int(n) for n in os.environ.get("WFLOW_CORRECT_SEEDS", "1 3" if SMALL else "1 7").split()]
EDITS = 3
# 0: every one of them (some minutes).
POINTS = int(os.environ.get("WFLOW_FAULT_POINTS", "6"))

SAMPLES = 12
BLOCK = 4
BLOCKS = SAMPLES // BLOCK

SIMULATOR = """
import struct, sys
x, y = float(sys.argv[1]), float(sys.argv[2])
header = "{'descr': '<f4', 'fortran_order': False, 'shape': (8,), }"
header += " " * (117 - len(header)) + "\\n"
values = [FACTOR * (x + 0.1 * i * y) for i in range(8)]
with open(sys.argv[3], "wb") as file:
    file.write(b"\\x93NUMPY\\x01\\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack("<8f", *values))
"""


def making(path):
    """Which file this is: written anew, it differs. An inode's number alone does not do: a file system gives it to the next file."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


class CorrectTest(CampaignTest):
    """simulate -> data -> train, with a ledger of what was executed."""

    def setUp(self):
        super().setUp()
        self.ledger = self.folder / "ledger"
        self.simulator = self.folder / "simulator.py"
        self.simulator.write_text(SIMULATOR.replace("FACTOR", "1"))

    def executed(self):
        """The executions since the last call: step -> how many times."""
        counts = Counter(line.split("-")[0] for line in lines_of(self.ledger))
        self.ledger.write_text("")
        return dict(counts)

    def text(self, cmd=None, samples=None, targets="[x]", learning_rate=0.01, train=True, sources=False, more="", extra=""):
        cmd = cmd or f"/usr/bin/python3 -S {self.simulator} $(x) $(y) field.npy"
        samples = samples or f"design: sobol, count: {SAMPLES}, parameters: {{x: [0, 1], y: [1, 2]}}"
        declared = f"\n    sources: [{self.simulator.name}]" if sources else ""
        steps = f"""
  - name: simulate{declared}
    run:
      cmd: |
        echo simulate-$(MERLIN_SAMPLE_ID) >> {self.ledger}
        {cmd}
{more}  - name: data
    convert: {{from: simulate, file: field.npy, targets: {targets}, shard_samples: {BLOCK}, split: {{train: 0.6, validation: 0.2}}}}
"""
        if train:
            steps += f"""  - name: train
    train: {{data: data, model: mlp, epochs: 1, batch: 4, optimizer: {{learning_rate: {learning_rate}}}}}
"""
        return f"""
description: {{name: correct, description: a study that is mended}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{{samples}}}
study:{steps}{extra}"""

    def write(self, **changes):
        return self.study(self.text(**changes))

    def shards(self, folder=None):
        folder = folder or self.campaign() / "data"
        return {str(p.relative_to(folder)): making(p) for p in sorted(folder.rglob("shard-*.h5"))}

    def model(self):
        return making(self.campaign() / "train" / "model.pt")

    def manifest(self):
        return json.loads((self.campaign() / "data" / "manifest.json").read_text())

    def update(self, *options, code=OK):
        return self.wflow("resume", "--update", "-j", "2", "-q", *options, code=code)

    def assert_done(self):
        for step in self.status()["steps"]:
            self.assertEqual({k: v for k, v in step["counts"].items() if v}, {"done": step["elements"]}, step["name"])


class CorrectStories(CorrectTest):
    def test_typo_in_cmd(self):
        self.write(cmd="/usr/bin/pyton3 nothing")
        self.wflow("run", self.folder / "study.yaml", "-j", "2", "-q", code=TASKS_FAILED)
        self.assertEqual(self.counts("simulate")["failed"], SAMPLES)
        self.executed()
        self.write()
        # Retry alone says why it fails again, and how to take the change over.
        retry = self.wflow("retry", "-j", "2", code=TASKS_FAILED)
        self.assertRegex(retry.out, r"study.yaml differs from the campaign's copy.*wflow resume --update")
        resume = self.wflow("resume", "-j", "2", code=TASKS_FAILED)
        self.assertRegex(resume.out, r"study.yaml differs from the campaign's copy")
        self.executed()
        diff = self.wflow("diff").out
        self.assertRegex(diff, r"(?m)^study.simulate.run.cmd:\n")
        self.assertRegex(diff, rf"(?m)^simulate: cmd changed, {SAMPLES} of {SAMPLES} stale$")
        self.assertRegex(diff, r"(?m)^data, data.manifest, train follow$")
        self.assertEqual(self.executed(), {}, "diff runs nothing")
        self.update("-m", "a typo")
        self.assertEqual(self.executed(), {"simulate": SAMPLES})
        self.assert_done()
        self.assertEqual(self.manifest()["missing"], [])
        versions = json.loads(self.wflow("history", "--json").out)
        self.assertEqual([(v["version"], v["command"], v["why"]) for v in versions],
                         [(1, "run", ""), (2, "resume --update", "a typo")])
        self.assertIn("pyton3", self.wflow("history", "--show", "1").out)
        self.assertNotIn("pyton3", self.wflow("history", "--show", "2").out)
        self.assertIn(f"simulate: cmd changed, {SAMPLES} of {SAMPLES} stale", self.wflow("history").out)
        self.assertIn("nothing differs", self.wflow("diff").out)
        self.update()
        self.assertEqual(self.executed(), {})

    def test_a_script_that_is_a_source(self):
        self.write(sources=True)
        self.wflow("run", self.folder / "study.yaml", "-j", "2", "-q")
        self.executed()
        shards, model = self.shards(), self.model()
        self.assertIn("nothing differs", self.wflow("diff").out)
        self.simulator.write_text(SIMULATOR.replace("FACTOR", "2"))
        self.assertRegex(self.wflow("diff").out, rf"(?m)^simulate: sources changed, {SAMPLES} of {SAMPLES} stale$")
        self.assertRegex(self.wflow("resume", "-j", "2").out, r"simulator.py of simulate has changed")
        self.update()
        self.assertEqual(self.executed(), {"simulate": SAMPLES})
        self.assertTrue(all(self.shards()[name] != node for name, node in shards.items()))
        self.assertNotEqual(self.model(), model)
        self.assertIn("nothing differs", self.wflow("diff").out)

    def test_a_script_that_the_command_names(self):
        """Nothing is declared: a changed script was 'nothing differs'."""
        other = self.folder / "other.txt"
        other.write_text("a")
        cmd = f"echo x > {other}; [ -e {self.folder}/later ] || true; /usr/bin/python3 -S $(SPECROOT)/simulator.py $(x) $(y) field.npy"
        self.write(cmd=cmd, train=False)
        self.wflow("run", self.folder / "study.yaml", "-j", "2", "-q")
        self.executed()
        (self.folder / "later").write_text("made since")
        self.assertIn("nothing differs", self.wflow("diff").out)
        self.simulator.write_text(SIMULATOR.replace("FACTOR", "2"))
        self.assertRegex(self.wflow("diff").out, rf"(?m)^simulate: sources changed, {SAMPLES} of {SAMPLES} stale$")
        self.assertRegex(self.wflow("resume", "-j", "2").out, r"simulator.py of simulate has changed")
        self.update()
        self.assertEqual(self.executed(), {"simulate": SAMPLES})
        self.assertIn("nothing differs", self.wflow("diff").out)
        # Output made since the first version is a source in no later one.
        (self.folder / "later").write_text("made again")
        self.assertIn("nothing differs", self.wflow("diff").out)
        # Switched off.
        self.study(self.text(cmd=cmd, train=False).replace("  - name: simulate", "  - name: simulate\n    sources: none"))
        self.update()
        self.simulator.write_text(SIMULATOR.replace("FACTOR", "3"))
        self.assertIn("nothing differs", self.wflow("diff").out)
        self.assertEqual(self.executed(), {})

    def test_a_source_that_does_not_exist(self):
        study = self.write(sources=True)
        text = study.read_text().replace("sources: [simulator.py]", "sources: [simm.py]")
        found = self.wflow("validate", self.study(text), code=SPEC)
        self.assertRegex(found.err, r"study.yaml:\d+:\d+: error: the step 'simulate' has the source simm.py, which does not exist \(/.*/simm.py\)")

    def test_a_source_that_changes_between_two_runs(self):
        # Half of the tasks ran with the old script, the rest without --update with the new one: the record knows which.
        gate = self.folder / "open"
        cmd = (f"[ $(MERLIN_SAMPLE_ID) -lt 6 ] || [ -e {gate} ] || exit 1\n"
               f"        /usr/bin/python3 -S {self.simulator} $(x) $(y) field.npy")
        self.write(cmd=cmd, sources=True, train=False)
        self.wflow("run", self.folder / "study.yaml", "-j", "2", "-q", code=TASKS_FAILED)
        self.simulator.write_text(SIMULATOR.replace("FACTOR", "3"))
        gate.touch()
        self.wflow("retry", "-j", "2", "-q")
        self.executed()
        self.assertRegex(self.wflow("diff").out, r"(?m)^simulate: sources changed, 6 of 12 stale$")
        self.update()
        self.assertEqual(self.executed(), {"simulate": 6})
        self.assert_done()

    def test_hyper_parameter(self):
        self.wflow("run", self.write(), "-j", "2", "-q")
        self.executed()
        shards, model = self.shards(), self.model()
        self.write(learning_rate=0.02)
        said = self.wflow("diff").out.strip().split("\n")
        self.assertEqual((said[-3], said[-1]), ("train: train changed, 1 of 1 stale", "1 task to run"))
        self.assertRegex(said[-2], r"^replaced, and kept in .wflow/old until the new one is done: train \(\d.*B\)$")
        self.update()
        self.assertEqual((self.executed(), self.shards()), ({}, shards))
        self.assertNotEqual(self.model(), model)
        self.assert_done()
        self.assertEqual(list((self.campaign() / ".wflow" / "old").iterdir()), [], "the successor is done")

    def test_a_good_version_stays_until_its_successor_is_done(self):
        """A single task stands for a training: its change fails twice, and what it had made is there until it succeeds."""
        def text(fit, noise=""):
            return f"""
description: {{name: correct, description: a fit that fails}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: sobol, count: 4, parameters: {{x: [0, 1]}}}}
study:
  - name: simulate
    run: {{cmd: 'echo $(x) {noise} > out'}}
  - name: fit
    run: {{cmd: '{fit}', depends: [simulate]}}
"""
        self.wflow("run", self.study(text("echo good > model")), "-j", "2", "-q")
        self.study(text("echo half > model; exit 1"))
        (replaced,) = json.loads(self.wflow("diff", "--json").out)["replaces"]
        self.assertEqual((replaced["path"], replaced["kept_until_done"]), ("fit", "fit"))
        self.assertGreater(replaced["bytes"], 0)
        old = self.campaign() / ".wflow" / "old" / "1" / "fit" / "model"
        out = self.wflow("resume", "--update", "-j", "2", code=TASKS_FAILED).out
        self.assertRegex(out, r"(?m)^replaced, and kept in .wflow/old until the new one is done: fit \(")
        self.assertIn(f"fit is not done; its last good version is in {old.parent}\n", out)
        self.assertEqual(read_text(old), "good\n")
        self.study(text("echo half again > model; exit 2"))
        self.update(code=TASKS_FAILED)
        self.assertEqual(read_text(old), "good\n")
        # Only the new outputs of simulations are kept.
        self.wflow("redo", "simulate/1", "-j", "2", "-q", code=TASKS_FAILED)
        self.assertEqual(list(old.parents[2].glob("*/simulate")), [])
        self.assertEqual([str(p) for p in old.parents[2].rglob("model")], [str(old)])
        self.study(text("echo better > model"))
        self.update()
        self.assert_done()
        self.assertEqual(read_text(self.campaign() / "fit" / "model"), "better\n")
        self.assertEqual(list((self.campaign() / ".wflow" / "old").iterdir()), [])

    def test_a_good_version_stays_though_what_it_was_made_of_was_removed(self):
        bad = self.folder / "bad"
        self.wflow("run", self.study(f"""
description: {{name: correct, description: simulations that fail when they run again}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: sobol, count: 4, parameters: {{x: [0, 1]}}}}
study:
  - name: simulate
    run: {{cmd: 'test ! -e {bad} && echo $(x) > out', max_retries: 0}}
  - name: fit
    run: {{cmd: 'cat $(simulate.workspace)/*/out > model && test ! -e {bad}', depends: [simulate], max_retries: 0}}
"""), "-j", "2", "-q")
        good = read_text(self.campaign() / "fit" / "model")
        self.assertEqual(len(good.split()), 4)
        self.wflow("rm", self.campaign(), "--keep", "fit,.wflow,merlin_info", "--yes")
        bad.touch()
        out = self.wflow("redo", "--step", "simulate", "-j", "2", code=TASKS_FAILED).out
        old = self.campaign() / ".wflow" / "old" / "1" / "fit"
        self.assertIn(f"fit is not done; its last good version is in {old}\n", out)
        self.assertEqual(read_text(old / "model"), good)
        bad.unlink()
        self.wflow("retry", "-j", "2", "-q")
        self.assert_done()
        self.assertEqual(read_text(self.campaign() / "fit" / "model"), good)
        self.assertEqual(list((self.campaign() / ".wflow" / "old").iterdir()), [])

    def test_target_added(self):
        self.wflow("run", self.write(), "-j", "2", "-q")
        self.executed()
        shards, model = self.shards(), self.model()
        self.write(targets="[x, y]")
        self.update("--keep-old")
        self.assertEqual(self.executed(), {}, "no simulation runs again")
        self.assertTrue(all(self.shards()[name] != node for name, node in shards.items()))
        self.assertNotEqual(self.model(), model)
        old = self.campaign() / ".wflow" / "old" / "1"
        self.assertEqual(self.shards(old / "data"), shards)
        self.assertEqual(making(old / "train" / "model.pt"), model)
        self.assert_done()

    def test_what_applies_without_a_rerun(self):
        self.wflow("run", self.write(), "-j", "2", "-q")
        self.executed()
        shards, model = self.shards(), self.model()
        text = self.text().replace("    run:\n", "    run:\n      max_retries: 7\n      timeout: 1h\n      priority: high\n")
        self.study(text.replace("a study that is mended", "another description"))
        self.assertIn("no task needs to run again", self.wflow("diff").out)
        self.update()
        self.assertEqual((self.executed(), self.shards(), self.model()), ({}, shards, model))
        plan = json.loads((self.campaign() / ".wflow" / "spec" / "options.json").read_text())
        self.assertTrue(plan)
        self.assertIn("max_retries: 7", self.wflow("history", "--show", "2").out)
        # A new campaign is what run is for; it says what could have been done in this one.
        first = self.campaign()
        self.write(train=False)
        self.assertRegex(self.wflow("run", self.folder / "study.yaml", "-j", "2").out,
                         rf"study.yaml has changed since the campaign {first.name} began; there, wflow resume --update takes it in, and nothing runs")

    def test_step_in_the_middle_and_removed(self):
        first = self.text(train=False)
        self.wflow("run", self.study(first), "-j", "2", "-q")
        self.executed()
        smooth = f"""  - name: smooth
    run:
      cmd: |
        echo smooth-$(MERLIN_SAMPLE_ID) >> {self.ledger}
        cp $(simulate.workspace)/$(MERLIN_SAMPLE_PATH)/field.npy field.npy
      depends: [simulate]
"""
        second = self.text(train=False, more=smooth).replace("from: simulate", "from: smooth")
        self.study(second)
        diff = self.wflow("diff").out
        self.assertRegex(diff, rf"(?m)^smooth: new, {SAMPLES} to run$")
        self.update()
        self.assertEqual(self.executed(), {"smooth": SAMPLES})
        self.assert_done()
        self.study(first)
        smooth = self.campaign() / "smooth"
        self.assertIn(f"\nsmooth: removed; its 12 outputs stay; delete them with: rm -r {smooth}\n", self.wflow("diff").out)
        self.update()
        self.assertEqual(self.executed(), {})
        self.assert_done()
        self.assertEqual([s["name"] for s in self.status()["steps"]], ["simulate", "data", "data.manifest"])
        self.assertTrue((self.campaign() / "smooth").is_dir())
        # And in again: what lies there is of another version.
        self.study(second)
        self.update()
        self.assertEqual(self.executed(), {"smooth": SAMPLES})
        self.assert_done()
        # Kept aside with what else is replaced.
        self.study(first)
        self.assertIn("smooth: removed; its 12 outputs are kept with the replaced ones", self.wflow("resume", "--update", "--keep-old").out)
        self.assertFalse(smooth.exists())
        self.assertEqual(len(list((self.campaign() / ".wflow" / "old").glob("*/smooth/*/field.npy"))), SAMPLES)

    def test_a_step_that_reported_metrics_is_renamed(self):
        def text(name):
            return f"""
description: {{name: correct, description: two steps that report}}
env: {{variables: {{OUTPUT_PATH: .}}}}
study:
  - name: mesh
    run: {{cmd: "{BIN}/wflow event metric name=quality value=1 step=1"}}
  - name: {name}
    run: {{cmd: "{BIN}/wflow event metric name=loss value=0.5 step=1", depends: [mesh]}}
"""
        self.wflow("run", self.study(text("fit")), "-j", "2", "-q")
        self.study(text("adjust"))
        self.update()
        self.assert_done()
        self.assertEqual([(m["task"], m["name"]) for m in self.status()["metrics"]], [("mesh", "quality"), ("adjust", "loss")])
        self.assertIn("adjust", self.wflow("curves").out)
        self.wflow("report", "-o", self.folder / "report.html")
        self.wflow("redo", "mesh", "-j", "2", "-q")
        self.assert_done()
        with closing(sqlite3.connect(f"file:{self.campaign()}/.wflow/campaign.db?mode=ro", uri=True)) as database:
            removed = database.execute("select study, step, name from v_removed_metrics").fetchall()
        self.assertEqual(removed, [(2, "fit", "loss")])

    def test_more_and_fewer_samples(self):
        self.wflow("run", self.write(), "-j", "2", "-q")
        self.executed()
        shards = self.shards()
        more = f"design: sobol, count: {2 * SAMPLES + 6}, parameters: {{x: [0, 1], y: [1, 2]}}"
        self.write(samples=more)
        self.assertRegex(self.wflow("diff").out, r"(?m)^simulate: 18 more to run$")
        self.update()
        self.assertEqual(self.executed(), {"simulate": SAMPLES + 6})
        # 30 samples need two levels of directories where 12 needed one: those that are there stay.
        self.assertTrue((self.campaign() / "simulate" / "11" / "field.npy").exists())
        self.assertTrue((self.campaign() / "simulate" / "29" / "field.npy").exists())
        self.assertEqual({k: v for k, v in self.shards().items() if k in shards}, shards, "whole blocks are not touched")
        self.assert_done()
        self.write()
        self.update()
        self.assertEqual(self.executed(), {})
        self.assertFalse((self.campaign() / "simulate" / "29").exists())
        self.assertEqual(set(self.shards()), set(shards))
        self.assert_done()

    def test_a_row_of_a_file(self):
        table = self.folder / "table.csv"
        rows = [f"{i / 10},{1 + i / 20}" for i in range(SAMPLES)]
        table.write_text("x,y\n" + "\n".join(rows) + "\n")
        self.wflow("run", self.write(samples="file: table.csv", train=False), "-j", "2", "-q")
        self.executed()
        rows[5] = "0.55,1.3"
        table.write_text("x,y\n" + "\n".join(rows) + "\n")
        self.assertRegex(self.wflow("diff").out, r"(?m)^simulate: samples changed, 1 of 12 stale$")
        self.update()
        self.assertEqual(self.executed(), {"simulate": 1})
        self.assertEqual(self.manifest()["missing"], [])
        self.assertIn("nothing differs", self.wflow("diff").out)

    def generated(self, rows, command="cp"):
        table = self.folder / "rows.csv"
        table.write_text("".join(f"{x},{y}\n" for x, y in rows))
        return f"column_labels: [x, y], file: {self.folder}/made/table.csv, generate: {{cmd: 'mkdir -p {self.folder}/made; {command} {table} {self.folder}/made/table.csv'}}"

    def test_a_command_that_generates_samples(self):
        rows = [(i / 10, 1 + i / 20) for i in range(SAMPLES)]
        self.wflow("run", self.write(samples=self.generated(rows), train=False), "-j", "2", "-q")
        self.executed()
        shards = self.shards()
        table = self.folder / "made" / "table.csv"
        before = table.read_text()
        rows[5] = (0.55, 1.3)
        self.write(samples=self.generated(rows, "cat").replace("rows.csv ", "rows.csv > "), train=False)
        diff = self.wflow("diff").out
        self.assertRegex(diff, r"(?m)^samples.generate.cmd:")
        self.assertIn("samples: not generated yet", diff)
        self.assertEqual(table.read_text(), before)
        terminal = Terminal(self, ["resume", "--update"], columns=200)
        os.write(terminal.descriptor, b"n\n")
        self.assertEqual(terminal.finish(), OK)
        self.assertIn("simulate: samples changed, 1 of 12 stale", terminal.text)
        self.assertEqual(table.read_text(), before)
        self.assertEqual(self.executed(), {})
        self.update()
        self.assertEqual(self.executed(), {"simulate": 1})
        self.assertEqual({name for name, node in self.shards().items() if shards[name] != node}, {n for n in shards if "00001" in n})
        self.assertIn("nothing differs", self.wflow("diff").out)
        self.assertEqual([p.name for p in table.parent.iterdir()], ["table.csv"])
        # Two more rows, and a command that fails: all stays as it is.
        self.write(samples=self.generated(rows, "false"), train=False)
        self.assertIn("ended with exit code", self.update(code=DATA).err)
        self.assertEqual([p.name for p in table.parent.iterdir()], ["table.csv"])
        self.write(samples=self.generated(rows + [(2, 3), (4, 5)], "cp -f"), train=False)
        self.update()
        self.assertEqual(self.executed(), {"simulate": 2})
        self.assert_done()

    def test_samples_that_are_generated_in_the_campaign(self):
        def samples(last):
            rows = f'seq 1 {SAMPLES} | sed "s/.*/0.&,1.&/; \\$ s/.*/{last}/"'
            return f"column_labels: [x, y], file: $(MERLIN_INFO)/table.csv, generate: {{cmd: '{rows} > $(MERLIN_INFO)/table.csv'}}"

        self.wflow("run", self.write(samples=samples("7,8"), train=False), "-j", "2", "-q")
        self.executed()
        self.write(samples=samples("8,9"), train=False)
        self.update()
        self.assertEqual(self.executed(), {"simulate": 1})
        self.assertEqual(self.wflow("resume", "--update", "-q").out, "")
        self.assertEqual(self.executed(), {})

    def test_redo(self):
        self.wflow("run", self.write(), "-j", "2", "-q")
        self.executed()
        shards, model = self.shards(), self.model()
        self.assertIn("12 tasks are done; wflow redo runs them again", self.wflow("retry", "--step", "simulate").out)
        self.wflow("redo", "simulate/5", "-j", "2", "-q")
        self.assertEqual(self.executed(), {"simulate": 1})
        now = self.shards()
        self.assertEqual({k for k in shards if now[k] != shards[k]}, {k for k in shards if "00001" in k})
        self.assertNotEqual(self.model(), model)
        self.wflow("redo", "simulate/2:6", "-j", "2", "-q")
        self.assertEqual(self.executed(), {"simulate": 5})
        self.wflow("redo", "--step", "simulate", "--where", "x > 0.5", "-j", "2", "-q", "-m", "suspicious")
        above = self.executed()["simulate"]
        self.assertTrue(0 < above < SAMPLES, above)
        model = self.model()
        self.wflow("redo", "train", "--keep-old", "-j", "2", "-q")
        self.assertEqual(self.executed(), {})
        self.assertNotEqual(self.model(), model)
        kept = [making(p) for p in (self.campaign() / ".wflow" / "old").rglob("model.pt")]
        self.assertEqual(kept, [model])
        # Blocks that come out as they were change nothing that is learnt.
        weights = (self.campaign() / "train" / "model.pt").read_bytes()
        self.wflow("redo", "data", "-j", "2", "-q")
        self.assertEqual((self.campaign() / "train" / "model.pt").read_bytes(), weights)
        self.assertIn("nothing is left to train", read_text(self.campaign() / "train" / "train.out"))
        self.assertEqual([p for p in (self.campaign() / ".wflow" / "old").rglob("model.pt") if making(p) != model], [])
        self.assert_one_sentence(self.wflow("redo", "simulate/100", code=USAGE), "the tasks of simulate are 0 to 11")
        self.assertIn("simulat", self.wflow("redo", "simulat", code=USAGE).err)
        self.assert_done()


    def test_missing_samples_run_their_chain(self):
        smooth = f"""  - name: smooth
    run:
      cmd: |
        echo smooth-$(MERLIN_SAMPLE_ID) >> {self.ledger}
        cp $(simulate.workspace)/$(MERLIN_SAMPLE_PATH)/field.npy field.npy
      depends: [simulate]
"""
        whole = SIMULATOR.replace("FACTOR", "1")
        self.simulator.write_text(SIMULATOR.replace("FACTOR", "(float('nan') if x < 0.3 else 1)"))
        text = self.text(train=False, more=smooth).replace("from: simulate", "from: smooth")
        self.wflow("run", self.study(text), "-j", "2", "-q")
        missing = len(self.manifest()["missing"])
        self.assertGreater(missing, 0)
        self.simulator.write_text(whole)
        self.executed()
        self.wflow("redo", "--missing", "-j", "2", "-q")
        self.assertEqual(self.executed(), {"simulate": missing, "smooth": missing})
        self.assertEqual(self.manifest()["missing"], [])
        self.assert_done()

    def test_delete_inputs_that_is_added_later(self):
        self.wflow("run", self.write(train=False), "-j", "2", "-q")
        self.executed()
        shards, manifest = self.shards(), making(self.campaign() / "data" / "manifest.json")
        self.assertEqual(len(list((self.campaign() / "simulate").rglob("field.npy"))), SAMPLES)
        self.study(self.text(train=False).replace("shard_samples:", "delete_inputs: true, shard_samples:"))
        self.assertRegex(self.wflow("diff").out, rf"(?m)^data: delete_inputs added, {BLOCKS} blocks delete what they were made of$")
        self.update()
        self.assertEqual(self.executed(), {})
        self.assertEqual(list((self.campaign() / "simulate").rglob("field.npy")), [])
        self.assertEqual((self.shards(), making(self.campaign() / "data" / "manifest.json")), (shards, manifest), "nothing follows")
        self.assert_done()
        self.assertIn("nothing differs", self.wflow("diff").out)

    def test_what_a_person_has_removed_is_made_again_for_what_reads_it(self):
        self.wflow("run", self.write(train=False), "-j", "2", "-q")
        self.executed()
        campaign = self.campaign()
        said = self.wflow("rm", campaign, "--keep", "data,.wflow,merlin_info", "--yes").out
        self.assertRegex(said, rf"^removed simulate in {campaign}; data, .wflow, merlin_info stay there\n$")
        self.assertIn("wflow rm removed simulate", [row["text"] for row in self.status()["history"]])
        # Nothing needs it until a block is made again: then its samples alone.
        self.assertIn("nothing differs", self.wflow("diff").out)
        out = self.wflow("redo", "data/1", "-j", "2").out
        self.assertRegex(out, rf"(?m)^simulate: {BLOCK} of {SAMPLES}$")
        self.assertEqual(self.executed(), {"simulate": BLOCK})
        self.assert_done()
        self.assertEqual(self.manifest()["missing"], [])


class CorrectLive(CorrectTest):
    """A campaign that runs: its coordinator is drained, and the command goes on in its place."""

    def setUp(self):
        super().setUp()
        self.gate = self.folder / "open"

    def gated(self, program=None):
        wait = f"[ $(MERLIN_SAMPLE_ID) -lt 5 ] || until [ -e {self.gate} ]; do sleep 0.1; done"
        return f"{wait}\n        " + (program or f"/usr/bin/python3 -S {self.simulator} $(x) $(y) field.npy")

    def start_run(self, *options, **changes):
        self.write(cmd=self.gated(), **changes)
        run = self.start("run", self.folder / "study.yaml", "-j", "2", "-q", *options)
        self.wait_for_campaign(run if not options else None)
        # Five are done and two wait: what there is to do again is known.
        self.wait(lambda: len(lines_of(self.ledger)) == 7, "two tasks wait")
        self.wait_for_done("simulate", 5)
        return run

    def wait_for_drain(self, command):
        self.wait(lambda: self.status()["state"] == "draining", "the campaign drains", command)

    def ran(self):
        return Counter(int(line.split("-")[1]) for line in lines_of(self.ledger))

    def test_redo(self):
        run = self.start_run()
        redo = self.start("redo", "simulate/2")
        self.wait_for_drain(redo)
        self.gate.touch()
        self.assertEqual(run.wait(), INTERRUPTED)
        self.assertEqual(redo.wait(), OK, redo.err)
        self.assertIn("wflow stop", redo.out)
        self.assertEqual(self.ran(), Counter(list(range(SAMPLES)) + [2]))
        self.assert_done()
        # Started like the first one: -j 2.
        self.assertEqual({w["cores"] for w in json.loads(self.wflow("workers", "--json").out)}, {2})

    def test_update(self):
        run = self.start_run()
        self.write(cmd=self.gated() + " # mended")
        update = self.start("resume", "--update")
        self.wait_for_drain(update)
        self.gate.touch()
        self.assertEqual(run.wait(), INTERRUPTED)
        self.assertEqual(update.wait(), OK, update.err)
        # The two that ran while it drained are stale, too.
        self.assertEqual(self.ran(), Counter(list(range(7)) + list(range(SAMPLES))))
        self.assertEqual([v["command"] for v in json.loads(self.wflow("history", "--json").out)], ["run", "resume --update"])
        self.assertIn("nothing differs", self.wflow("diff").out)
        self.assert_done()

    def test_one_that_runs_in_the_background(self):
        self.assertEqual(self.start_run("--detach").wait(), OK)
        redo = self.start("redo", "simulate/0:1")
        self.wait_for_drain(redo)
        self.gate.touch()
        self.assertEqual(redo.wait(), OK, redo.err)
        self.assertIn("runs in the background", redo.out)
        self.wflow("attach", "-q")
        self.assertEqual(self.ran(), Counter(list(range(SAMPLES)) + [0, 1]))
        self.assert_done()

    def test_killed_while_it_drains(self):
        run = self.start_run()
        self.write(cmd=self.gated() + " # mended")
        for command in (("redo", "simulate"), ("resume", "--update")):
            process = self.start(*command, "-q")
            self.wait_for_drain(process)
            process.signal(signal.SIGKILL)
            process.wait()
        self.gate.touch()
        self.assertEqual(run.wait(), INTERRUPTED)
        self.wflow("resume", "-j", "2", "-q")
        self.assertEqual(self.ran(), Counter(range(SAMPLES)))
        self.assert_done()
        self.update()
        self.assertEqual(self.ran(), Counter(2 * list(range(SAMPLES))))

    def test_it_asks_on_a_terminal(self):
        run = self.start_run(train=False)
        terminal = Terminal(self, ["redo", "simulate/1"], columns=200)
        os.write(terminal.descriptor, b"n\n")
        self.assertEqual(terminal.finish(), OK)
        self.assertRegex(terminal.text, r"drained first.*run these again\?")
        self.assertIn("nothing was changed", terminal.text)
        self.gate.touch()
        self.assertEqual(run.wait(), OK)
        self.assertEqual(self.ran(), Counter(range(SAMPLES)))

    def test_diff_with_sources(self):
        run = self.start_run(train=False, sources=True)
        self.assertIn("nothing differs", self.wflow("diff").out)
        self.simulator.write_text(SIMULATOR.replace("FACTOR", "2"))
        self.assertRegex(self.wflow("diff").out, rf"(?m)^simulate: sources changed, {SAMPLES} of {SAMPLES} stale$")
        self.gate.touch()
        self.assertEqual(run.wait(), OK)


@unittest.skipIf(SMALL, "a sanitizer's library must come first")
class CorrectKilled(CorrectTest):
    """SIGKILL in the middle of each: what follows goes on from there, and nothing runs that need not."""

    def test_while_tasks_run(self):
        gate = self.folder / "open"
        wait = f"[ $(MERLIN_SAMPLE_ID) -lt 5 ] || until [ -e {gate} ]; do sleep 0.1; done"
        good = f"{wait}\n        /usr/bin/python3 -S {self.simulator} $(x) $(y) field.npy"
        self.write(cmd="exit 1")
        self.wflow("run", self.folder / "study.yaml", "-j", "2", "-q", code=TASKS_FAILED)
        self.executed()
        self.write(cmd=good)
        update = self.start("resume", "--update", "-j", "2", "-q")
        self.wait(lambda: len(lines_of(self.ledger)) >= 7, "tasks that wait", update)
        self.wait(lambda: self.counts("simulate")["done"] == 5, "five tasks are done", update)
        self.kill_everything()
        update.wait()
        # The change is taken in: another one may follow, from the same place.
        self.write(cmd=good, learning_rate=0.03)
        gate.touch()
        self.executed()
        self.update()
        self.assertEqual(self.executed()["simulate"], SAMPLES - 5)
        self.assert_done()
        self.assertEqual(len(json.loads(self.wflow("history", "--json").out)), 3)

    def test_a_reader_moves_nothing(self):
        """The state after a kill between the record and the link: readers use the recorded version and change no file."""
        self.wflow("run", self.write(), "-j", "2", "-q")
        self.write(learning_rate=0.02)
        self.update()
        link = self.campaign() / ".wflow" / "spec"
        link.unlink()
        link.symlink_to("studies/1")
        self.assertEqual(len(json.loads(self.wflow("history", "--json").out)), 2)
        self.assertIn("nothing differs", self.wflow("diff").out)
        self.wflow("status", "--json")
        self.assertEqual(os.readlink(link), "studies/1")
        self.wflow("resume", "-j", "2", "-q")
        self.assertEqual(os.readlink(link), "studies/2")
        self.assert_done()

    def test_in_each_story(self):
        """One campaign, one change after the other, each killed as soon as it is taken in."""
        more = {"samples": f"design: sobol, count: {2 * SAMPLES}, parameters: {{x: [0, 1], y: [1, 2]}}"}
        smooth = {"more": f"""  - name: smooth
    run:
      cmd: |
        echo smooth-$(MERLIN_SAMPLE_ID) >> {self.ledger}
        cp $(simulate.workspace)/$(MERLIN_SAMPLE_PATH)/field.npy field.npy
      depends: [simulate]
"""}
        target = {"targets": "[x, y]"}
        # The change, and the simulations that it takes at least.
        stories = [
            ("a hyper-parameter", {"learning_rate": 0.02}, 0),
            ("a target", target, 0),
            ("more samples", {**target, **more}, SAMPLES),
            ("a step in the middle", {**target, **more, **smooth}, 0),
            ("a step removed", {**target, **more}, 0),
            ("a command", {**target, **more, "cmd": f"/usr/bin/python3 -S  {self.simulator} $(x) $(y) field.npy"}, 2 * SAMPLES),
        ]
        self.wflow("run", self.write(), "-j", "2", "-q")
        for version, (name, changes, simulations) in enumerate(stories, 2):
            with self.subTest(name):
                self.executed()
                text = self.text(**changes)
                self.study(text.replace("from: simulate", "from: smooth") if "more" in changes else text)
                update = self.start("resume", "--update", "-j", "2", "-q")
                link = self.campaign() / ".wflow" / "spec"
                self.wait(lambda: os.readlink(link) == f"studies/{version}", "the change is taken in", update)
                self.kill_everything()
                update.wait()
                self.wflow("resume", "-j", "2", "-q")
                self.assert_done()
                self.assertEqual(self.manifest()["missing"], [])
                ran = self.executed().get("simulate", 0)
                # Tasks that ran when it was killed run again.
                self.assertTrue(simulations <= ran <= simulations + 2, (ran, simulations))
                self.assertIn("nothing differs", self.wflow("diff").out)

    def kill_when_it_runs(self, *command):
        self.executed()
        process = self.start(*command, "-j", "2", "-q")
        self.wait(lambda: len(lines_of(self.ledger)) >= 1, "the first task", process)
        self.kill_everything()
        process.wait()
        self.wflow("resume", "-j", "2", "-q")
        self.assert_done()
        self.assertEqual(self.manifest()["missing"], [])
        return self.executed()["simulate"]

    def test_in_the_stories_of_outputs(self):
        """NaN, a wrong shape, a script under `sources`: killed while the mend runs."""
        whole = SIMULATOR.replace("FACTOR", "1")
        faults = {"NaN": SIMULATOR.replace("FACTOR", "(float('nan') if x < 0.3 else 1)"),
                  "a wrong shape": whole.replace('header += " "', 'header = header if x > 0.3 else header.replace("(8,)", "(4, 2)")\nheader += " "')}
        for name, broken in faults.items():
            with self.subTest(name):
                for earlier in self.folder.glob("correct_*"):
                    shutil.rmtree(earlier)
                self.simulator.write_text(broken)
                self.wflow("run", self.write(train=False), "-j", "2", "-q")
                missing = len(self.manifest()["missing"])
                self.assertGreater(missing, 0)
                self.simulator.write_text(whole)
                ran = self.kill_when_it_runs("redo", "--missing")
                self.assertTrue(missing <= ran <= missing + 2, (ran, missing))
        self.write(train=False, sources=True)
        self.update()
        self.simulator.write_text(SIMULATOR.replace("FACTOR", "2"))
        ran = self.kill_when_it_runs("resume", "--update")
        self.assertTrue(SAMPLES <= ran <= SAMPLES + 2, ran)
        self.assertIn("nothing differs", self.wflow("diff").out)

    # ---- at every write

    def one_round(self, number, point, when, command, prepare, check):
        folder = self.folder / f"round-{number}"
        folder.mkdir()
        self.ledger = folder / "ledger"
        self.folder, top = folder, self.folder
        self.environment["FAULT_AT"] = "0"
        try:
            prepare()
            count = folder / "count"
            self.environment |= {"FAULT_COUNT": str(count), "FAULT_FOLDER": str(folder), "FAULT_AT": str(point), "FAULT_WHEN": when}
            code = self.start(*command(), "-j", "2", "-q").wait()
            number = struct.unpack("q", count.read_bytes())[0]
            self.environment["FAULT_AT"] = "0"
            if code == -signal.SIGKILL:
                again = self.start(*command(), "-j", "2", "-q")
                self.assertEqual(again.wait(), OK, f"killed {when} {point}\n{again.out}{again.err}")
                # After a redo that was taken in already, nothing is left to redo.
                self.wflow("resume", self.campaign(), "-j", "2", "-q")
            else:
                self.assertEqual(code, OK)
            check(code == -signal.SIGKILL)
            self.assert_done()
            # A write that was killed may leave its temporary file, as everywhere.
            left = [p.name for p in (self.campaign() / ".wflow").iterdir()
                    if p.name in ("aside.json", "old") or (p.name.startswith(".") and ".tmp-" not in p.name)]
            self.assertEqual([name for name in left if name != "old" or list((self.campaign() / ".wflow/old").iterdir())], [])
        finally:
            self.folder = top
        shutil.rmtree(folder)
        return code, number

    def at_every_point(self, command, prepare, check):
        library = self.folder / "fault_points.so"
        source = Path(__file__).with_name("fault_points.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self.environment["LD_PRELOAD"] = str(library)
        _, number = self.one_round(0, 0, "before", command, prepare, check)
        self.assertGreater(number, 40)
        # The first writes are those that take the change in; later ones are a coordinator's, which recovery_test kills.
        number = min(number, 60)
        step = max(1, number // POINTS) if POINTS > 0 else 1
        rounds = killed = 0
        for point in range(1, number + 1, step):
            for when in ("before", "after"):
                rounds += 1
                with self.subTest(point=point, when=when):
                    code, _ = self.one_round(rounds, point, when, command, prepare, check)
                    killed += code == -signal.SIGKILL
        print(f"{number} points, {killed} kills", flush=True)
        self.assertGreater(killed, 0)

    def points_text(self, word, samples=4):
        return f"""
description: {{name: points, description: two steps}}
env: {{variables: {{OUTPUT_PATH: {self.folder}}}}}
samples: {{design: uniform, count: {samples}, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run: {{cmd: "echo work$(MERLIN_SAMPLE_ID) >> {self.ledger}; echo {word} $(x) > {word}"}}
  - name: collect
    run: {{cmd: "echo collect >> {self.ledger}; cat $(work.workspace)/*/{word} > result", depends: [work]}}
"""

    def test_every_write_of_an_update(self):
        def prepare():
            self.wflow("run", self.study(self.points_text("one")), "-j", "2", "-q")
            self.ledger.write_text("")
            self.study(self.points_text("two", 5))

        def check(killed):
            result = read_text(next(self.campaign().glob("collect/result"))).split("\n")
            self.assertEqual([line.split()[0] for line in result if line], ["two"] * 5)
            self.assertEqual(sorted(p.name for p in self.campaign().glob("work/*/*") if p.name in ("one", "two")), ["two"] * 5)
            ran = Counter(lines_of(self.ledger))
            self.assertEqual(set(ran), {f"work{i}" for i in range(5)} | {"collect"})
            # The tasks that ran when it was killed run again.
            self.assertTrue(all(count <= (2 if killed else 1) for count in ran.values()), ran)
            self.assertLessEqual(len(json.loads(self.wflow("history", self.campaign(), "--json").out)), 2)

        self.at_every_point(lambda: ("resume", "--update", self.campaign()), prepare, check)

    def test_every_write_of_a_redo(self):
        def prepare():
            self.wflow("run", self.study(self.points_text("one")), "-j", "2", "-q")
            self.ledger.write_text("")

        def check(killed):
            ran = Counter(lines_of(self.ledger))
            self.assertEqual(set(ran), {"work1", "work2", "collect"})
            self.assertTrue(all(count <= (2 if killed else 1) for count in ran.values()), ran)

        self.at_every_point(lambda: ("redo", self.campaign(), "work/1:2"), prepare, check)


class CorrectProperty(CampaignTest):
    """Random studies, random edits: the outputs are those of a fresh run, and no task runs that need not."""

    def setUp(self):
        super().setUp()
        self.ledger = self.folder / "ledger"

    def random_study(self, dice):
        steps = []
        for number in range(dice.randint(2, 5)):
            self.add_step(dice, steps, f"s{number}")
        return {"rows": [[dice.randint(0, 99), dice.randint(0, 99)] for _ in range(dice.randint(2, 6))], "parameter": [1, 2], "steps": steps}

    @staticmethod
    def add_step(dice, steps, name):
        uses = dice.choice([[], ["x"], ["y"], ["x", "y"], ["P"], ["x", "P"]])
        above = [s["name"] for s in steps]
        depends = sorted(dice.sample(above, dice.randint(0, min(2, len(above)))))
        steps.append({"name": name, "word": f"w{dice.randint(0, 999)}", "uses": uses, "depends": depends, "retries": 1})

    @staticmethod
    def sampled(study):
        """Which steps run once a sample: those that use a column."""
        return {s["name"] for s in study["steps"] if {"x", "y"} & set(s["uses"])}

    @staticmethod
    def varied(study):
        """Which steps run once a value of the parameter: those that use it, and by their workspaces those below."""
        varied = set()
        for step in study["steps"]:
            if "P" in step["uses"] or set(step["depends"]) & varied:
                varied.add(step["name"])
        return varied

    def text(self, study, name):
        sampled, varied = self.sampled(study), self.varied(study)
        text = f"""
description: {{name: {name}, description: random}}
env: {{variables: {{OUTPUT_PATH: {self.folder}}}}}
samples: {{design: list, columns: [x, y], values: {study["rows"]}}}
parameters:
  P: {{values: {study["parameter"]}, label: "P.%%"}}
study:
"""
        for step in study["steps"]:
            reads = []
            for parent in step["depends"]:
                if parent in sampled and step["name"] in sampled:
                    reads.append(f"$({parent}.workspace)/$(MERLIN_SAMPLE_PATH)/out")
                else:
                    reads.append(f"$({parent}.workspace)/{'*/' if parent in sampled else ''}out")
            uses = " ".join(f"$({one})" for one in step["uses"])
            place = "$(MERLIN_SAMPLE_ID)" if step["name"] in sampled else ""
            combination = "$(P)" if step["name"] in varied else ""
            text += f"""  - name: {step["name"]}
    run:
      cmd: |
        echo {step["name"]}/{combination}/{place} >> {self.ledger}
        (echo {step["word"]} {uses}; cat {" ".join(reads) or "/dev/null"}) | md5sum > out
      max_retries: {step["retries"]}
      depends: [{", ".join(step["depends"])}]
"""
        return text

    def keys(self, study):
        """All that decides the output of each task: task -> value. By recursion over tasks, not as wflow does it."""
        sampled, varied = self.sampled(study), self.varied(study)
        steps = {s["name"]: s for s in study["steps"]}
        rows = study["rows"]
        found = {}

        def key(name, value, row):
            place = (name, value if name in varied else None, row if name in sampled else None)
            if place in found:
                return found[place]
            step = steps[name]
            own = [name, step["word"], tuple(step["uses"]), tuple(step["depends"])]
            own += [rows[row][0] if use == "x" else rows[row][1] if use == "y" else value for use in step["uses"]]
            own.append((name in sampled, name in varied))
            for parent in step["depends"]:
                if parent in sampled and name not in sampled:
                    own.append(tuple(key(parent, value, i) for i in range(len(rows))))
                else:
                    own.append(key(parent, value, row))
            found[place] = tuple(own)
            return found[place]

        for step in study["steps"]:
            for value in study["parameter"]:
                for row in range(len(rows)):
                    key(step["name"], value, row)
        return found

    def edit(self, dice, study):
        study = json.loads(json.dumps(study))
        steps = study["steps"]
        kind = dice.choice(["word", "word", "row", "grow", "shrink", "add", "remove", "depends", "retries", "parameter", "uses"])
        if kind == "word":
            dice.choice(steps)["word"] += "x"
        elif kind == "row":
            dice.choice(study["rows"])[dice.randint(0, 1)] += 100
        elif kind == "grow":
            study["rows"] += [[dice.randint(0, 99), dice.randint(0, 99)] for _ in range(dice.randint(1, 3))]
        elif kind == "shrink" and len(study["rows"]) > 3:
            study["rows"] = study["rows"][:-1]
        elif kind == "add":
            self.add_step(dice, steps, f"n{dice.randint(0, 9999)}")
            new = steps.pop()
            steps.insert(dice.randint(len(new["depends"]) and 1 + max(i for i, s in enumerate(steps) if s["name"] in new["depends"]), len(steps)), new)
        elif kind == "remove":
            free = [s for s in steps if not any(s["name"] in t["depends"] for t in steps)]
            if len(steps) > 1:
                steps.remove(dice.choice(free))
        elif kind == "depends" and len(steps) > 1:
            at = dice.randint(1, len(steps) - 1)
            steps[at]["depends"] = sorted(dice.sample([s["name"] for s in steps[:at]], dice.randint(0, min(2, at))))
        elif kind == "retries":
            for step in steps:
                step["retries"] += 1
        elif kind == "parameter":
            study["parameter"] = dice.choice([[1, 2], [2, 1, 3], [2, 3], [1, 2, 3]])
        elif kind == "uses":
            dice.choice(steps)["uses"] = dice.choice([[], ["x"], ["y"], ["P"], ["x", "P"]])
        return study

    def outputs(self, campaign, study):
        return {str(p.relative_to(campaign)): p.read_text() for s in study["steps"] for p in (campaign / s["name"]).rglob("out")}

    def one_seed(self, seed):
        dice = random.Random(seed)
        study = self.random_study(dice)
        path = self.study(self.text(study, f"c{seed}"), f"c{seed}.yaml")
        self.wflow("run", path, "-j", "2", "-q")
        campaign = next(self.folder.glob(f"c{seed}_*"))
        for edit in range(EDITS):
            changed = study
            for _ in range(dice.randint(1, 3)):
                changed = self.edit(dice, changed)
            path.write_text(self.text(changed, f"c{seed}"))
            self.ledger.write_text("")
            self.wflow("resume", campaign, "--update", "-j", "2", "-q")
            executed = Counter(lines_of(self.ledger))
            before, after = self.keys(study), self.keys(changed)
            needed = Counter("/".join("" if part is None else str(part) for part in place)
                             for place, key in after.items() if before.get(place) != key)
            self.assertEqual(executed, needed, f"seed {seed}, edit {edit}\n{self.text(study, 'a')}\n{self.text(changed, 'b')}")
            fresh = self.study(self.text(changed, f"f{seed}-{edit}"), "fresh.yaml")
            self.wflow("run", fresh, "-j", "2", "-q")
            other = next(self.folder.glob(f"f{seed}-{edit}_*"))
            self.assertEqual(self.outputs(campaign, changed), self.outputs(other, changed), f"seed {seed}, edit {edit}")
            shutil.rmtree(other)
            study = changed
        shutil.rmtree(campaign)

    def test_random_edits(self):
        for seed in range(SEEDS[0], SEEDS[1]):
            with self.subTest(seed=seed):
                self.one_seed(seed)


if __name__ == "__main__":
    unittest.main()
