# SPDX-License-Identifier: Apache-2.0
"""on: and metrics: of a study: hooks never delay a campaign and never make it fail; the numbers keep to Prometheus' format."""

import json
import os
import re
import subprocess
import time
import unittest

from wflow_test import BIN, OK, SPEC, TASKS_FAILED, CampaignTest, read_text, wait_for

STUDY = """description: {{name: told}}
env: {{variables: {{OUTPUT_PATH: "{folder}", OUT: "{folder}"}}}}
{blocks}
samples: {{design: grid, parameters: {{x: {{low: 0, high: 3, points: 4, integer: true}}}}}}
study:
  - name: work
    run: {{cmd: "{cmd}", max_retries: 0, output: packed}}
"""


class Hooks(CampaignTest):
    def run_study(self, blocks, cmd="true $(x)", code=OK):
        began = time.monotonic()
        done = self.wflow("run", self.study(STUDY.format(folder=self.folder, blocks=blocks, cmd=cmd)), "-j", "2", code=code)
        self.took_s = time.monotonic() - began
        return done

    def log(self):
        return read_text(self.campaign() / ".wflow" / "logs" / "hooks.log")

    def test_facts_and_variables(self):
        blocks = """on:
  finished: cat > $(OUT)/finished.json; echo "$WFLOW_EVENT $WFLOW_DONE $WFLOW_FAILED" > $(OUT)/words
  failed: {run: "cat > $(OUT)/failed.json", timeout: 30 s}
  first_failure: cat > $(OUT)/first.json; pwd"""
        self.run_study(blocks, cmd="test $(x) != 2", code=TASKS_FAILED)
        facts = {name: json.loads(wait_for(lambda: read_text(self.folder / f"{name}.json"), name)) for name in ("finished", "failed")}
        self.assertEqual(wait_for(lambda: read_text(self.folder / "words"), "words"), "finished 3 1\n")
        for name, fact in facts.items():
            self.assertEqual((fact["event"], fact["tasks"], fact["done"], fact["failed"], fact["version"]), (name, 4, 3, 1, 1))
            self.assertEqual(fact["state"], "finished with failures")
            self.assertEqual(fact["campaign"], str(self.campaign()))
            self.assertEqual([(f["task"], f["reason"]) for f in fact["failures"]], [("work/2", "exit code 1")])
        wait_for(lambda: self.log().count(" exit code 0 after") == 3, "the end of the hooks")
        self.assertEqual(json.loads(read_text(self.folder / "first.json"))["text"], "work/2 has failed: exit code 1")
        self.assertIn(f"\n{self.campaign()}\n", self.log())  # where it ran
        history = self.wflow("status", code=OK).out
        self.assertRegex(history, r"hook +on finished: started cat")
        # A task that has ended is not reported again.
        for name in ("finished", "first"):
            (self.folder / f"{name}.json").unlink()
        self.wflow("resume", code=TASKS_FAILED)
        self.assertFalse((self.folder / "finished.json").exists())

    def test_they_neither_delay_nor_fail_the_campaign(self):
        blocks = """on:
  finished: {run: "echo $$ > $(OUT)/pid; trap '' TERM; while :; do sleep 1000; done", timeout: 0.5 s}
  failed: {run: "yes", timeout: 1 s}
  first_failure: /no/such/program --mail"""
        done = self.run_study(blocks, cmd="false $(x)", code=TASKS_FAILED)
        self.assertIn("there is no program '/no/such/program' here", done.err)
        wait_for(lambda: self.log().count("ended at its time limit") == 2 and "exit code 127" in self.log(), "the end of the hooks", 60)
        self.assertLess(len(self.log()), 2 * 64 * 1024)
        self.assertIn("[wflow: the rest is left out]", self.log())
        pid = int(read_text(self.folder / "pid"))
        wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the hook's process")

    def test_a_stall(self):
        blocks = f"on: {{stalled: {{run: 'cat > $(OUT)/stalled.json', after: 1 s}}}}"
        study = self.study(STUDY.format(folder=self.folder, blocks=blocks, cmd="until [ -e $(OUT)/gate ]; do sleep 0.1; done; true $(x)"))
        run = self.start("run", study, "-j", "2")
        facts = json.loads(wait_for(lambda: read_text(self.folder / "stalled.json"), "the stall"))
        self.assertRegex(facts["text"], r"^no task has ended for ")
        (self.folder / "gate").touch()
        self.assertEqual(run.wait(), OK)

    def test_they_are_checked(self):
        bad = "on: {finishd: a, failed: [b], stalled: {after: 1 h}, first_failure: ''}\nmetrics: {file: x}"
        text = STUDY.format(folder=self.folder, blocks=bad, cmd="true $(x)")
        errors = self.wflow("validate", self.study(text), code=SPEC).err
        for sentence in ("'finishd'", "'failed' must be a command", "'first_failure' of the on: block is empty"):
            self.assertIn(sentence, errors)
        self.assertRegex(errors, r"on: block.*'run'|'run'.*on: block")
        self.assertIn("prometheus", errors)

    def test_of_exec(self):
        command = [str(BIN / "wflow"), "exec", "-q", "--on-finished", "echo $WFLOW_DONE > done", "--", "true", ":::", "1", "2"]
        subprocess.run(command, check=True, cwd=self.folder, env=self.environment, timeout=60)
        campaign = next((self.folder / "wflow-exec").iterdir())
        self.assertEqual(wait_for(lambda: read_text(campaign / "done"), "the hook"), "2\n")


NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"^({NAME})\{{({LABEL}(?:,{LABEL})*)\}} (\S+)$")


def read_exposition(text):
    """The text format 0.0.4, read strictly: families in one piece, HELP and TYPE before, no series twice. (name, labels) to value."""
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    series, types, family = {}, {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            if family in types:
                raise ValueError(f"{family} begins twice")
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if name != family or kind not in ("counter", "gauge", "summary", "histogram", "untyped"):
                raise ValueError(line)
            types[name] = kind
        else:
            match = SAMPLE.match(line)
            if not match:
                raise ValueError(line)
            name, labels, value = match.groups()
            base = re.sub("_(sum|count)$", "", name) if types[family] == "summary" else name
            if base != family:
                raise ValueError(f"{line} stands in the family {family}")
            key = (name, tuple(sorted(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', labels))))
            if key in series:
                raise ValueError(f"twice: {line}")
            series[key] = float(value.replace("Inf", "inf"))
    return series, types


class Metrics(CampaignTest):
    def value(self, text, metric, **labels):
        series, _ = read_exposition(text)
        found = [value for (at, have), value in series.items() if at == metric and labels.items() <= dict(have).items()]
        self.assertEqual(len(found), 1, (metric, labels))
        return found[0]

    def test_prometheus(self):
        blocks = f'metrics: {{prometheus: "{self.folder}/node/wflow.prom", every: 1 s}}'
        (self.folder / "node").mkdir()
        cmd = "wflow event metric name=loss value=0.25 step=3 epoch=1; [ $(x) = 0 ] || until [ -e $(OUT)/gate ]; do sleep 0.1; done"
        run = self.start("run", self.study(STUDY.format(folder=self.folder, blocks=blocks, cmd=cmd)), "-j", "2")
        file = self.folder / "node" / "wflow.prom"
        done = {"step": "work", "state": "done"}
        wait_for(lambda: file.exists() and self.value(file.read_text(), "wflow_tasks", **done) == 1, "one task in the file")
        self.assertEqual(self.value(file.read_text(), "wflow_campaign_state", state="running"), 1)
        live = self.wflow("metrics", code=OK).out
        self.assertEqual(self.value(live, "wflow_worker_cores"), 2)
        (self.folder / "gate").touch()
        self.assertEqual(run.wait(), OK)
        self.assertEqual(self.value(file.read_text(), "wflow_tasks", **done), 4)
        self.assertEqual([path.name for path in file.parent.iterdir()], ["wflow.prom"])
        at_rest = self.wflow("metrics", code=OK).out
        self.assertEqual(self.value(at_rest, "wflow_campaign_state", state="finished"), 1)
        self.assertEqual(self.value(at_rest, "wflow_metric", task="work/0", name="loss"), 0.25)
        self.assertEqual(self.value(at_rest, "wflow_task_duration_seconds_count", step="work"), 4)

    def test_a_folder_that_is_not_there_is_no_failure(self):
        blocks = f'metrics: {{prometheus: "{self.folder}/none/wflow.prom"}}'
        self.wflow("run", self.study(STUDY.format(folder=self.folder, blocks=blocks, cmd="true $(x)")), "-j", "2", code=OK)


if __name__ == "__main__":
    unittest.main()
