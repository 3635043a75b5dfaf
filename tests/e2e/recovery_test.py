# SPDX-License-Identifier: Apache-2.0
"""Recovery of the real programs: a coordinator killed at every point where it writes, finished work recognised by its marker,
samples that kill their workers, tasks that hang, and wflow doctor."""

import errno
import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import unittest
from collections import Counter
from pathlib import Path

from wflow_test import DATA, OK, SMALL, TASKS_FAILED, CampaignTest, Gate, gated_study, lines_of, wait_for

# 0: every one of them (some minutes).
POINTS = int(os.environ.get("WFLOW_FAULT_POINTS", "6"))
TASKS = 8
FREE = 3


class RecoveryTest(CampaignTest):
    def preload(self, source):
        library = self.folder / f"{source}.so"
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, Path(__file__).with_name(f"{source}.c"), "-ldl"], check=True)
        self.environment["LD_PRELOAD"] = str(library)

    def tasks(self, *options):
        return json.loads(self.wflow("tasks", self.campaign(), "--json", *options).out)


@unittest.skipIf(SMALL, "a sanitizer's library must come first")
class FaultPoints(RecoveryTest):
    """Killed before and after each write, sync, rename, removal and message of the coordinator."""

    def setUp(self):
        super().setUp()
        self.preload("fault_points")
        self.ledger = self.folder / "ledger"
        self.round = 0

    def write_study(self, folder):
        return self.study(f"""
description: {{name: points, description: two steps and a retry}}
env: {{variables: {{OUTPUT_PATH: {folder}}}}}
samples: {{design: uniform, count: 4, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run:
      cmd: |
        echo work$(MERLIN_SAMPLE_ID) >> {self.ledger}
        if [ $(MERLIN_SAMPLE_ID) = 2 ] && [ ! -e {folder}/tried ]; then touch {folder}/tried; exit 1; fi
        echo "$(x)" > result
      max_retries: 1
      retry_delay: 0
  - name: collect
    run:
      cmd: |
        echo collect >> {self.ledger}
        cat {folder}/*/work/*/result | sort > result
      depends: [work_*]
""", f"study-{self.round}.yaml")

    def one_run(self, point, when):
        """The result of the campaign, however often it was started."""
        self.round += 1
        folder = self.folder / f"round-{self.round}"
        folder.mkdir()
        self.ledger.unlink(missing_ok=True)
        count = folder / "count"
        self.environment |= {"FAULT_COUNT": str(count), "FAULT_FOLDER": str(folder), "FAULT_AT": str(point), "FAULT_WHEN": when}
        study = self.write_study(folder)
        run = self.start("run", study, "-j", "2")
        code = run.wait()
        number = struct.unpack("q", count.read_bytes())[0]
        self.environment["FAULT_AT"] = "0"
        if code == -signal.SIGKILL:
            campaigns = [path.parent.parent for path in folder.glob("*/.wflow/campaign.db")]
            again = self.start("resume", campaigns[0], "-j", "2") if campaigns else self.start("run", study, "-j", "2")
            self.assertEqual(again.wait(), OK, f"killed {when} {point}\n{again.out}{again.err}")
        else:
            self.assertEqual(code, OK, f"{when} {point}: {run.out}{run.err}")
        campaign = next(path.parent.parent for path in folder.glob("*/.wflow/campaign.db"))
        status = json.loads(self.wflow("status", campaign, "--json").out)
        states = [(step["name"], step["counts"]) for step in status["steps"]]
        result = next(campaign.glob("collect/result")).read_text()
        ran = Counter(lines_of(self.ledger))
        shutil.rmtree(folder)
        return code, number, (states, result, ran)

    def test_every_write_of_the_coordinator(self):
        _, number, undisturbed = self.one_run(0, "before")
        self.assertEqual(undisturbed[2], Counter({"work0": 1, "work1": 1, "work2": 2, "work3": 1, "collect": 1}))
        self.assertGreater(number, 50)
        step = max(1, number // POINTS) if POINTS > 0 else 1
        killed = 0
        for point in range(1, number + 1, step):
            for when in ("before", "after"):
                with self.subTest(point=point, when=when):
                    code, _, found = self.one_run(point, when)
                    killed += code == -signal.SIGKILL
                    self.assertEqual(found, undisturbed)
        print(f"{number} points, {killed} kills", flush=True)
        self.assertGreater(killed, 0)


@unittest.skipIf(SMALL, "a sanitizer's library must come first")
class TrustedMarkers(RecoveryTest):
    """All processes of a node at once, before any result is in a journal: as at a power cut."""

    def lose_two_results(self, extra):
        self.preload("disk_faults")
        control = self.folder / "fault"
        self.environment["DISK_FAULT"] = str(control)
        gate = Gate(self.folder, FREE)
        run = self.start("run", self.study(gated_study(gate, TASKS, extra=extra)), "-j", "2")
        directory = self.wait_for_campaign(run)
        self.wait_for_done("work", FREE, run)
        self.wait(lambda: gate.waiting() == 2, "two tasks wait", run)
        control.write_text(f"{errno.EIO} /.wflow/\n")
        gate.open()
        self.wait(lambda: len(list(directory.glob("work/**/MERLIN_FINISHED"))) == FREE + 2, "both have ended", run)
        self.kill_everything()
        run.wait()
        control.unlink()
        self.wflow("resume", directory, "-j", "2")
        self.assertEqual(self.counts("work")["done"], TASKS)
        return sorted(Counter(gate.began()).values())

    def test_trusted(self):
        self.assertEqual(self.lose_two_results("      trust_markers: true\n"), [1] * TASKS)

    def test_not_trusted(self):
        self.assertEqual(self.lose_two_results(""), [1] * (TASKS - 2) + [2] * 2)

    def test_a_retry_does_not_trust_an_older_marker(self):
        """`run` made the marker, and the task was opened again since: it runs."""
        ledger = self.folder / "ledger"
        study = self.study(f"""
description: {{name: again, description: a task that is run again}}
study:
  - name: first
    run: {{cmd: "echo first >> {ledger}", trust_markers: true}}
  - name: second
    run: {{cmd: "echo second >> {ledger}", depends: [first], trust_markers: true}}
""")
        self.wflow("run", study)
        marker = next(self.campaign().glob("first/**/MERLIN_FINISHED"))
        self.assertRegex(marker.read_text(), r"^wflow lease \d+ [0-9a-f]{32}\n$")
        marker.unlink()
        self.wflow("resume", self.campaign(), "--trust-markers", "--with-dependents")
        self.assertEqual(Counter(lines_of(ledger)), Counter({"first": 2, "second": 2}))

    def test_it_needs_a_marker(self):
        study = self.study(gated_study(Gate(self.folder, TASKS), 2, extra="      trust_markers: true\n      output: packed\n"))
        self.assert_one_sentence(self.wflow("run", study, code=3), "trust_markers", "MERLIN_FINISHED")


class LossesAndStalls(RecoveryTest):
    def test_a_sample_that_kills_its_workers_is_put_into_quarantine(self):
        """Agent and guardian, so that the cause is unknown: all that run beside it are lost with it, and they are not it."""
        study = self.study("""
description: {name: killer, description: sample 2 kills its worker}
samples: {design: uniform, count: 6, seed: 1, parameters: {x: [0, 1]}}
study:
  - name: work
    run:
      cmd: |
        guardian=$(cut -d' ' -f4 /proc/$PPID/stat)
        [ $(MERLIN_SAMPLE_ID) = 2 ] && kill -9 $guardian $PPID
        sleep 0.3
      shell: /bin/bash
""")
        self.wflow("run", study, "-j", "3", code=TASKS_FAILED)
        failed = self.tasks("--where", "state = failed")
        self.assertEqual([task["sample"] for task in failed], [2])
        self.assertEqual(self.counts("work")["done"], 5)
        self.assertEqual(failed[0]["reason"], "worker_lost")
        self.assertEqual(failed[0]["attempts"], 3)
        self.assertIn("in quarantine: 3 workers were lost while this task ran", self.wflow("status", self.campaign(), "--json").out)

    def test_a_task_that_does_nothing_is_ended(self):
        """Silence alone is not enough: one that computes and one that prints go on."""
        study = self.study("""
description: {name: stall, description: one of three tasks hangs}
samples: {design: uniform, count: 3, seed: 1, parameters: {x: [0, 1]}}
study:
  - name: work
    run:
      cmd: |
        case $(MERLIN_SAMPLE_ID) in
          0) echo begun; sleep 1000 ;;
          1) end=$((SECONDS + 12)); while [ $SECONDS -lt $end ]; do :; done ;;
          2) for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i; sleep 1; done ;;
        esac
      shell: /bin/bash
      stall_timeout: 6 s
      max_retries: 0
""")
        self.wflow("run", study, "-j", "3", code=TASKS_FAILED)
        failed = self.tasks("--where", "state = failed")
        self.assertEqual([(task["sample"], task["reason"]) for task in failed], [(0, "stalled")])
        self.assertEqual(self.counts("work")["done"], 2)


class DoctorOfCampaigns(RecoveryTest):
    def finished(self):
        gate = Gate(self.folder, TASKS)
        self.wflow("run", self.study(gated_study(gate, TASKS)), "-j", "2")
        return self.campaign()

    def killed_in_the_middle(self):
        gate = Gate(self.folder, FREE)
        run = self.start("run", self.study(gated_study(gate, TASKS)), "-j", "2")
        directory = self.wait_for_campaign(run)
        self.wait_for_done("work", FREE, run)
        self.wait(lambda: gate.waiting() == 2, "two tasks wait", run)
        # The coordinator first: what ends after it stays in the journal.
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        journal = next(directory.glob(".wflow/workers/*.journal"))
        size = journal.stat().st_size
        gate.open()
        wait_for(lambda: journal.stat().st_size > size, "a result is in the journal")
        self.kill_everything()
        return directory, gate

    def doctor(self, *options, code):
        process = self.wflow("doctor", self.campaign(), *options, code=code)
        return process.out

    def test_nothing_is_wrong(self):
        self.finished()
        self.assertIn("nothing is wrong", self.doctor(code=OK))

    def test_counts(self):
        directory = self.finished()
        with sqlite3.connect(directory / ".wflow" / "campaign.db") as database:
            database.execute("UPDATE arrays SET done = done - 3")
        database.close()
        self.wflow("resume", directory, code=DATA)
        told = self.doctor(code=DATA)
        self.assertIn("its counts are wrong", told)
        self.assertIn("would: count anew", told)
        self.assertIn("nothing was changed", told)
        self.assertIn("its counts are wrong", self.doctor(code=DATA), "it only said so")
        self.assertIn("1 of 1 mended", self.doctor("--yes", code=OK))
        self.assertIn("nothing is wrong", self.doctor(code=OK))
        self.wflow("resume", directory)
        self.assertEqual(self.counts("work")["done"], TASKS)

    def test_damaged_pages(self):
        directory = self.finished()
        path = directory / ".wflow" / "campaign.db"
        data = bytearray(path.read_bytes())
        for page in range(2, len(data) // 4096):
            data[page * 4096:page * 4096 + 64] = b"\xa5" * 64
        path.write_bytes(data)
        told = self.doctor("--yes", code=DATA)
        self.assertIn("is damaged", told)
        self.assertIn("wflow snapshot", told)

    def test_damaged_copies_and_packed_output(self):
        (self.folder / "points.csv").write_text("x\n1\n2\n3\n")
        self.wflow("run", self.study("""
description: {name: copies}
env: {variables: {OUTPUT_PATH: .}}
samples: {file: points.csv}
study:
  - name: work
    run: {cmd: echo $(x), output: packed}
"""), "-j", "2")
        directory = self.campaign()
        self.assertRegex(self.doctor(code=OK), r"nothing is wrong; [1-9]\d* files that have checksums")
        for pattern in (".wflow/studies/1/study.yaml", ".wflow/studies/1/options.json", "merlin_info/points.csv", "work/packed/*.log"):
            path = next(directory.glob(pattern))
            whole = path.read_bytes()
            path.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
            told = self.doctor(code=DATA)
            self.assertIn(path.name, told)
            self.assertIn("you can: ", told)
            path.write_bytes(whole)
        self.assertIn("nothing is wrong", self.doctor(code=OK))

    def test_what_a_kill_leaves(self):
        directory, gate = self.killed_in_the_middle()
        journal = next(directory.glob(".wflow/workers/*.journal"))
        whole = journal.read_bytes()
        journal.write_bytes(whole + b"\x00garbage\xff" * 40 + whole[-1:])
        (directory / "work" / ".result.tmp-1-1").write_text("half")
        told = self.doctor(code=DATA)
        for part in ("is damaged", "endpoint.json", ".result.tmp-1-1", "nothing was changed"):
            self.assertIn(part, told)
        self.assertEqual(journal.read_bytes()[:len(whole)], whole, "it only said so")
        rows = json.loads(self.doctor("--yes", "--json", code=OK))
        self.assertTrue(all(row["mended"] for row in rows), rows)
        self.assertTrue(Path(f"{journal}.damaged").exists())
        self.assertFalse((directory / ".wflow" / "endpoint.json").exists())
        self.wflow("resume", directory, "-j", "2")
        began = Counter(gate.began())
        self.assertEqual([began[task] for task in range(FREE)], [1] * FREE)
        self.assertLessEqual(sum(began.values()), TASKS + 2, "what ended before the kill was in the journal; two were running")
        self.assertEqual(self.counts("work")["done"], TASKS)

    def test_markers(self):
        directory = self.finished()
        markers = sorted(directory.glob("work/**/MERLIN_FINISHED"))
        markers[0].unlink()
        self.assertIn("1 tasks that are done have no MERLIN_FINISHED", self.doctor(code=DATA))
        self.doctor("--yes", code=OK)
        self.assertTrue(markers[0].exists())

    def test_a_coordinator_that_lives(self):
        gate = Gate(self.folder, 0)
        run = self.start("run", self.study(gated_study(gate, 1)))
        self.wait_for_campaign(run)
        self.wait(lambda: gate.waiting() == 1, "the task waits", run)
        self.assert_one_sentence(self.wflow("doctor", self.campaign(), code=7), "another coordinator runs this campaign")
        gate.open()
        self.assertEqual(run.wait(), OK)


if __name__ == "__main__":
    unittest.main()
