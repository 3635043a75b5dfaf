# SPDX-License-Identifier: Apache-2.0
"""The command line as such: help, manual pages, completion, templates, rerun, the list of a user's campaigns."""

import csv
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import unittest

from wflow_test import BIN, DATA, INTERRUPTED, OK, SOURCE, SYSTEM, TASKS_FAILED, USAGE, CampaignTest, Gate, Terminal, gated_study

# Verbs that print nothing of their own, or whose output is for programs as it is.
# exec prints what its commands print, report an HTML page, metrics the text that Prometheus reads, export a crate.
WITHOUT_JSON = {"convert", "train", "event", "exec", "export", "launch", "metrics", "propose", "report", "worker", "help", "completion", "schema", "top"}


class Definitions(CampaignTest):
    def verbs(self):
        return [line.split("\t")[0] for line in self.wflow("complete", "").out.splitlines()]

    def options(self, verb):
        listed = self.wflow(verb, "--help").out
        # The options stand at the left edge; what they exclude stands behind them.
        return sorted({name for line in listed.splitlines() if line.startswith("  -")
                       for name in re.findall(r"--[a-z-]+", line.split()[0])} - {"--help"})

    def test_every_verb_and_option_is_in_help_manual_and_completion(self):
        self.wflow("manual", self.folder / "man")
        verbs = self.verbs()
        self.assertIn("run", verbs)
        overview = self.wflow("--help").out
        page = (self.folder / "man" / "wflow.1").read_text()
        for verb in verbs:
            self.assertIn(f"\n  {verb} ", overview)
            escaped = verb.replace("-", "\\-")
            self.assertIn(f"wflow\\-{escaped} (1)", page)
            if verb in ("analyze", "convert", "infer", "predict", "shards", "train"):  # programs of their own
                continue
            text = self.wflow(verb, "--help").out
            self.assertIn("Examples:\n  ", text, verb)
            self.assertEqual(self.wflow("help", verb).out, text)
            manual = (self.folder / "man" / f"wflow-{verb}.1").read_text().replace("\\-", "-")
            completed = [line.split("\t")[0] for line in self.wflow("complete", verb, "--").out.splitlines()]
            for option in self.options(verb):
                self.assertRegex(manual, rf"{option}(, --[a-z-]+)*\\fR", f"{verb} {option}")
                self.assertIn(option, completed, f"{verb} {option}")
            if verb not in WITHOUT_JSON:
                self.assertIn("--json", self.options(verb), verb)

    def test_manual_pages_are_sound(self):
        if shutil.which("groff") is None:
            self.skipTest("no groff here")
        self.wflow("manual", self.folder / "man")
        for page in (self.folder / "man").iterdir():
            done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", page], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)
            self.assertIn("EXIT STATUS", re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout), page)

    def test_documents_are_of_today(self):
        self.assertEqual((SOURCE / "docs" / "commands.md").read_text(), self.wflow("manual", "--table").out,
                         "make it again: wflow manual --table > docs/commands.md")
        table = re.findall(r"^\| (\d+) \| (\w+) \| (.*?) \|", (SOURCE / "docs" / "exit-codes.md").read_text(), re.M)
        said = self.wflow("help", "exit-codes").out.splitlines()
        own = [row for row in table if not row[1].startswith("MERLIN")]
        self.assertEqual(len(own), len(said))
        for (code, name, meaning), line in zip(own, said):
            self.assertRegex(line, rf"^ *{code}  {name} +{re.escape(meaning)}")

    def test_analyze_is_a_program_of_the_trainer(self):
        self.assertIn("--gaussian-process", self.wflow("help", "analyze").out)
        self.assertEqual(self.wflow("help", "analyze").out, self.wflow("analyze", "--help").out)
        self.assertIn("there is no folder nowhere", self.wflow("analyze", "nowhere", code=DATA).err)
        self.assertIn("a power of two", self.wflow("analyze", "nowhere", "--points", "1000", code=USAGE).err)

    def test_infer_is_a_program_of_the_trainer(self):
        self.assertIn("--calibrate", self.wflow("help", "infer").out)
        self.assertIn("there is no folder nowhere", self.wflow("infer", "nowhere", code=DATA).err)

    def test_views_are_as_documented(self):
        rows = re.findall(r"^\| `(v_\w+)` \| .*? \| (.*) \|$", (SOURCE / "docs" / "database.md").read_text(), re.M)
        documented = {view: [c.strip() for c in re.sub(r"\([^)]*\)", "", columns).split(",")] for view, columns in rows}
        self.wflow("run", self.study(gated_study(Gate(self.folder, 1), 1)), "-q")
        with sqlite3.connect(self.campaign() / ".wflow" / "campaign.db") as database:
            names = [name for (name,) in database.execute("select name from sqlite_master where type = 'view'")]
            actual = {name: [row[1] for row in database.execute(f"pragma table_info({name})")] for name in names}
        self.assertEqual(actual, documented)

    def test_completion_scripts(self):
        script = self.wflow("completion", "bash").out
        asked = f"""{script}
compopt() {{ :; }}
COMP_WORDS=(wflow sta); COMP_CWORD=1; _wflow; echo "${{COMPREPLY[*]}}"
COMP_WORDS=(wflow tasks --sta); COMP_CWORD=2; _wflow; echo "${{COMPREPLY[*]}}"
COMP_WORDS=(wflow run stu); COMP_CWORD=2; _wflow; echo "${{#COMPREPLY[@]}}"
complete -p wflow"""
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True, env=self.environment, cwd=self.folder)
        self.assertEqual(done.stdout.splitlines()[:3], ["status", "--state", "0"])
        self.assertIn("-o default", done.stdout, "files where wflow knows nothing")
        for shell in ("zsh", "fish"):
            text = self.wflow("completion", shell).out
            if shutil.which(shell):
                subprocess.run([shell, "-n", "-c", text], check=True)
        self.assert_one_sentence(self.wflow("completion", "tcsh", code=USAGE), "bash, zsh and fish")

    def test_completes_what_there_is(self):
        self.wflow("run", self.study(gated_study(Gate(self.folder, 3), 3)), "-q")
        name = self.campaign().name

        def words(*given):
            return [line.split("\t")[0] for line in self.wflow("complete", *given).out.splitlines()]

        self.assertEqual(words("status", ""), [name])
        self.assertEqual(words("tasks", "--step", ""), ["work"])
        self.assertEqual(words("tasks", name, "--state", "fa"), ["failed"])
        self.assertEqual(words("explain", "w"), ["work/"])
        self.assertEqual(words("explain", name, ""), ["work/"])
        self.assertEqual(words("help", "exit"), ["exit-codes"])
        self.assertEqual(words("nonsense", ""), [])
        self.assertEqual(words("status", "nowhere", "--step", ""), [])

    def test_help_lists_the_commands(self):
        said = self.wflow("help").out
        self.assertEqual(said, self.wflow("--help").out)
        for command in ("run", "resume", "status", "tasks", "doctor"):
            self.assertRegex(said, rf"(?m)^  {command} ")

    def test_words_that_are_no_campaign(self):
        (self.folder / "empty").mkdir()
        (self.folder / "begun" / ".wflow").mkdir(parents=True)
        for words in (["status"], ["tasks"], ["workers"], ["resume"], ["retry"], ["rm"], ["logs"], ["rerun"], ["explain"]):
            task = ["work"] if words[0] in ("logs", "rerun", "explain") else []
            self.assert_one_sentence(self.wflow(*words, "empty", *task, code=USAGE), "is not a campaign directory")
            self.assert_one_sentence(self.wflow(*words, "begun", *task, code=USAGE), "no campaign was started here yet")
            self.assert_one_sentence(self.wflow(*words, "x" * 300, *task, code=USAGE), "no campaign directory")
        self.assert_one_sentence(self.wflow("init", "hello", "x" * 300, code=SYSTEM), "File name too long")

    def test_wrong_words(self):
        for arguments, parts in ((("statsu",), ("no command 'statsu'", "status")), (("help", "rnu"), ("no command 'rnu'", "run")),
                                 (("init", "helo"), ("no template 'helo'", "hello")), ((), ("subcommand",)),
                                 (("tasks", "--jsno"), ("--jsno",)), (("status", "nowhere"), ("nowhere",))):
            self.assert_one_sentence(self.wflow(*arguments, code=USAGE), *parts)

    def test_a_reader_that_goes_away(self):
        # Like `wflow help | head -1`: no message, and no hanging.
        for arguments in ("--help", "init", "help run"):
            done = subprocess.run(["bash", "-c", f"set -o pipefail; wflow {arguments} | true"], capture_output=True, text=True, check=False,
                                  env=self.environment, timeout=60)
            self.assertEqual(done.stderr, "")


class Templates(CampaignTest):
    def test_all_run_as_they_are(self):
        names = [row["name"] for row in json.loads(self.wflow("init", "--json").out)]
        self.assertLessEqual({"hello", "parameters", "samples", "chain", "restart", "python", "cosmoflow", "iterate", "bundle"}, set(names))
        listed = self.wflow("init").out
        for name in names:
            self.assertIn(name, listed)
            if name == "cosmoflow":  # TemplatesInTraining
                continue
            file = self.folder / name / "study.yaml"
            self.assertIn("wflow run", self.wflow("init", name, self.folder / name).out)
            before = file.read_text()
            self.assert_one_sentence(self.wflow("init", "hello", self.folder / name, code=USAGE), "exists already")
            self.assertEqual(file.read_text(), before)
            self.assertEqual(self.wflow("validate", file).err, "", name)
            status = json.loads(self.wflow("run", file, "--vars", f"OUTPUT_PATH={self.folder / name}", "--json").out)
            self.assertEqual(status["state"], "finished", name)
        self.check_promises()

    def check_promises(self):
        def out(name, step):
            return "".join(p.read_text() for p in self.folder.glob(f"{name}/{name}_*/{step}/**/*.out"))

        self.assertEqual(out("hello", "hello"), "hello world\n")
        self.assertIn("reached step 10", out("restart", "long"))
        self.assertIn("100 results", out("samples", "collect"))
        self.assertEqual(len(out("parameters", "table").splitlines()), 6)
        self.assertEqual(out("bundle", "collect"), "1000\n")
        results = self.folder.glob("bundle/bundle_*/simulate/**/results_*.txt")
        self.assertLess(max(float(value) for path in results for value in path.read_text().split()), 2)
        (loop,) = (self.folder / "iterate").glob("iterate_*")
        self.assertIn("converged in iteration 6", self.wflow("status", loop).out)


class TemplatesInTraining(CampaignTest):
    def test_cosmoflow(self):
        self.wflow("init", "cosmoflow", self.folder)
        self.wflow("run", self.folder / "study.yaml", "-q", "--vars", f"OUTPUT_PATH={self.folder}", "UNIVERSES=12", "TRAIN=8",
                   "VALIDATION=2", "TEST=2", "EPOCHS=1")
        self.assertTrue((self.campaign() / "train" / "model.pt").exists())

        # By hand: a block and the training again, both elsewhere; the campaign stays as it was.
        def state():
            return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in self.campaign().rglob("*") if p.is_file()}

        before = state()
        block, training = self.folder / "block", self.folder / "training"
        for folder, task in ((block, "data/0"), (training, "train")):
            folder.mkdir()
            done = subprocess.run([BIN / "wflow", "rerun", self.campaign(), task, "--here"], cwd=folder, env=self.environment,
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((training / "model.pt").exists())
        self.assertTrue(list(block.rglob("*.h5")))
        self.assertEqual(state(), before)
        self.assert_one_sentence(self.wflow("rerun", "data.manifest", code=USAGE), "closes a data set", "data/0")


class Rerun(CampaignTest):
    STUDY = """
description: {name: again, description: one task by hand}
env: {variables: {OUTPUT_PATH: .}}
samples: {design: list, columns: [x], values: [[10], [11], [12]]}
study:
  - name: work
    run:
      cmd: |
        echo "$(x) in $PWD as $WFLOW_TASK attempt $WFLOW_ATTEMPT with $SECRET_OF_THE_RUN"
        echo here > left.txt
        [ $(x) != 11 ] || exit 3
      restart: |
        echo "again $(x)"
      max_retries: 0
"""

    def setUp(self):
        super().setUp()
        self.environment["SECRET_OF_THE_RUN"] = "rosebud"
        self.wflow("run", self.study(self.STUDY), "-q", code=TASKS_FAILED)
        del self.environment["SECRET_OF_THE_RUN"]

    def test_in_a_new_directory(self):
        left = (self.campaign() / "work").rglob("left.txt")
        before = {p: p.stat().st_mtime_ns for p in left}
        status = self.status()
        done = self.wflow("rerun", "work/1", code=3)
        self.assertRegex(done.out, rf"^11 in {re.escape(str(self.folder))}/t/wflow-rerun-\w+ as work/1 attempt 0 with rosebud\n$")
        self.assertIn("exit code 3", done.err)
        self.assertEqual({p: p.stat().st_mtime_ns for p in (self.campaign() / "work").rglob("left.txt")}, before)
        now = self.status()
        self.assertEqual(now, {**status, "elapsed_s": now["elapsed_s"], "time_s": now["time_s"]})
        self.assertEqual(self.wflow("rerun", "work/0", "--restart").out, "again 10\n")
        self.assertIn("attempt 5", self.wflow("rerun", self.campaign(), "work/0", "--attempt", "5").out)

    def test_here(self):
        here = self.folder / "here"
        here.mkdir()
        done = subprocess.run([BIN / "wflow", "rerun", self.campaign(), "work/2", "--here"], cwd=here, env=self.environment,
                              capture_output=True, text=True, check=True)
        self.assertIn(f"12 in {here} as work/2", done.stdout)
        self.assertTrue((here / "left.txt").exists())

    def test_in_a_shell(self):
        done = subprocess.run([BIN / "wflow", "rerun", "work/2", "--shell"], cwd=self.folder, env={**self.environment, "SHELL": "/bin/sh"},
                              input='echo "$WFLOW_SAMPLE_ID $SECRET_OF_THE_RUN"; bash ./work.sh; exit 7', capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 7)
        self.assertIn("2 rosebud\n12 in ", done.stdout)

    def test_without_a_shell_and_with_gpus_as_a_worker_does_it(self):
        # Started like a worker does: what the program sees of itself, its directory and its GPUs is the same by hand.
        program = self.folder / "show"
        program.write_text("#!/bin/sh\ncat /proc/$PPID/comm; echo \"$PWD\"; env | grep -E '^(PWD|CUDA_VISIBLE_DEVICES)='\n")
        program.chmod(0o755)
        (self.folder / "direct").mkdir()
        path = self.study("""
description: {name: gpus, description: seen by a program}
env: {variables: {OUTPUT_PATH: ./direct}}
study:
  - name: see
    run: {cmd: %s, gpus per task: 2, nodes: 1, procs: 1}
""" % program)
        self.environment["CUDA_VISIBLE_DEVICES"] = "5,3,1"
        run = self.start("run", path, "-q", "-j", "1", "--detach")
        self.assertEqual(run.wait(), OK, run.err)
        (campaign,) = [p.parent.parent for p in self.folder.glob("direct/*/.wflow/campaign.db")]
        worker = self.start("worker", "--campaign", campaign, "--gpus", "3", "--cores", "1")
        self.wait(lambda: (campaign / "see" / "MERLIN_FINISHED").exists(), "the task has run", worker)
        self.wflow("attach", campaign, "-q")
        self.assertEqual(worker.wait(), OK, worker.err)
        by_worker = (campaign / "see" / "see.out").read_text()
        self.assertEqual(by_worker.splitlines()[1:], [str(campaign / "see"), "CUDA_VISIBLE_DEVICES=5,3", f"PWD={campaign / 'see'}"])
        here = self.folder / "here"
        here.mkdir()
        done = subprocess.run([BIN / "wflow", "rerun", campaign, "see", "--here"], cwd=here, env=self.environment,
                              capture_output=True, text=True, check=True)
        self.assertEqual(sorted(done.stdout.splitlines()[1:]), sorted([str(here), "CUDA_VISIBLE_DEVICES=5,3", f"PWD={here}"]))
        self.assertEqual(done.stdout.splitlines()[0], "wflow", "no shell between")
        self.assertEqual([path.name for path in here.iterdir()], ["see.sh"])

    def test_what_needs_a_shell_after_all(self):
        # A file that the kernel takes for no program: the shell knows what to do with it.
        script = self.folder / "script"
        script.write_text("echo by the shell\n")
        script.chmod(0o755)
        (self.folder / "direct").mkdir()
        text = f"description: {{name: shell, description: d}}\nenv: {{variables: {{OUTPUT_PATH: direct}}}}\nstudy: [{{name: see, run: {{cmd: {script}}}}}]\n"
        self.wflow("run", self.study(text), "-q")
        (campaign,) = [p.parent.parent for p in self.folder.glob("direct/*/.wflow/campaign.db")]
        self.assertEqual(self.wflow("rerun", campaign, "see").out, "by the shell\n")

    def test_a_temporary_directory_that_is_none(self):
        self.environment["TMPDIR"] = str(self.folder / "nowhere")
        self.assert_one_sentence(self.wflow("rerun", "work/0", code=SYSTEM), "TMPDIR")

    def test_print(self):
        target = self.folder / "target"
        target.mkdir()
        printed = subprocess.run([BIN / "wflow", "rerun", self.campaign(), "work/1", "--here", "--print"], cwd=target, env=self.environment,
                                 capture_output=True, text=True, check=True).stdout
        done = subprocess.run(["bash", "-c", printed], capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"11 in {target} as work/1 attempt 0 with rosebud", done.stdout)
        described = json.loads(self.wflow("rerun", "work/1", "--json").out)
        self.assertIn("WFLOW_TASK=work/1", described["environment"])
        self.assertEqual((self.campaign() / ".wflow" / "environment").stat().st_mode & 0o777, 0o600)
        self.assert_one_sentence(self.wflow("rerun", "work/7", code=USAGE), "the tasks of work are 0 to 2")


class AllCampaigns(CampaignTest):
    def test_wherever_they_are(self):
        path = self.study(gated_study(Gate(self.folder, 3), 3))
        for place in ("a", "b"):
            self.wflow("run", path, "-q", "--vars", f"OUTPUT_PATH={self.folder / place / 'deep' / 'down'}")
        rows = json.loads(self.wflow("status", "--all", "--json").out)
        self.assertEqual([row["state"] for row in rows], ["finished"] * 2)
        self.assertIn("/a/deep/down/gated_", rows[0]["directory"])
        table = list(csv.DictReader(io.StringIO(self.wflow("status", "--all", "--csv").out)))
        self.assertEqual([row["ended"] for row in table], ["3", "3"])
        shutil.rmtree(rows[0]["directory"])
        self.assertEqual(len(self.wflow("status", "--all").out.splitlines()), 2)
        steps = list(csv.DictReader(io.StringIO(self.wflow("status", rows[1]["directory"], "--csv").out)))
        self.assertEqual([(row["step"], row["done"]) for row in steps], [("work", "3")])
        self.assert_one_sentence(self.wflow("status", "--all", "x", code=USAGE), "--all")

    def test_a_home_that_cannot_be_written_to(self):
        blocked = self.folder / "file"
        blocked.write_text("")
        self.environment["XDG_STATE_HOME"] = str(blocked)
        self.assertEqual(self.wflow("run", self.study(gated_study(Gate(self.folder, 1), 1)), "-q").err, "")
        self.assertIn("no campaign", self.wflow("status", "--all").out)

    def test_eighty_columns_are_enough_and_more_are_used(self):
        place = "a_directory_whose_name_is_rather_long/" + "x" * 20
        self.wflow("run", self.study(gated_study(Gate(self.folder, 3), 3)), "-q", "--vars", f"OUTPUT_PATH={self.folder / place}")
        for words in (["workers", place], ["status", "--all"]):
            words = [next((self.folder / place).glob("gated*")) if word == place else word for word in words]
            wide = Terminal(self, words, columns=300, environment={"NO_COLOR": "1"})
            self.assertEqual(wide.finish(), OK)
            heading, row = wide.text.strip().splitlines()
            terminal = Terminal(self, words, columns=80, environment={"NO_COLOR": "1"})
            self.assertEqual(terminal.finish(), OK)
            self.assertLessEqual(max(len(line) for line in terminal.text.replace("\r", "").split("\n")), 80)
            self.assertIn(row.split()[0], terminal.text)
            for word in heading.split()[1:]:
                if word not in ("running", "leased"):  # of workers that work
                    self.assertIn(f"  {word} ", terminal.text)

    def test_narrow_terminal(self):
        self.wflow("run", self.study(gated_study(Gate(self.folder, 3), 3)), "-q")
        for words in (["ls"], ["status", "--all"], ["tasks"], ["workers"], ["init"]):
            terminal = Terminal(self, words, columns=40, environment={"NO_COLOR": "1"})
            self.assertEqual(terminal.finish(), OK)
            self.assertNotIn("\x1b", terminal.text)
            for line in terminal.text.replace("\r", "").split("\n"):
                self.assertLessEqual(len(line), 40, words)


class KeepGoing(CampaignTest):
    STUDY = """
description: {name: hard, description: a hard failure}
env: {variables: {OUTPUT_PATH: .}}
samples: {design: uniform, count: 4, seed: 1, parameters: {x: [0, 1]}}
study:
  - name: work
    run: {cmd: 'echo $(x); [ $(MERLIN_SAMPLE_ID) != 0 ] || exit 102'}
  - name: after
    run: {cmd: 'echo $(x)', depends: [work]}
"""

    def test_a_hard_failure_ends_only_what_depends_on_it(self):
        self.wflow("run", self.study(self.STUDY), "-q", "-j", "1", code=INTERRUPTED)
        self.wflow("resume", "-q", "-j", "1", "--keep-going", code=TASKS_FAILED)
        self.assertEqual({k: v for k, v in self.counts("work").items() if v}, {"done": 3, "hard_failed": 1})
        self.assertEqual({k: v for k, v in self.counts("after").items() if v}, {"done": 3, "skipped": 1})


if __name__ == "__main__":
    unittest.main()
