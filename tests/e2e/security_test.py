# SPDX-License-Identifier: Apache-2.0
"""Access to a campaign: refused without its keys and to other users of this machine; malformed messages with the
right key. docs/security.md is the page."""

import json
import os
import resource
import shutil
import socket
import subprocess
import unittest
from collections import Counter
from pathlib import Path

from wflow_test import BIN, DATA, OK, SMALL, SYSTEM, CampaignTest, Gate, gated_study, read_text

TASKS = 12
FREE = 6
SILENT = 2000 if SMALL else 8000
FUZZ_SECONDS = int(os.environ.get("WFLOW_FUZZ_SECONDS", "0"))
MESSAGES = 4000 if SMALL else 20_000
GROWTH_MB = 400 if SMALL else 80  # a sanitizer keeps what was freed


def mode(path):
    return path.stat().st_mode & 0o777


class SecurityTest(CampaignTest):
    def begin(self, *options):
        """A campaign in the middle: some tasks are done, two run."""
        self.gate = Gate(self.folder, FREE)
        self.run_ = self.start("run", self.study(gated_study(self.gate, TASKS)), "-j", "2", *options)
        directory = self.wait_for_campaign(self.run_)
        self.wait_for_done("work", FREE, self.run_)
        self.wait(lambda: self.gate.waiting() == 2, "the others are in the middle", self.run_)
        return directory

    def end(self):
        """The campaign ends as if nothing had happened."""
        self.gate.open()
        self.assertEqual(self.run_.wait(), OK, self.run_.err)
        self.assertEqual(Counter(self.gate.began()), Counter(range(TASKS)))

    def endpoint(self, directory):
        return json.loads((directory / ".wflow" / "endpoint.json").read_text())

    def address(self, directory):
        return "127.0.0.1", int(self.endpoint(directory)["remote"].rsplit(":", 1)[1])

    def refused(self):
        return self.status()["refused"]

    def wait_for_refused(self, **least):
        return self.wait(lambda: all(self.refused()[name] >= count for name, count in least.items()), f"{least} are refused", self.run_)

    def memory_mb(self):
        for line in read_text(f"/proc/{self.run_.pid}/status").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("the coordinator has ended")


class OnlyTheUser(SecurityTest):
    def listening(self):
        """TCP ports on which processes of this test listen."""
        sockets = set()
        for pid in self.processes():
            for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
                try:
                    target = os.readlink(descriptor)
                except OSError:
                    continue
                if target.startswith("socket:["):
                    sockets.add(target[8:-1])
        found = []
        for table in ("tcp", "tcp6"):
            for line in read_text(f"/proc/net/{table}").splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and words[9] in sockets:
                    found.append(words[1])
        return found

    def test_a_campaign_of_one_machine_opens_no_port(self):
        directory = self.begin()
        self.assertEqual(self.listening(), [])
        self.assertEqual(self.endpoint(directory)["remote"], "")
        self.end()

    def test_listen_opens_one(self):
        self.begin("--listen")
        self.assertEqual(len(self.listening()), 1)
        self.assertEqual(self.refused(), {"connections": 0, "messages": 0, "other_keys": 0}, "workers and questions have keys")
        self.end()

    def test_modes(self):
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        directory = self.begin()
        own = directory / ".wflow"
        self.assertEqual(mode(own), 0o700)
        for name in ("keys.json", "endpoint.json"):
            self.assertEqual(mode(own / name), 0o600)
        path = Path(self.endpoint(directory)["local"].removeprefix("ipc://"))
        self.assertEqual((mode(path), mode(path.parent)), (0o600, 0o700))
        self.end()

    def test_what_others_can_get_at_is_refused(self):
        self.begin()
        self.end()
        directory = self.campaign()
        for name, loose, tight in ((".wflow", 0o755, 0o700), (".wflow/keys.json", 0o640, 0o600)):
            (directory / name).chmod(loose)
            refused = self.wflow("keys", directory, code=SYSTEM)
            self.assert_one_sentence(refused, "others can get at", f"chmod {tight:o} it")
            (directory / name).chmod(tight)
        self.wflow("keys", directory)

    def test_resume_checks_them_too(self):
        directory = self.begin()
        self.kill_everything()
        self.run_.wait()
        (directory / ".wflow" / "keys.json").chmod(0o644)
        self.assert_one_sentence(self.wflow("resume", directory, code=SYSTEM), "others can get at", "chmod 600 it")
        (directory / ".wflow" / "keys.json").chmod(0o600)
        self.gate.open()
        self.wflow("resume", directory, "-j", "2")
        self.assertEqual(self.status()["state"], "finished")

    @unittest.skipUnless(os.geteuid() == 0, "needs to become another user")
    def test_another_user_cannot_keep_the_database_locked(self):
        directory = self.begin()
        self.end()
        self.folder.chmod(0o755)
        directory.chmod(0o755)
        lock = f"import fcntl; fcntl.lockf(open('{directory}/.wflow/campaign.db', 'rb'), fcntl.LOCK_SH | fcntl.LOCK_NB)"
        done = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "python3", "-c", lock], capture_output=True, text=True)
        self.assertIn("Permission denied", done.stderr)

    def test_sockets_of_killed_coordinators_are_removed(self):
        directory = self.begin()
        old = Path(self.endpoint(directory)["local"].removeprefix("ipc://"))
        self.kill_everything()
        self.run_.wait()
        self.assertTrue(old.is_socket())
        self.gate.open()
        self.wflow("resume", directory, "-j", "2")
        self.assertFalse(old.exists())

    def test_folder_of_sockets_that_another_has_made(self):
        """Whoever makes the folder first must not get the sockets."""
        runtime = self.folder / "runtime"
        runtime.mkdir()
        (runtime / "wflow").mkdir()
        (runtime / "wflow").chmod(0o777)
        self.environment["XDG_RUNTIME_DIR"] = str(runtime)
        directory = self.begin()
        path = Path(self.endpoint(directory)["local"].removeprefix("ipc://"))
        self.assertNotEqual(path.parent, runtime / "wflow")
        self.assertEqual(mode(path.parent), 0o700)
        self.end()


class Foreign(SecurityTest):
    """A user who can replace a campaign could make its owner run commands: wflow reads no file of it."""

    STUDY = """
description: {{name: swapped, description: d}}
env: {{variables: {{OUTPUT_PATH: {folder}}}}}
samples: {{file: {folder}/x.csv, generate: {{cmd: "touch {folder}/stolen; seq 3 > {folder}/x.csv"}}, column_labels: [x]}}
study: [{{name: a, run: {{cmd: "touch {folder}/stolen $(x)"}}}}]
"""
    COMMANDS = [["status"], ["status", "--json"], ["tasks"], ["samples"], ["logs", "a/0"], ["explain", "a/0"], ["rerun", "a/0"], ["rerun", "a/0", "--print"],
                ["redo", "a", "-y"], ["retry"], ["resume"], ["diff"], ["history"], ["history", "--show", "1"], ["report"], ["usage"], ["workers"],
                ["keys"], ["cancel"], ["stop"], ["metrics"], ["curves"], ["snapshot", "{folder}/copy.db"], ["extend", "--count", "9"],
                ["doctor"], ["attach"], ["rm", "-y"]]

    def setUp(self):
        super().setUp()
        self.path = self.folder / "study.yaml"
        self.path.write_text(self.STUDY.format(folder=self.folder))
        self.wflow("run", self.path, "-q", "-j", "2", code=OK)
        self.directory = next(self.folder.glob("swapped_*"))
        (self.folder / "stolen").unlink()

    def refused(self, *words):
        commands = [[command, str(self.directory), *rest] for command, *rest in self.COMMANDS]
        commands += [[command, "--campaign", str(self.directory)] for command in ("worker", "allocations")]
        commands += [["resume", str(self.directory), "--update", "-y"], ["status", str(self.path)]]
        for command in commands:
            with self.subTest(command):
                process = self.wflow(*[word.format(folder=self.folder) for word in command], code=SYSTEM)
                self.assert_one_sentence(process, *words)
        self.assertFalse((self.folder / "stolen").exists())
        self.assertFalse((self.folder / "copy.db").exists())

    @unittest.skipUnless(os.geteuid() == 0, "needs to give files to another user")
    def test_swapped_by_another_user(self):
        self.path.write_text(self.path.read_text().replace("seq 3", "seq 4"))
        for root, _, files in os.walk(self.directory / ".wflow"):
            for name in [root] + [os.path.join(root, file) for file in files]:
                os.chown(name, 65534, 65534, follow_symlinks=False)
        self.refused("belongs to another user (uid 65534)", str(self.directory / ".wflow"))
        self.environment["WFLOW_TRUST"] = str(self.folder)
        self.wflow("status", self.directory, code=OK)

    def test_parent_that_everybody_can_write_to(self):
        self.folder.chmod(0o777)
        self.refused("others can write to", "(mode 0777)", "chmod o-w it")
        self.assert_one_sentence(self.wflow("run", self.path, "-q", code=SYSTEM), "others can write to")
        self.assertEqual(len(list(self.folder.glob("swapped_*"))), 1)
        self.folder.chmod(0o1777)
        self.wflow("status", self.directory, code=OK)

    @unittest.skipUnless(os.geteuid() == 0, "needs to become another user")
    def test_own_campaign_in_a_folder_like_tmp(self):
        """A campaign of another user id is its own, root's above it is no obstacle; one of another user in a shared folder is not the newest."""
        self.folder.chmod(0o1777)
        study = self.folder / "own.yaml"
        study.write_text(f"description: {{name: own, description: d}}\nenv: {{variables: {{OUTPUT_PATH: {self.folder}}}}}\nstudy: [{{name: a, run: {{cmd: 'true'}}}}]\n")
        as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", str(BIN / "wflow")]
        environment = {**self.environment, "HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder / "state")}
        if subprocess.run([*as_nobody, "--version"], capture_output=True).returncode != OK:
            self.skipTest("another user can't start the programs here")
        for words in (["run", study, "-q", "-j", "1"], ["status"], ["resume"]):
            done = subprocess.run([*as_nobody, *map(str, words)], capture_output=True, text=True, cwd=self.folder, env=environment, timeout=60)
            self.assertEqual(done.returncode, OK, done.stdout + done.stderr)
        self.assert_one_sentence(self.wflow("rerun", next(self.folder.glob("own_*")), "a", code=SYSTEM), "belongs to another user (uid 65534)")


class Keys(SecurityTest):
    def test_renewed(self):
        directory = self.begin("--listen")
        old = (directory / ".wflow" / "keys.json").read_bytes()
        refused = self.wflow("keys", directory, "--renew", code=7)
        self.assert_one_sentence(refused, "coordinat")
        self.kill_everything()
        self.run_.wait()
        self.assertIn("These are new", self.wflow("keys", directory, "--renew").out)
        keys = directory / ".wflow" / "keys.json"
        keys.write_text("{")
        self.assertIn("--renew", self.wflow("status", directory, code=DATA).err)
        keys.unlink()
        self.assert_one_sentence(self.wflow("status", directory, code=DATA), "keys.json is missing; wflow keys --renew")
        self.assertIn("These are new", self.wflow("keys", directory, "--renew").out)
        self.assertNotEqual((directory / ".wflow" / "keys.json").read_bytes(), old)
        self.run_ = self.start("resume", directory, "-j", "2", "--listen")
        self.wait(lambda: self.gate.waiting() >= 4, "two tasks run again", self.run_)
        # Somebody who has kept a copy of the old ones.
        thief = self.folder / "thief"
        (thief / ".wflow").mkdir(parents=True)
        (thief / ".wflow").chmod(0o700)
        (thief / ".wflow" / "keys.json").write_bytes(old)
        (thief / ".wflow" / "keys.json").chmod(0o600)
        shutil.copy(directory / ".wflow" / "endpoint.json", thief / ".wflow" / "endpoint.json")
        fuzz = self.start(thief, "--messages", "3", program="wflow_fuzz_messages")
        fuzz.process.wait()
        self.wait_for_refused(connections=1)
        self.assertEqual(self.refused()["messages"], 0, "none of its messages was read")
        self.gate.open()
        self.assertEqual(self.run_.wait(), OK, self.run_.err)

    def test_of_another_campaign(self):
        directory = self.begin("--listen")
        other = self.folder / "other"
        other.mkdir()
        (other / "study.yaml").write_text("description: {name: other, description: nothing}\nenv: {variables: {OUTPUT_PATH: other}}\n"
                                          "study: [{name: a, run: {cmd: 'true'}}]\n")
        self.wflow("run", other / "study.yaml", "-q")
        keys = json.loads(next(other.glob("*/.wflow/keys.json")).read_text())
        mine = json.loads((directory / ".wflow" / "keys.json").read_text())
        keys["server"]["public"] = mine["server"]["public"]  # it knows whom it talks to, and is not on the list
        thief = self.folder / "thief" / ".wflow"
        thief.mkdir(parents=True)
        thief.chmod(0o700)
        (thief / "keys.json").write_text(json.dumps(keys))
        (thief / "keys.json").chmod(0o600)
        shutil.copy(directory / ".wflow" / "endpoint.json", thief / "endpoint.json")
        self.start(thief.parent, "--messages", "3", program="wflow_fuzz_messages").process.wait()
        self.wait_for_refused(connections=1, other_keys=1)
        self.assertEqual(self.refused()["messages"], 0, "none of its messages was read")
        self.assertIn("with other keys", self.wflow("status", directory).out)
        self.end()


class Strangers(SecurityTest):
    def test_thousands_without_keys(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < SILENT + 500:
            self.skipTest("too few open files are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        directory = self.begin("--listen")
        before = self.memory_mb()
        sockets = []
        self.addCleanup(lambda: [s.close() for s in sockets])
        # The greeting of the protocol, so that each gets as far as one can without a key.
        greeting = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00CURVE" + bytes(15) + b"\x00" + bytes(31)
        for i in range(SILENT):
            connection = socket.create_connection(self.address(directory), timeout=30)
            sockets.append(connection)
            if i % 2:
                try:
                    connection.sendall(greeting)
                except OSError:
                    pass  # it has been shut already
        self.wait_for_refused(connections=SILENT - 1024)
        growth = self.memory_mb() - before
        print(f"{SILENT} connections without keys: {growth:.0f} MB more")
        self.assertLess(growth, GROWTH_MB)
        self.assertIn("without the campaign's keys", self.wflow("status", directory).out)
        self.end()

    def test_their_garbage(self):
        directory = self.begin("--listen")
        for data in (b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 4096, b"\xff" + b"\0" * 8 + b"\x7f" + b"\xff" * 100_000, b""):
            with socket.create_connection(self.address(directory), timeout=10) as connection:
                try:
                    connection.sendall(data)
                except OSError:
                    pass
        self.wait_for_refused(connections=4)
        self.assertIn("refused: ", read_text(next((directory / ".wflow" / "logs").glob("coordinator-*.log"))))
        self.end()


class Nonsense(SecurityTest):
    """With the right keys. WFLOW_FUZZ_SECONDS=600: for so long each, by hand, with an ASan build."""

    def fuzz(self, *options):
        directory = self.begin()
        self.wflow(directory, "--messages", "500", *options, program="wflow_fuzz_messages")  # what it allocates once
        before = self.memory_mb()
        for seed in range(7, 8 + FUZZ_SECONDS // 100):
            amount = ("--seconds", 100) if FUZZ_SECONDS else ("--messages", MESSAGES)
            fuzz = self.wflow(directory, *amount, "--seed", seed, *options, program="wflow_fuzz_messages")
            growth = self.memory_mb() - before
            print(f"{fuzz.out.strip()}: {growth:.0f} MB more", flush=True)
            self.assertLess(growth, GROWTH_MB)
        self.assertGreater(self.refused()["messages"], MESSAGES // 4)
        return directory

    def test_without_a_hello(self):
        self.fuzz()
        self.end()
        self.assertEqual(self.status()["state"], "finished")

    def test_of_a_worker(self):
        """It is leased tasks and never runs them: they come back when it has gone."""
        self.fuzz("--worker", "default")
        self.gate.open()
        self.assertEqual(self.run_.wait(), OK, self.run_.err)


class Quote(SecurityTest):
    def test_cells_of_a_table_are_one_word_of_the_shell(self):
        cells = ["plain", "two words", "it's", "$(touch pwned)", "`touch pwned`", "a;touch pwned", "*", "\\", "-n", "\"quoted\"", "a~", "{a,b}", "!x", "é"]
        values = json.dumps([[cell] for cell in cells], ensure_ascii=False)
        for shell in ("", "    shell: /bin/sh\n"):
            with self.subTest(shell):
                shutil.rmtree(self.folder / "out", ignore_errors=True)
                self.wflow("run", "-j", "2", self.study(f"""
description: {{name: quote, description: cells in a command}}
env: {{variables: {{OUTPUT_PATH: out}}}}
samples: {{design: list, columns: [cell], values: {values}}}
study:
  - name: say
    run:
      cmd: printf '%s\\n' $(quote:cell) > said
  {shell}"""))
                said = {path.read_text() for path in self.folder.glob("out/*/say/**/said")}
                self.assertEqual(said, {cell + "\n" for cell in cells})
                self.assertEqual(list(self.folder.rglob("pwned")), [])

    def test_of_what_is_no_column(self):
        refused = self.wflow("validate", self.study("""
description: {name: quote, description: no such column}
samples: {design: uniform, count: 2, parameters: {density: [0, 1]}}
study: [{name: a, run: {cmd: "echo $(quote:densty) $(density)"}}]
"""), code=3)
        self.assertIn("quote: takes a column of the samples", refused.err)
        self.assertIn("density", refused.err)


if __name__ == "__main__":
    unittest.main()
