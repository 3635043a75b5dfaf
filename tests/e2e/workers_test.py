# SPDX-License-Identifier: Apache-2.0
"""Several workers: what one has not started goes to another that is idle; groups serve their steps."""

import shlex
import unittest
from collections import defaultdict

from wflow_test import OK, USAGE, CampaignTest, Gate, lines_of

TASKS = 12


class Workers(CampaignTest):
    def test_what_a_slow_worker_has_not_started_goes_to_an_idle_one(self):
        # The first task ends only when all others have: those that were leased with it must run elsewhere.
        study = self.study(f"""
description: {{name: slow, description: one slow worker}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: uniform, count: {TASKS}, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run:
      cmd: |
        echo $(MERLIN_SAMPLE_ID) >> {self.folder}/began
        if [ $(MERLIN_SAMPLE_ID) = 0 ]; then
          until [ $(wc -l < {self.folder}/ended) -ge {TASKS - 1} ]; do sleep 0.1; done
        fi
        echo $(MERLIN_SAMPLE_ID) >> {self.folder}/ended
""")
        (self.folder / "ended").touch()
        run = self.start("run", study, "-j", "1")
        directory = self.wait_for_campaign(run)
        self.wait(lambda: lines_of(self.folder / "began") == ["0"], "the first task is in the middle", run)
        helper = self.start("worker", "--campaign", directory, "--slots", "1")
        self.assertEqual(run.wait(), OK, run.err)
        self.assertEqual(helper.wait(), OK, helper.err)
        began = [int(n) for n in lines_of(self.folder / "began")]
        self.assertEqual(sorted(began), list(range(TASKS)))
        self.assertEqual(lines_of(self.folder / "ended")[-1], "0")

    def test_a_group_pins_its_tasks(self):
        study = self.study(f"""
description: {{name: pinned, description: a processor a task}}
env: {{variables: {{OUTPUT_PATH: .}}}}
workers: {{all: {{slots: 1, pin: true}}}}
study:
  - name: one
    run: {{cmd: "nproc > {self.folder}/processors"}}
""")
        self.wflow("run", study)
        self.assertEqual(lines_of(self.folder / "processors"), ["1"])
        study.write_text(study.read_text().replace("slots: 1", "slots: 5000"))
        self.assert_one_sentence(self.wflow("run", study, code=USAGE), "the worker group 'all' pins the tasks of 5000 slots")

    def test_groups_serve_their_steps(self):
        study = self.study(f"""
description: {{name: groups, description: two groups}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: uniform, count: 6, seed: 1, parameters: {{x: [0, 1]}}}}
workers:
  many: {{slots: 2, steps: [one]}}
  "a few": {{slots: 1, steps: [two]}}
study:
  - name: one
    run: {{cmd: "ps -o ppid= -p $$ >> {self.folder}/one"}}
  - name: two
    run: {{cmd: "ps -o ppid= -p $$ >> {self.folder}/two", depends: [one]}}
  - name: three
    run: {{cmd: "ps -o ppid= -p $$ >> {self.folder}/three", depends: [two_*]}}
""")
        self.wflow("run", study)
        agents = defaultdict(set)
        for step in ("one", "two", "three"):
            agents[step] = set(lines_of(self.folder / step))
            self.assertEqual(len(agents[step]), 1, "one worker a group")
        self.assertEqual(len(set.union(*agents.values())), 3)
        joined = [text for text in self.history("worker") if "joined" in text]
        self.assertEqual(len(joined), 3, joined)

    def test_a_group_on_another_machine_is_waited_for(self):
        gate = Gate(self.folder, 0)
        study = self.study(f"""
description: {{name: away, description: a group that is elsewhere}}
env: {{variables: {{OUTPUT_PATH: .}}}}
workers:
  here: {{steps: [one]}}
  away: {{steps: [two], machines: [no-such-host]}}
study:
  - name: one
    run: {{cmd: "bash {gate.script} 0 || exit 1"}}
  - name: two
    run: {{cmd: "true"}}
""")
        run = self.start("run", study)
        directory = self.wait_for_campaign(run)
        self.wait(lambda: gate.waiting() == 1, "the first step runs", run)
        told = self.history("worker")
        self.assertTrue(any("no-such-host" in text and "--group 'away'" in text for text in told), told)
        worker = self.wflow("worker", "--campaign", directory, "--group", "nobody", code=USAGE)
        self.assertIn("its groups are: here, away", worker.err)
        worker = self.wflow("worker", "--campaign", directory, code=USAGE)
        self.assertIn("--group here, away", worker.err)
        gate.open()
        self.wait_for_done("one", 1, run)
        self.wait(lambda: any("no worker serves the step 'two'" in text for text in self.history("note")), "the user is told",
                  run)
        # The command that status names works, here too.
        command = f"wflow worker --campaign {directory} --group 'away'"
        self.assertIn(command, self.wflow("status", directory, "--brief").out)
        worker = self.start(*shlex.split(command)[1:])
        self.assertEqual(run.wait(), OK, run.err)
        self.assertEqual(worker.wait(), OK, worker.err)


if __name__ == "__main__":
    unittest.main()
