# SPDX-License-Identifier: Apache-2.0
"""`merlin` called by a step: a study that submits itself, as Merlin's iterative studies do, runs unchanged."""

import json
import shutil
import unittest

from wflow_test import BIN, INTERRUPTED, OK, SPEC, TASKS_FAILED, USAGE, CampaignTest, Gate

CHAIN = """
description: {name: chain, description: submits itself until ITER is MAX_ITER}
batch: {type: local}
env: {variables: {OUTPUT_PATH: ./studies, ITER: 1, MAX_ITER: 3}}
merlin:
  resources: {workers: {chain_worker: {args: -l INFO --concurrency 1, steps: [all]}}}
  samples: {file: $(SPECROOT)/x.csv, column_labels: [X]}
study:
  - name: work
    description: something for each sample
    run: {cmd: 'case $(ITER) in 2) sh $(SPECROOT)/hold $(X);; esac; echo $(ITER) $(X) >> $(SPECROOT)/log'}
  - name: verify
    description: the next one, if there is to be one
    run:
      cmd: |
        cd $(SPECROOT)
        which merlin >> whiches
        if [ $(ITER) -ge $(MAX_ITER) ] ; then
          echo "done"
          merlin stop-workers
        else
          next_iter=$(ITER)
          ((next_iter=next_iter+1))
          merlin -lvl DEBUG run $(SPECROOT)/study.yaml --vars ITER=$next_iter MAX_ITER=$(MAX_ITER)
          merlin purge -f $(SPECROOT)/study.yaml
          merlin run-workers $(SPECROOT)/study.yaml --worker-args="-l INFO" &> workers.out
        fi
      depends: [work]
"""


class MerlinRun(CampaignTest):
    def setUp(self):
        super().setUp()
        (self.folder / "x.csv").write_text("0\n1\n")
        (self.folder / "hold").write_text("true\n")
        mine = self.folder / "mine"
        mine.mkdir()
        (mine / "merlin").write_text(f'#!/bin/sh\ntouch "{self.folder}/the-users-merlin"\n')
        (mine / "merlin").chmod(0o755)
        self.environment["PATH"] = f"{mine}:{self.environment['PATH']}"

    def campaigns(self, name="chain"):
        return sorted(path.parent.parent for path in self.folder.rglob(f"{name}_*/.wflow/campaign.db"))

    def status_of(self, campaign):
        return json.loads(self.wflow("status", campaign, "--json").out)

    def calls(self, *lines, name="caller", after="", extra=""):
        """A study whose one step does this; `after` is a second step that waits for it."""
        body = "\n".join("        " + line for line in lines)
        second = f"\n  - {{name: after, run: {{cmd: '{after}', depends: [call]}}}}" if after else ""
        return self.study(f"""
description: {{name: {name}}}
env: {{variables: {{OUTPUT_PATH: .}}}}
study:
  - name: call
    {extra}
    run:
      cmd: |
{body}{second}
""", name=f"{name}.yaml")

    def out(self, step="call", name="caller", suffix="out"):
        return (self.campaigns(name)[0] / step / f"{step}.{suffix}").read_text()

    def check_chain(self):
        first, second, third = self.campaigns()
        log = (self.folder / "log").read_text().split("\n")
        self.assertEqual(sorted(log[:-1]), [f"{i} {x}" for i in (1, 2, 3) for x in (0, 1)])
        self.assertEqual((self.folder / "whiches").read_text().split(),
                         [str(c / ".wflow" / "bin" / "merlin") for c in (first, second, third)])
        self.assertFalse((self.folder / "the-users-merlin").exists())
        self.assertEqual((self.folder / "workers.out").read_text(), "")
        self.assertEqual([(f["kind"], f["state"], f["ended"], f["directory"]) for f in self.status_of(first)["followups"]],
                         [("submitted", "finished", 3, str(second)), ("submitted", "finished", 3, str(third))])

    def test_chain(self):
        self.assertFalse((BIN / "merlin").exists())
        self.wflow("run", self.study(CHAIN), "-j", "2", code=OK)
        self.check_chain()

    def test_chain_killed_and_resumed(self):
        gate = Gate(self.folder, 1)
        (self.folder / "hold").write_text(f"exec bash {gate.script} $1\n")
        run = self.start("run", self.study(CHAIN), "-j", "1")
        self.wait(lambda: gate.waiting() == 1 and len(gate.began()) == 2, "the second campaign's second task is held", run)
        everything = self.kill_everything()
        run.wait()
        self.wait_until_gone(everything)
        top = self.campaigns()[0]
        self.assertEqual([f["state"] for f in self.status_of(top)["followups"]], ["interrupted"])
        gate.open()
        self.wflow("resume", top, "-j", "2", code=OK)
        self.assertEqual(gate.began(), [0, 1, 1])
        self.check_chain()

    def waiting(self, wait, inner):
        """A study that submits `inner` once and then waits for it."""
        self.study(f"description: {{name: inner, description: d}}\nenv: {{variables: {{OUTPUT_PATH: .}}}}\nmerlin: {{}}\nstudy:\n{inner}",
                   name="inner.yaml")
        submit = f"[ -e {self.folder}/submitted ] || {{ merlin run inner.yaml && touch {self.folder}/submitted; }}"
        return self.calls(f"cd {self.folder}", submit, wait, after=f"echo after >> {self.folder}/log")

    def check_waited(self):
        self.assertEqual((self.folder / "log").read_text(), "inner\nafter\n")
        [inner] = self.campaigns("inner")
        self.assertEqual([(f["kind"], f["state"], f["directory"]) for f in self.status_of(self.campaigns("caller")[0])["followups"]],
                         [("submitted", "finished", str(inner))])

    def test_waits_for_what_it_submitted(self):
        """It begins while the campaign that waits for it runs, on the cores that this leaves, at least one."""
        for slots, wait in ((1, f"until [ -e {self.folder}/flag ]; do sleep 0.1; done"), (2, "merlin monitor inner.yaml")):
            with self.subTest(slots=slots):
                caller = self.waiting(wait, f"  - {{name: s, description: d, run: {{cmd: 'echo inner >> {self.folder}/log; touch {self.folder}/flag'}}}}\n")
                self.wflow("run", caller, "-j", slots, code=OK)
                self.check_waited()
                for path in [self.folder / name for name in ("log", "flag", "submitted")] + self.campaigns("inner") + self.campaigns("caller"):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def test_waiting_killed_and_resumed(self):
        gate = Gate(self.folder, 1)
        (self.folder / "hold").write_text(f"exec bash {gate.script} $1\n")
        inner = (f"  - {{name: s, description: d, run: {{cmd: 'sh {self.folder}/hold $(X)'}}}}\n"
                 f"  - {{name: t, description: d, run: {{cmd: 'echo inner >> {self.folder}/log; touch {self.folder}/flag', depends: [s]}}}}\n")
        caller = self.waiting(f"until [ -e {self.folder}/flag ]; do sleep 0.1; done", inner)
        study = self.folder / "inner.yaml"
        study.write_text(study.read_text().replace("merlin: {}", f"merlin: {{samples: {{file: {self.folder}/x.csv, column_labels: [X]}}}}"))
        run = self.start("run", caller, "-j", "2")
        self.wait(lambda: gate.waiting() == 1 and len(gate.began()) == 2, "the submitted campaign's second task is held", run)
        everything = self.kill_everything()
        run.wait()
        self.wait_until_gone(everything)
        gate.open()
        self.wflow("resume", self.campaigns("caller")[0], "-j", "2", code=OK)
        self.assertEqual(gate.began(), [0, 1, 1])
        self.check_waited()

    def test_local(self):
        self.study("description: {name: inner, description: d}\nstudy:\n  - {name: s, description: d, run: {cmd: 'echo $(WHO)'}}\n"
                   "env: {variables: {OUTPUT_PATH: ., WHO: nobody}}\nmerlin: {}\n", name="inner.yaml")
        caller = self.calls(f"cd {self.folder}", "merlin run --local inner.yaml --vars WHO=somebody || exit 9",
                            "merlin run --local inner.yaml --samplesfile none.csv; merlin info", extra="cores: 2")
        self.wflow("run", caller, "-j", "2", code=OK)
        inner = self.campaigns("inner")[0]
        self.assertEqual((inner / "s" / "s.out").read_text(), "somebody\n")
        self.assertEqual([w["cores"] for w in json.loads(self.wflow("workers", inner, "--json").out)], [2])
        self.assertIn("1/1", self.out())
        self.assertIn(f"campaign: {self.campaigns('caller')[0]}", self.out())

    def test_restart(self):
        cure = self.folder / "cure"
        self.wflow("run", self.calls(f'[ -e "{cure}" ] || exit 3', name="ill"), code=TASKS_FAILED)
        ill = self.campaigns("ill")[0]
        self.wflow("run", self.calls(f'touch "{cure}"', f"merlin restart {ill}"), code=OK)
        self.assertEqual(self.status_of(ill)["state"], "finished")
        self.assertEqual([(f["kind"], f["state"]) for f in self.status_of(self.campaigns("caller")[0])["followups"]], [("restart", "finished")])

    def test_stop_workers(self):
        self.wflow("run", self.calls("merlin stop-workers --spec caller.yaml", after="echo late"), code=INTERRUPTED)
        campaign = self.campaigns("caller")[0]
        self.assertEqual(self.status_of(campaign)["state"], "interrupted")
        self.wflow("resume", campaign, code=OK)
        self.assertEqual(self.out("after"), "late\n")

    def test_what_is_wrong_is_said_in_the_task(self):
        self.study("description: {name: broken, description: no steps}\nstudy: []\n", name="broken.yaml")
        self.wflow("run", self.calls(f"cd {self.folder}", "merlin run broken.yaml; echo $?", "merlin run missing.yaml; echo $?",
                                     "merlin frobnicate; echo $?", "merlin run; echo $?"), code=OK)
        self.assertEqual(self.out().split(), ["3", "4", "2", "2"])
        said = self.out(suffix="err")
        for part in ("broken.yaml:2", "missing.yaml", "wflow has no counterpart of merlin frobnicate", "specification"):
            self.assertIn(part, said)
        self.assertEqual(self.status_of(self.campaigns("caller")[0])["followups"], [])
        self.assert_one_sentence(self.wflow("merlin", "run", "broken.yaml", code=SPEC), "has no steps")  # as a user's
        self.assert_one_sentence(self.wflow("event", "converged", code=USAGE), "for tasks of a campaign")


if __name__ == "__main__":
    unittest.main()
