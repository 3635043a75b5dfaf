# SPDX-License-Identifier: Apache-2.0
"""What surrounds a campaign goes wrong: limits, directories, clocks, peers, tasks that print anything, files that were damaged.
Whatever it is, wflow goes on or says one sentence; it never ends by a signal, and never loses results silently."""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import unittest
from collections import Counter
from contextlib import closing
from pathlib import Path

from wflow_test import BIN, BUSY, DATA, INTERRUPTED, OK, SMALL, SYSTEM, TASKS_FAILED, USAGE, CampaignTest, Gate, Process, gated_study, wait_for

TASKS = 12
FREE = 6


class RobustTest(CampaignTest):
    def wait_at_gate(self, gate, run, waiting=2):
        directory = self.wait_for_campaign(run)
        self.wait_for_done("work", FREE, run)
        self.wait(lambda: gate.waiting() == waiting, "the others are in the middle", run)
        return directory

    def query(self, text):
        with closing(sqlite3.connect(f"file:{self.campaign()}/.wflow/campaign.db?mode=ro", uri=True)) as database:
            return database.execute(text).fetchall()

    def limited(self, limit, *arguments, user=None):
        """wflow under `ulimit`; gives the ended process."""
        self.count += 1
        shell = ["bash", "-c", f'ulimit -c 0; ulimit {limit}; exec "$@"', "bash", BIN / "wflow", *arguments]
        drop = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"] if user else []
        process = Process(self, drop + shell, f"limited-{self.count}")
        self.addCleanup(self.reap, process)
        process.wait()
        return process

    def assert_clear_end(self, process, *codes):
        self.assertIn(process.process.returncode, codes, process.out + process.err)
        self.assertNotIn("internal error", process.err)


class Limits(RobustTest):
    def small_study(self, output="."):
        return self.study(f"""
description: {{name: small, description: three tasks}}
env: {{variables: {{OUTPUT_PATH: {output}}}}}
samples: {{design: uniform, count: 3, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run: {{cmd: "true $(MERLIN_SAMPLE_ID) $(x)", max_retries: 0}}
""")

    @unittest.skipIf(SMALL, "UBSan's check of an object's type opens a pipe, and reports an error where it can't")
    def test_few_open_files(self):
        for number in (9, 14, 40):
            with self.subTest(number):
                process = self.limited(f"-n {number}", "run", "--new", self.small_study(), "-j", "1")
                self.assert_clear_end(process, SYSTEM)
                self.assert_one_sentence(process, "open")

    def test_small_stack(self):
        process = self.limited("-s 64", "validate", self.small_study())
        if "cannot execute" in process.err or process.process.returncode == -11 and SMALL:
            self.skipTest("no program of this build starts with such a stack")
        self.assert_clear_end(process, SYSTEM)
        self.assert_one_sentence(process, "the stack may take 64 KiB", "ulimit -s 8192")

    def test_small_files(self):
        """SIGXFSZ has ended it."""
        for number in (1, 8, 100):
            with self.subTest(number):
                process = self.limited(f"-f {number}", "run", self.small_study(), "-j", "1")
                self.assert_clear_end(process, SYSTEM)
                self.assertIn("ulimit -f", process.err)

    def test_few_processes(self):
        if os.geteuid() != 0:
            self.skipTest("needs to become another user")
        self.folder.chmod(0o1777)
        (self.folder / "t").chmod(0o777)
        if self.limited("-c 0", "--version", user="65534").process.returncode != OK:
            self.skipTest("another user can't start the programs here")
        for number in (2, 3, 4, 5, 6, 7, 8, 10, 12):
            process = self.limited(f"-u {number}", "run", "--new", self.small_study(), "-j", "1", user="65534")
            with self.subTest(number):
                self.assert_clear_end(process, OK, TASKS_FAILED, SYSTEM, INTERRUPTED)
                if process.process.returncode == SYSTEM:
                    self.assert_names_the_limit(process)

    def assert_names_the_limit(self, process):
        sentence = self.sentence(process)
        if "see their logs" in sentence:
            newest = max(self.folder.glob("*/.wflow/workers"), key=os.path.getmtime)
            sentence = "".join(path.read_text() for path in newest.glob("*.log"))
        self.assertRegex(sentence, "processes|Resource temporarily unavailable")


class Users(RobustTest):
    def test_campaign_of_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("needs to become another user")
        self.folder.chmod(0o755)
        (self.folder / "t").chmod(0o777)
        if self.limited("-c 0", "--version", user="65534").process.returncode != OK:
            self.skipTest("another user can't start the programs here")
        gate = Gate(self.folder, TASKS)
        self.wflow("run", self.study(gated_study(gate, TASKS)), "-j", "2")
        directory = self.campaign()
        names = sorted((path, path.lstat().st_uid) for path in directory.rglob("*"))
        for arguments in (["status"], ["tasks"], ["explain", "work/1"], ["workers"], ["resume"], ["retry"], ["cancel"], ["drain"]):
            process = self.limited("-c 0", arguments[0], directory, *arguments[1:], user="65534")
            with self.subTest(arguments[0]):
                self.assertEqual(process.process.returncode, SYSTEM, process.out + process.err)
                self.assert_one_sentence(process, "Permission denied")
        self.assertEqual(names, sorted((path, path.lstat().st_uid) for path in directory.rglob("*")), "nothing was changed")
        self.assertEqual(self.status()["state"], "finished")


class Directories(RobustTest):
    def test_campaign_removed_in_the_middle(self):
        gate = Gate(self.folder, FREE)
        run = self.start("run", self.study(gated_study(gate, TASKS)), "-j", "2")
        directory = self.wait_at_gate(gate, run)
        shutil.rmtree(directory)
        gate.open()
        self.assertIn(run.wait(), (SYSTEM, DATA), run.out + run.err)
        self.assertIn(str(directory), run.err)
        self.assertNotIn("internal error", run.err)

    def test_campaign_moved_in_the_middle(self):
        gate = Gate(self.folder, FREE)
        run = self.start("run", self.study(gated_study(gate, TASKS)), "-j", "2")
        directory = self.wait_at_gate(gate, run)
        moved = self.folder / "elsewhere"
        directory.rename(moved)
        self.assertEqual(run.wait(), SYSTEM, run.out + run.err)
        self.assertIn(f"{directory} was moved to {moved} while its coordinator ran", run.err)
        self.assertFalse(directory.exists(), "nothing is made in the old place")
        gate.open()
        self.wflow("resume", moved, "-j", "2", "-q")
        self.assertEqual(self.status()["state"], "finished")

    def test_copies_name_their_own_files(self):
        self.wflow("run", self.study(gated_study(Gate(self.folder, TASKS), TASKS, extra="""
  - name: model
    run:
      cmd: printf '{"type":"artifact","kind":"model","path":"%s/m.pt"}\\n' $PWD >> $WFLOW_EVENTS
""")), "-j", "2", "-q")
        directory = self.campaign()
        copy = self.folder / "place" / "copy"
        shutil.copytree(directory, copy)
        paths = [artifact["path"] for artifact in json.loads(self.wflow("status", copy, "--json").out)["artifacts"]]
        self.assertEqual(paths, [str(copy / "model" / "m.pt")])

    def test_path_that_is_no_utf8(self):
        place = Path(os.fsdecode(os.fsencode(self.folder) + b"/caf\xe9"))
        place.mkdir()
        study = self.study(gated_study(Gate(self.folder, TASKS), 2))
        shutil.copy(study, place / "study.yaml")
        with open(self.folder / "out", "wb") as out, open(self.folder / "err", "wb") as err:
            code = subprocess.run([BIN / "wflow", "run", "study.yaml", "-j", "1"], cwd=place, env=self.environment, stdout=out, stderr=err).returncode
        told = (self.folder / "err").read_text(errors="replace")
        self.assertIn(code, (OK, USAGE, DATA), told)
        if code != OK:
            self.assertIn("UTF-8", told)
            self.assertEqual([path for path in place.iterdir() if path.is_dir()], [], "no campaign that never began")

    def test_no_campaign_was_started_here_yet(self):
        place = self.folder / "work_20261121-101112"
        (place / ".wflow").mkdir(parents=True)
        (place / ".wflow" / "run.lock").touch()
        for command in ("status", "resume", "tasks"):
            self.assertIn("no campaign was started", self.wflow(command, place, code=USAGE).err)

    def test_snapshot_into_nowhere(self):
        gate = Gate(self.folder, FREE)
        run = self.start("run", self.study(gated_study(gate, TASKS)), "-j", "2")
        directory = self.wait_at_gate(gate, run)
        snapshot = self.start("snapshot", directory, "/nonexistent/x")
        self.assertNotEqual(snapshot.wait(), OK)
        self.assert_one_sentence(snapshot, "/nonexistent")
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)


class Clocks(RobustTest):
    @unittest.skipIf(SMALL, "a sanitizer's library must come first")
    def test_date_jumps_by_400_days(self):
        library = self.folder / "clock_jump.so"
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, Path(__file__).with_name("clock_jump.c"), "-ldl"], check=True)
        self.environment |= {"LD_PRELOAD": str(library), "CLOCK_JUMP": str(self.folder / "jump")}
        gate = Gate(self.folder, FREE)
        run = self.start("run", self.study(gated_study(gate, TASKS)), "-j", "2")
        self.wait_at_gate(gate, run)
        (self.folder / "jump").touch()
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)
        self.assertEqual(Counter(gate.began()), Counter(range(TASKS)))
        status = self.status()
        self.assertLess(status["steps"][0]["mean_s"], 86400)
        self.assertGreaterEqual(status["steps"][0]["mean_s"], 0)


class Peers(RobustTest):
    """Malformed messages to a running campaign."""

    def setUp(self):
        super().setUp()
        self.gate = Gate(self.folder, FREE)
        self.run_ = self.start("run", self.study(gated_study(self.gate, TASKS)), "-j", "2", "--listen")
        self.directory = self.wait_at_gate(self.gate, self.run_)

    def address(self):
        text = (self.directory / ".wflow" / "endpoint.json").read_text()
        endpoint = next(value for value in json.loads(text).values() if "tcp://" in str(value))
        host, port = (endpoint[0] if isinstance(endpoint, list) else endpoint).removeprefix("tcp://").rsplit(":", 1)
        return host, int(port)

    def test_garbage(self):
        for data in (b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 4096, b"\xff" + b"\0" * 8 + b"\x7f" + b"\xff" * 100_000, b""):
            with socket.create_connection(self.address(), timeout=10) as connection:
                try:
                    connection.sendall(data)
                except OSError:
                    pass  # it has been refused already
        many = [socket.create_connection(self.address(), timeout=10) for _ in range(50)]
        self.assertEqual(self.status()["state"], "running")
        for connection in many:
            connection.close()
        self.gate.open()
        self.assertEqual(self.run_.wait(), OK, self.run_.err)
        self.assertEqual(Counter(self.gate.began()), Counter(range(TASKS)))


class Database(RobustTest):
    def test_somebody_looks_into_it(self):
        self.wflow("run", self.study(gated_study(Gate(self.folder, TASKS), TASKS)), "-j", "2", "-q")
        directory = self.campaign()
        with closing(sqlite3.connect(directory / ".wflow" / "campaign.db")) as database:
            database.execute("SELECT count(*) FROM arrays").fetchall()
            for command in (("status",), ("resume", "-q")):
                said = self.wflow(*command, directory, code=BUSY).err
                self.assertRegex(said, rf"python3\S* \(PID {os.getpid()}\) has it open; close it there")
        self.assertEqual(self.status()["state"], "finished")


class Tasks(RobustTest):
    """They print and report what they like."""

    def python_study(self, lines, count=1, slots=1):
        (self.folder / "task.py").write_text("import os, sys\nevents = open(os.environ['WFLOW_EVENTS'], 'ab', buffering=0)\n" + lines)
        return self.study(f"""
description: {{name: tasks, description: print what they like}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: uniform, count: {count}, seed: 1, parameters: {{x: [0, 1]}}}}
workers: {{all: {{slots: {slots}}}}}
study:
  - name: work
    run: {{cmd: "python3 {self.folder}/task.py $(MERLIN_SAMPLE_ID) $(x)", max_retries: 0}}
""")

    def test_event_that_is_no_utf8(self):
        self.wflow("run", self.python_study(r"""
events.write(b'{"type": "note", "text": "caf\xe9 \xff\xfe"}\n')
events.write(b'{"type": "metric", "name": "\xc3(", "value": 1, "epoch": 0, "step": 0}\n')
events.write(b'\xff\xff\xff\n{"type": "note", "text": "good"}\n')
"""))
        self.assertEqual(self.status()["state"], "finished")
        self.assertGreaterEqual(len(self.query("SELECT * FROM v_events WHERE type = 'note'")), 1)

    def test_numbers_that_are_none(self):
        self.wflow("run", self.python_study(r"""
for value in ("1e300", "-1e300", "1e999", "NaN", "null", '"x"', "[]"):
    events.write(b'{"type": "metric", "name": "a", "value": %s, "epoch": %s, "step": %s}\n' % ((value.encode(),) * 3))
    events.write(b'{"type": "progress", "done": %s, "total": %s, "unit": "m"}\n' % ((value.encode(),) * 2))
events.write(b'{"type": "metric", "name": "large", "value": 1e300, "epoch": 0, "step": 1}\n')
"""))
        self.assertEqual(self.query("SELECT value FROM v_metrics WHERE name = 'large'"), [(1e300,)])
        self.assertEqual(self.status()["state"], "finished")

    def test_90_MiB_of_notes_at_once(self):
        # All wait until each has written what may wait at a task's end: then their agent reads all of it in one turn.
        count = 6
        study = self.python_study(rf"""
import time
line = b'{{"type": "note", "text": "%s"}}\n' % (b'x' * 60000)
events.write(line * 250)
open('{self.folder}/written', 'ab').write(b'x')
while os.path.getsize('{self.folder}/written') < {count}: time.sleep(0.02)
""", count, slots=count)
        run = self.start("run", study)
        self.assertEqual(run.wait(), OK, run.err)
        self.assertEqual(self.counts("work")["done"], count)

    def test_output_that_is_no_utf8(self):
        self.wflow("run", self.python_study(r"""
sys.stdout.buffer.write(b'\xff\xfe\x00\x1b[2J' * 1000)
sys.stderr.buffer.write(b'\xe9' * 5000)
sys.exit(3)
"""), code=TASKS_FAILED)
        self.assertEqual(self.counts("work")["failed"], 1)
        for arguments in (("tasks", "--state", "failed", "--json"), ("explain", "work/0", "--json")):
            process = self.wflow(arguments[0], self.campaign(), *arguments[1:])
            json.loads(process.out_file.read_bytes().decode())
        self.assertIn(b"\xe9" * 5000, self.wflow("logs", self.campaign(), "work/0").out_file.read_bytes())


class Damage(RobustTest):
    """Files that have changed under wflow's feet."""

    def killed_in_the_middle(self, coordinator_first=False):
        """A campaign killed when some tasks are done: in the database, or, `coordinator_first`, two of them only in the journal."""
        self.gate = Gate(self.folder, FREE)
        run = self.start("run", self.study(gated_study(self.gate, TASKS)), "-j", "2")
        directory = self.wait_at_gate(self.gate, run)
        if coordinator_first:
            run.process.kill()
            run.wait()
            self.gate.open()
            journal = self.wait(lambda: self.journal_of_two(directory), "results in a journal")
        self.kill_everything()
        run.wait()
        return journal if coordinator_first else directory

    def journal_of_two(self, directory):
        if len(self.gate.passed()) < FREE + 2 or self.processes("pass.sh"):
            return None
        return next((path for path in (directory / ".wflow" / "workers").glob("*.journal") if path.stat().st_size > 0), None)

    def said(self, process):
        return process.err + "\n".join(self.history())

    def test_write_ahead_log(self):
        directory = self.killed_in_the_middle()
        log = directory / ".wflow" / "campaign.db-wal"
        data = bytearray(log.read_bytes())
        for at in range(len(data) // 2, len(data), 512):
            data[at] ^= 0x55
        log.write_bytes(data)
        process = self.start("resume", directory, "-j", "2")
        self.gate.open()
        self.assertEqual(process.wait(), DATA, process.err)
        self.assert_one_sentence(process, "campaign.db", "--accept-loss")
        self.wflow("resume", directory, "-j", "2", "--accept-loss")
        self.assertEqual(self.status()["state"], "finished")

    def test_journal(self):
        journal = self.killed_in_the_middle(coordinator_first=True)
        data = bytearray(journal.read_bytes())
        for at in range(len(data) * 2 // 3, len(data), 64):
            data[at] ^= 0x55
        journal.write_bytes(data)
        directory = self.campaign()
        process = self.wflow("resume", directory, "-j", "2")
        self.assertIn("damaged", self.said(process))
        self.assertEqual(self.status()["state"], "finished")

    def test_temporary_files_of_killed_processes_go(self):
        """With the next coordinator, and a snapshot's with the next one of its name: each was as large as the database."""
        directory = self.killed_in_the_middle()
        self.gate.open()
        written = [directory / ".wflow" / f".{name}.tmp-1-0" for name in ("coordinator.json", "endpoint.json", "aside.json")]
        written.append(self.folder / ".copy.db.tmp-1-0")
        recent = directory / ".wflow" / ".endpoint.json.tmp-2-0-0ther0st"  # of a host where it may be being written
        for path in [*written, recent]:
            path.write_text("half")
        for path in written:
            os.utime(path, (0, 0))
        self.wflow("resume", directory, "-j", "2")
        self.wflow("snapshot", directory, self.folder / "copy.db")
        self.assertEqual([path for path in written if path.exists()], [])
        self.assertTrue(recent.exists())

    def test_copies_of_the_record_that_killed_commands_leave_go(self):
        """A diff of a live campaign copies its record; a killed one left 111 MB for good."""
        (self.folder / "sim.sh").write_text("exit 0\n")
        gate = Gate(self.folder, 0)
        text = gated_study(gate, 2).replace("cmd: |", "cmd: |\n        sh $(SPECROOT)/sim.sh", 1)
        run = self.start("run", self.study(text), "-j", "2")
        directory = self.wait_for_campaign(run)
        wait_for(lambda: gate.waiting() == 2, "its tasks run")
        (self.folder / "sim.sh").write_text("exit 0 # changed\n")
        left = directory / ".wflow" / ".record-kil1ed"
        (left / ".wflow").mkdir(parents=True)
        (left / ".wflow" / "campaign.db").write_text("a copy")
        self.assertIn("sources changed", self.wflow("diff", directory).out)
        self.assertEqual([path.name for path in (directory / ".wflow").glob(".record*")], [])
        gate.open()
        self.assertEqual(run.wait(), OK, run.err)

    def lost_results(self, harm, said):
        """Finished tasks run again, and their number is said and recorded."""
        harm(self.killed_in_the_middle(coordinator_first=True))
        process = self.wflow("resume", self.campaign(), "-j", "2")
        sentence = rf"{said}: [1-9]\d* of its results (?:is|are) lost, so that up to [1-9]\d* finished tasks? runs? again"
        self.assertRegex(process.err, sentence)
        self.assertRegex("\n".join(self.history()), sentence)
        self.assertEqual(self.status()["state"], "finished")

    def test_journal_that_is_cut(self):
        self.lost_results(lambda path: os.truncate(path, path.stat().st_size // 2), "the journal was cut or replaced")

    def test_journal_that_is_removed(self):
        self.lost_results(Path.unlink, "the journal is missing")

    def test_edited_row(self):
        self.wflow("run", self.study(gated_study(Gate(self.folder, TASKS), TASKS)), "-j", "2")
        with closing(sqlite3.connect(self.campaign() / ".wflow" / "campaign.db")) as database, database:
            database.execute("UPDATE runs SET last = last - 3")
        for command in ("tasks", "resume"):
            self.assert_one_sentence(self.wflow(command, self.campaign(), code=DATA), "damaged or was edited")


if __name__ == "__main__":
    unittest.main()
