# SPDX-License-Identifier: Apache-2.0
"""What users type in the life of a campaign, and by habit from other programs: each spelling ends in the right result,
or in one sentence with the command that does. The grammar for tasks, which all commands about tasks share."""

import csv
import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from wflow_test import BIN, OK, SOURCE, TASKS_FAILED, USAGE, CampaignTest, Gate, Terminal, gated_study, lines_of, wait_for

SAMPLES = 12

SIMULATOR = """import sys
sample, x = int(sys.argv[1]), float(sys.argv[2])
print("simulates", sample)
y = 3 * x + 1
open("result.csv", "w").write("y\\n%s\\n" % (float("nan") if sample == BAD else y))
open(FOLDER + "/ran", "a").write("sim/%d\\n" % sample)
"""


class Life(CampaignTest):
    """A simulator in Python, a step once a sample after it, one that collects, a data set, a training."""

    def text(self, count=SAMPLES, command="python3 sim.py", rate=0.01, post="", middle="", target="", train=True):
        return f"""description: {{name: life, description: of a campaign}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: sobol, count: {count}, parameters: {{x: [0, 1]}}}}
study:
  - name: sim
    run: {{cmd: {command} $(MERLIN_SAMPLE_ID) $(x), sources: [{self.folder}/sim.py]}}
{middle}  - name: post
    run: {{cmd: 'cp $(sim.workspace)/$(MERLIN_SAMPLE_PATH)/result.csv post.csv; echo post/$(MERLIN_SAMPLE_ID) >> {self.folder}/ran{post}', depends: [sim]}}
  - name: collect
    run: {{cmd: echo collect >> {self.folder}/ran, depends: [post]}}
  - name: data
    convert: {{from: post, inputs: [x], targets: {{y: {{file: post.csv, columns: [y]}}{target}}}, shard_samples: 4}}
""" + (f"""  - name: train
    train: {{data: data, epochs: 1, batch: 4, model: {{name: mlp, dense: [4]}}, optimizer: {{learning_rate: {rate}}}}}
""" if train else "")

    def write(self, bad=-1, **changes):
        (self.folder / "sim.py").write_text(SIMULATOR.replace("BAD", str(bad)).replace("FOLDER", repr(str(self.folder))))
        changes.setdefault("command", f"python3 {self.folder}/sim.py")
        return self.study(self.text(**changes), "life.yaml")

    def live(self, code=OK, **changes):
        self.write(**changes)
        self.wflow("run", "-j", "2", "-q", code=code)  # the only study here
        self.forget()
        return self.campaign()

    def forget(self):
        (self.folder / "ran").write_text("")

    def ran(self):
        found = {}
        for line in lines_of(self.folder / "ran"):
            step = line.split("/")[0]
            found[step] = found.get(step, 0) + 1
        self.forget()
        return found

    def says(self, *words, code=USAGE):
        """One sentence on standard error."""
        return self.sentence(self.wflow(*words, code=code))


class Story(Life):
    """Each begins from the finished campaign, but for those that say so."""

    def test_a_typo_in_the_command(self):
        campaign = self.live(command="python3 /nowhere/sim.py", code=TASKS_FAILED, train=False)
        out = self.wflow("resume", code=TASKS_FAILED).out
        self.assertIn(f"wflow retry {campaign}", out)
        self.write(train=False)
        self.assertIn(f"wflow resume --update {campaign}", self.wflow("resume", code=TASKS_FAILED).out)
        said = self.says("run")
        self.assertIn(f"wflow resume --update {campaign}", said)
        self.assertIn("wflow run --new life.yaml", said)
        self.wflow("run", "--update", "-q")
        self.assertEqual(self.ran(), {"sim": SAMPLES, "post": SAMPLES, "collect": 1})

    def test_a_program_that_is_not_in_path(self):
        def warned(command):
            return self.wflow("validate", self.study(f"""description: {{name: p}}
study:
  - name: sim
    run: {{cmd: "{command}"}}
""")).err
        self.assertIn("the step 'sim' begins with 'nosuchprogram', which is not in PATH here", warned("nosuchprogram -x 3"))
        for command in ("wflow-cola --help", "sort /dev/null", "for i in 1 2; do echo; done", "module load sim; nosuchprogram", "cd /; nosuchprogram",
                        "X=1 nosuchprogram", "/opt/nosuchprogram"):
            self.assertEqual(warned(command), "", command)

    def test_b_and_c_one_sample_is_nan(self):
        campaign = self.live(bad=10, train=False)
        self.assertRegex(self.wflow("status").out, r"11 of 12 samples are usable.*\n.*NaN")
        rows = json.loads(self.wflow("samples", "--missing", "--json").out)
        self.assertEqual([row["id"] for row in rows], [10])
        self.assertEqual(self.wflow("tasks", "--failed").out.strip(), "no such task")
        self.assertIn("wflow redo --missing", self.wflow("retry", "--missing").out)
        self.assertIn("wflow redo", self.wflow("retry", "sim/10").out)
        self.write(train=False)
        self.assertRegex(self.wflow("redo", "--missing", "-n").out, r"(?s)sim: 1 of 12.*post: 1 of 12.*nothing was changed")
        self.wflow("redo", "--missing", "-q", "-y")
        self.assertEqual(self.ran(), {"sim": 1, "post": 1, "collect": 1})
        self.wflow("redo", "sim/10", campaign, "-q", "-y")
        self.assertEqual(self.ran(), {"sim": 1, "post": 1, "collect": 1})

    def test_d_more_samples(self):
        campaign = self.live(train=False)
        self.assertIn("12 samples become 16", self.wflow("extend", "--count", "+4", "-n").out)
        self.wflow("extend", "--count", "+4", "-q")
        self.assertEqual(self.ran(), {"sim": 4, "post": 4, "collect": 1})
        self.wflow("extend", "--count", "18", "-q")
        self.assertEqual(self.ran(), {"sim": 2, "post": 2, "collect": 1})
        self.write(count=20, train=False)
        self.assertIn(f"wflow resume --update {campaign}", self.says("run"))
        self.wflow("resume", "--update", "-q")
        self.assertEqual(self.ran(), {"sim": 2, "post": 2, "collect": 1})

    def test_e_f_g_h_changes(self):
        campaign = self.live()
        self.write(rate=0.02)
        self.assertIn("train: ", self.wflow("diff").out)
        said = self.says("run")
        self.assertRegex(said, r"go on with it \(1 task to run\): wflow resume --update .*begin anew \(\d+ tasks\): wflow run --new")
        self.wflow("resume", "--update", "-q")
        self.assertEqual(self.ran(), {})
        # A step in the middle, under another name afterwards, and gone again.
        middle = "  - name: between\n    run: {cmd: echo between >> %s/ran, depends: [sim]}\n" % self.folder
        self.write(rate=0.02, middle=middle)
        self.wflow("run", "--update", "-q")
        self.assertEqual(self.ran(), {"between": 1})
        self.write(rate=0.02)
        self.wflow("resume", "--update", "-q")
        self.assertEqual(self.ran(), {})
        # The script: found by its content.
        self.write(rate=0.02, bad=3)
        self.assertIn("sim: ", self.wflow("diff").out)
        self.assertIn(f"wflow resume --update {campaign}", self.says("run"))
        self.wflow("redo", "sim", "-n")
        self.assertEqual(self.ran(), {})
        self.wflow("redo", "sim/3", "-q", "-y")
        self.assertEqual(self.ran(), {"sim": 1, "post": 1, "collect": 1})

    def test_i_killed(self):
        gate = Gate(self.folder, 2)
        self.study(gated_study(gate, 6), "life.yaml")
        run = self.start("run", "-j", "2")
        self.wait(lambda: gate.waiting(), "a task that waits", run)
        # A task that is killed between its last line and its end would run again.
        self.wait_for_done("work", 2, run)
        campaign = self.campaign()
        self.kill_everything()
        run.wait()
        said = self.says("run")
        self.assertIn(f"wflow resume {campaign}", said)
        self.assertRegex(said, r"is not finished; go on with it \(\d+ tasks to run\)")
        gate.open()
        self.wflow("status")
        self.wflow("resume", "-q")
        self.assertEqual(len(gate.passed()), 6)

    def test_j_moved(self):
        campaign = self.live(train=False)
        place = self.folder / "elsewhere"
        place.mkdir()
        shutil.move(campaign, place)
        moved = place / campaign.name
        self.wflow("status", moved)
        self.wflow("resume", moved, "-q")
        self.wflow("report", moved)
        self.assertEqual(self.ran(), {})

    def test_k_which_failed_and_why(self):
        self.live(command=f"test $(MERLIN_SAMPLE_ID) != 3 && test $(MERLIN_SAMPLE_ID) != 7 && python3 {self.folder}/sim.py",
                  code=TASKS_FAILED, train=False)
        self.assertEqual([row["task"] for row in json.loads(self.wflow("tasks", "sim", "--failed", "--json").out)], ["sim/3", "sim/7"])
        self.assertIn("exit code 1", self.wflow("tasks", "--group").out)
        logs = self.wflow("logs", "sim", "--failed").out
        self.assertIn("sim/3", logs)
        self.assertIn("sim/7", logs)
        self.assertNotIn("sim/4", logs)
        self.assertEqual(self.wflow("explain", "sim", "--failed").out.count("exit code 1"), 2)
        self.assertIn("2 tasks would run again", self.wflow("retry", "sim/1-5,7", "-n").out)
        self.assertIn("1 task would run again", self.wflow("retry", "sim/1-5", "-n").out)
        self.assertIn("for failed ones: wflow retry", self.says("redo", "--failed"))
        self.assertIn("these are 2 tasks; name one, for example sim/3", self.says("rerun", "--failed"))

    def test_l_a_table_for_pandas(self):
        campaign = self.live(bad=5)
        rows = list(csv.DictReader(self.wflow("samples", "--csv").out.splitlines()))
        self.assertEqual([int(row["id"]) for row in rows], list(range(SAMPLES)))
        predicted = 0
        for row in rows:
            if row["id"] == "5":  # NaN
                self.assertEqual((row["state"], row["y[0]"]), ("missing", ""))
                continue
            self.assertEqual(float(row["y[0]"]), 3 * float(row["x"]) + 1)
            self.assertGreater(float(row["duration_s"]), 0)
            self.assertGreater(int(row["peak_bytes"]), 1000)
            self.assertEqual(row["y[0]_predicted"] != "", row["split"] == "test")
            if row["split"] == "test":
                predicted += 1
                self.assertAlmostEqual(float(row["y[0]_error"]), float(row["y[0]_predicted"]) - float(row["y[0]"]), places=5)
                self.assertEqual(row["training"], "train")
        self.assertGreater(predicted, 0)
        slow = list(csv.DictReader(self.wflow("samples", "--step", "sim", "--where", "time > 1ms and memory > 1e6", "--csv").out.splitlines()))
        self.assertEqual(len(slow), SAMPLES)
        self.assertGreater(float(slow[0]["cpu_s"]), 0)
        self.assertIn("no training 'trian' has predictions; there are train", self.says("samples", "--training", "trian"))
        self.wflow("export", "--csv", "tables")
        self.assertEqual(list(csv.DictReader(lines_of(self.folder / "tables/samples.csv"))), rows)
        python = f"import wflow; print(wflow.Campaign({str(campaign)!r}).samples()[['x', 'y[0]', 'y[0]_error', 'duration_s', 'peak_bytes']].dtypes)"
        printed = subprocess.run(["/usr/bin/python3", "-c", python], capture_output=True, text=True, check=True,
                                 env={**self.environment, "PYTHONPATH": str(SOURCE / "python"), "WFLOW": str(BIN / "wflow")})
        self.assertEqual([line.split()[-1] for line in printed.stdout.splitlines()[:5]], ["float64"] * 4 + ["int64"])
        used = list(csv.DictReader(self.wflow("usage", "sim", "--csv").out.splitlines()))
        self.assertEqual([row["step"] for row in used], ["sim"])
        self.assertGreater(float(used[0]["duration_median_s"]), 0)
        self.assertGreater(int(used[0]["peak_bytes_max"]), 1000)

    def test_l_each_combination_has_its_data_and_training(self):
        self.write()
        text = (self.folder / "life.yaml").read_text().replace("study:\n", "parameters: {A: {values: [1, 2], label: A.%%}}\nstudy:\n", 1)
        self.study(text.replace("$(x), sources", "$(x) $(A), sources"), "life.yaml")
        self.wflow("run", "-j", "2", "-q")

        def rows(*words):
            return list(csv.DictReader(self.wflow("samples", "--csv", *words).out.splitlines()))

        for words, trained in (((), {"train/A.1", "train/A.2"}), (("--training", "train/A.2"), {"train/A.2"})):
            found = rows(*words)
            self.assertEqual(len(found), 2 * SAMPLES)
            self.assertEqual({row["training"] for row in found} - {""}, trained)
            for row in found:
                self.assertEqual(float(row["y[0]"]), 3 * float(row["x"]) + 1)
                if row["training"]:
                    self.assertEqual((row["split"], row["array"].split("/")[1]), ("test", row["training"].split("/")[1]))

    def test_m_before_it_runs(self):
        self.write(train=False)
        for words in (("plan",), ("run", "-n"), ("run", "--dry-run")):
            self.assertIn("sim (run)", self.wflow(*words).out.replace("(shell)", "(run)"))
        self.assertIsNone(self.campaign())
        # Three tasks of each step, in a directory that goes.
        done = self.wflow("plan", "--sample", "3", "-j", "2")
        folder = Path(re.search(r"3 tasks of each step run in (\S+)\n", done.err)[1])
        self.assertFalse(folder.exists())
        self.assertIsNone(self.campaign())
        self.assertEqual(self.ran(), {"sim": 3, "post": 3, "collect": 1})
        self.assertIn("the whole campaign, estimated from 3 tasks of each step on this machine:", done.out)
        for line in ("core-hours", "node-hours", "time", "memory", "disk"):
            self.assertRegex(done.out, rf"  {line} +\S")
        self.assertNotIn("train", done.out)

    def test_m_estimates(self):
        self.write(count=600)
        estimate = json.loads(self.wflow("plan", "--sample", "2", "--json").out)
        steps = {step["step"]: step for step in estimate["steps"]}
        self.assertEqual((steps["sim"]["tasks"], steps["sim"]["measured"]), (600, 2))
        self.assertEqual((steps["collect"]["tasks"], steps["collect"]["measured"]), (1, 1))
        low, high = steps["sim"]["task_s"]["low"], steps["sim"]["task_s"]["high"]
        self.assertTrue(0 < low <= high)
        self.assertAlmostEqual(steps["sim"]["core_hours"]["low"] * 3600, 600 * low, delta=600 * low * 0.02)
        self.assertAlmostEqual(steps["sim"]["core_hours"]["high"] * 3600, 600 * high, delta=600 * high * 0.02)
        self.assertGreater(steps["collect"]["core_hours"]["high"], 100 * steps["collect"]["core_hours"]["low"])
        self.assertGreater(estimate["peak_bytes"], 1e6)
        self.assertGreater(estimate["disk_bytes"]["low"], 600)
        self.assertEqual(estimate["left_out"], ["train"])

    def test_m_a_sample_that_fails(self):
        self.write(command="echo broken && false", train=False)
        done = self.wflow("plan", "--sample", "2", code=TASKS_FAILED)
        kept = Path(re.search(r"3 tasks of the sample failed; the campaign is kept: (\S+)\n", done.err)[1])
        self.addCleanup(shutil.rmtree, kept.parent, ignore_errors=True)
        self.assertIn("broken", done.err)
        self.assertIn("sim/1", self.wflow("tasks", kept, "--failed").out)

    def test_m_parameters_take_the_place_of_samples(self):
        """Two combinations of four, the first and the last."""
        self.study(f"""description: {{name: many, description: d}}
on: {{finished: echo hook >> {self.folder}/ran}}
parameters: {{A: {{values: [1, 2, 3, 4], label: A.%%}}}}
study:
  - {{name: one, run: {{cmd: echo one/$(A) >> {self.folder}/ran}}}}
  - {{name: all, run: {{cmd: echo all >> {self.folder}/ran, depends: [one_*]}}}}
""", "many.yaml")
        estimate = json.loads(self.wflow("plan", "many.yaml", "--sample", "2", "--json").out)
        self.assertEqual(sorted(lines_of(self.folder / "ran")), ["all", "one/1", "one/4"])
        self.assertEqual([(step["step"], step["tasks"], step["measured"]) for step in estimate["steps"]], [("one", 4, 2), ("all", 1, 1)])

    def test_n_what_a_task_needs(self):
        self.live(train=False)

        def tasks(*words):
            return [row["task"] for row in json.loads(self.wflow("tasks", "--json", *words).out)]

        used = {row["task"]: row for row in json.loads(self.wflow("tasks", "sim", "--json").out)}
        most = max(row["peak_bytes"] for row in used.values())
        self.assertEqual(tasks("sim", "--where", f"memory >= {most}"), [name for name, row in used.items() if row["peak_bytes"] == most])
        self.assertEqual(len(tasks("sim", "--where", "memory > 1MiB and time < 10min and cpu > 0")), SAMPLES)
        self.assertEqual(tasks("sim", "--where", "memory > 1e12 or time > 1h"), [])
        self.assertIn("did you mean 'memory'? there are step, array, state,", self.says("tasks", "--where", "memry > 1"))
        self.assertIn("memory is a number of bytes (1e9, 2GiB), '3 sheep' is not", self.says("redo", "--where", "memory > '3 sheep'"))

    def test_o_be_told_when_it_has_ended(self):
        self.write()
        study = self.study(self.text(command=f"python3 {self.folder}/sim.py") + f"on: {{finished: 'echo $WFLOW_STATE > {self.folder}/ended'}}\n", "life.yaml")
        self.wflow("run", study, "-j", "2", "-q")
        # wflow does not wait for the command.
        self.assertEqual(wait_for(lambda: lines_of(self.folder / "ended"), "the command of finished"), ["finished"])
        self.assertIn("finished", self.wflow("attach").out)
        self.assertIn("wflow attach", self.says("status", "--wait"))

    def test_p_one_sample_by_hand(self):
        self.live(train=False)
        self.assertIn("simulates 3", self.wflow("rerun", "sim/3").out)
        self.assertIn("wflow rerun STEP/3 --shell", self.says("shell", "sim/3"))

    def test_q_less_disk(self):
        campaign = self.live(train=False)
        self.assertIn("sim: ", self.wflow("clean", "sim", "-n").out)
        self.assertIn("say --yes", self.says("clean", "sim"))
        self.assertTrue((campaign / "sim").exists())
        self.assertIn("raw outputs of steps with run:", self.says("clean", "data", "-y"))
        self.wflow("clean", "sim", "post", "-y")
        self.assertFalse((campaign / "sim").exists())
        self.assertIn("nothing is left to run", self.wflow("resume").out)
        self.assertEqual(self.ran(), {})
        # A data set that has to be made again needs them.
        self.write(train=False, target=", z: {file: post.csv, columns: [y]}")
        self.wflow("resume", "--update", "-q")
        self.assertEqual(self.ran(), {"sim": SAMPLES, "post": SAMPLES, "collect": 1})

    def test_r_up_to_a_step(self):
        self.write(train=False)
        self.assertIn("no step 'posst'", self.says("run", "--until", "posst"))
        self.assertIsNone(self.campaign())
        self.wflow("run", "--until", "post", "-j", "2", "-q")
        self.assertEqual(self.ran(), {"sim": SAMPLES, "post": SAMPLES})
        self.wflow("resume", "--until", "collect", "-q")
        self.assertEqual(self.ran(), {"collect": 1})
        self.wflow("resume", "-q")
        self.assertEqual(self.ran(), {})
        self.assertEqual(self.status()["state"], "finished")

    def test_s_a_change_that_does_not_matter(self):
        self.live()
        self.write(post=" ")
        self.assertIn("post: cmd changed, 12 of 12 stale", self.wflow("diff").out)
        self.assertIn("wflow resume --update --touch", self.says("touch"))
        self.assertIn("nothing runs again", self.wflow("resume", "--update", "--touch").out)
        self.assertEqual(self.ran(), {})
        self.assertIn("nothing differs", self.wflow("diff").out)
        # A script that has changed without effect.
        with open(self.folder / "sim.py", "a") as script:
            script.write("# a comment\n")
        self.assertIn("sim: ", self.wflow("diff").out)
        self.wflow("resume", "--update", "--touch", "-q")
        self.assertEqual(self.ran(), {})
        self.assertIn("nothing differs", self.wflow("diff").out)

    def test_t_beside_the_old_one(self):
        self.live(train=False)
        self.write(train=False, count=4)
        self.wflow("run", "--new", "-q")
        self.assertEqual(self.ran(), {"sim": 4, "post": 4, "collect": 1})

    def test_on_a_terminal(self):
        campaign = self.live(train=False)
        self.write(train=False, post=" ")
        for answer, code, ran in (("q\n", OK, {}), ("u\n", OK, {"post": SAMPLES, "collect": 1})):
            terminal = Terminal(self, ["run", "-j", "2"], columns=200)
            os.write(terminal.descriptor, answer.encode())
            self.assertEqual(terminal.finish(), code, terminal.text)
            self.assertRegex(terminal.text, rf"\[u\]pdate {campaign.name} \(17 tasks to run\) / \[n\]ew campaign \(29 tasks\)")
            self.assertEqual(self.ran(), ran)
        self.write(train=False, post="  ")
        terminal = Terminal(self, ["resume"], columns=200)
        os.write(terminal.descriptor, b"\n")
        self.assertEqual(terminal.finish(), OK)
        self.assertIn("take this into the campaign? [Y/n]", terminal.text)
        self.assertEqual(self.ran(), {"post": SAMPLES, "collect": 1})

    def test_habits_of_others(self):
        self.write(train=False)
        self.assertIsNone(self.campaign())
        for words, part in ((("run", "--cors", "2"), "--cores"), (("run", "--forceall"), "wflow run --new"),
                            (("run", "-resume"), "wflow resume"), (("run", "--summary"), "wflow status"),
                            (("status", "--jsn"), "--json"), (("squeue",), "wflow status"), (("scancel", "sim/3"), "wflow cancel"),
                            (("kill",), "wflow stop"), (("list",), "wflow ls"), (("submit", "life.yaml"), "wflow run"),
                            (("tasks", "--array", "1-5,7"), "STEP/1-5,7"), (("run", "--unlock"), "not needed")):
            self.assertIn(part, self.says(*words))
        self.wflow("run", "--jobs", "2", "--set", "OUTPUT_PATH=.", "-q")
        self.assertEqual(self.ran(), {"sim": SAMPLES, "post": SAMPLES, "collect": 1})


class Words(Life):
    """STEP, STEP/3, STEP/1-5,7 and the campaign, first or last."""

    def test_the_grammar(self):
        campaign = self.live(train=False)

        def tasks(*words):
            return [row["task"] for row in json.loads(self.wflow("tasks", "--json", *words).out)]

        self.assertEqual(tasks("sim/1-3,7"), ["sim/1", "sim/2", "sim/3", "sim/7"])
        self.assertEqual(tasks("sim/10:"), ["sim/10", "sim/11"])
        self.assertEqual(tasks(campaign, "sim/3"), ["sim/3"])
        self.assertEqual(tasks("sim/3", campaign), ["sim/3"])
        self.assertEqual(tasks("sim/3", "life"), ["sim/3"])
        self.assertEqual(tasks("life.yaml", "sim/3", "post/4", "sim/2-3"), ["sim/3", "post/4", "sim/2"])
        self.assertEqual(len(tasks("life")), 2 * SAMPLES + 1 + 3 + 1)
        self.assertEqual(tasks("sim", "--range", "1-2,5"), ["sim/1", "sim/2", "sim/5"])
        self.assertIn("'sim/12': the tasks of sim are 0 to 11", self.says("tasks", "sim/12"))
        self.assertIn("'sim/5-20': the tasks of sim are 0 to 11", self.says("retry", "sim/5-20"))
        self.assertIn("did you mean 'sim'?", self.says("logs", "simm/3"))
        self.assertIn("write numbers and ranges", self.says("redo", "sim/x"))
        self.assertIn("name the step once", self.says("tasks", "sim", "--step", "post"))
        self.assertIn("collect is a single task", self.says("explain", "collect/2"))
        self.assertIn("name the tasks: STEP/3", self.says("logs"))
        self.assertEqual(self.wflow("logs", "sim/2-3").out.count("simulates"), 2)
        self.assertEqual(json.loads(self.wflow("logs", "sim/2", "--json").out)["out"], "simulates 2\n")
        self.assertEqual([one["out"] for one in json.loads(self.wflow("logs", "sim/2-3", "--json").out)],
                         ["simulates 2\n", "simulates 3\n"])
        self.assertIn("the first 2 of 12; --limit 0 shows all", self.wflow("logs", "sim", "--limit", "2").out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
