# SPDX-License-Identifier: Apache-2.0
"""What all end-to-end tests share: programs, temporary folders, waiting for conditions, and no process left behind."""

import contextlib
import ctypes
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest
from pathlib import Path

BIN = Path(os.environ.get("WFLOW_BIN", Path(__file__).resolve().parents[2] / "build" / "dev" / "bin"))
SOURCE = Path(__file__).resolve().parents[2]
QUICKSTART = SOURCE / "examples" / "cosmoflow" / "quickstart.yaml"
# Sanitized programs are some times slower: they get less to do.
SMALL = os.environ.get("WFLOW_E2E_SMALL", "") not in ("", "0")
DEADLINE_S = int(os.environ.get("WFLOW_E2E_DEADLINE_S", "240"))
MARK = "WFLOW_E2E_FOLDER"

OK, TASKS_FAILED, USAGE, SPEC, DATA, SYSTEM, INTERRUPTED, BUSY = 0, 1, 2, 3, 4, 5, 6, 7


def wait_for(condition, what, deadline_s=DEADLINE_S):
    """Polls until condition() is true and gives its value. Time passes only while it is not. A condition that takes long, as one that starts
    a program, is asked half of the time at most: other tests run beside this one."""
    begun = time.monotonic()
    while True:
        asked = time.monotonic()
        if value := condition():
            return value
        now = time.monotonic()
        if now > begun + deadline_s:
            raise AssertionError(f"waited {deadline_s} s in vain for {what}")
        time.sleep(max(0.005, min(now - asked, 0.25)))


def read_text(path):
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def lines_of(path):
    return read_text(path).split()


def xxh3_128(data):
    """By the library itself, not through wflow."""

    class Hash(ctypes.Structure):
        _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]

    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_128bits.restype = Hash
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    value = library.XXH3_128bits(data, len(data))
    return f"{value.high:016x}{value.low:016x}"


def without_escapes(text):
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)


class Process:
    """A wflow program in a session of its own, its output in files: a full pipe never holds it up."""

    def __init__(self, test, arguments, name):
        self.out_file = test.folder / f"{name}.out"
        self.err_file = test.folder / f"{name}.err"
        with open(self.out_file, "wb") as out, open(self.err_file, "wb") as err:
            self.process = subprocess.Popen([str(a) for a in arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                            env=test.environment, cwd=test.folder, start_new_session=True)
        self.pid = self.process.pid

    @property
    def out(self):
        return read_text(self.out_file)

    @property
    def err(self):
        return read_text(self.err_file)

    def running(self):
        return self.process.poll() is None

    def signal(self, number):
        os.kill(self.pid, number)

    def wait(self, deadline_s=DEADLINE_S):
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {deadline_s} s: {self.process.args}\n{self.out}\n{self.err}") from None


class Gate:
    """A turnstile for tasks: each says that it began; those from number `free` on wait until open(). So a test knows
    what has finished and what is in the middle, on any machine."""

    def __init__(self, folder, free):
        self.free = free
        self.folder = folder / "gate"
        self.folder.mkdir()
        self.script = self.folder / "pass.sh"
        self.script.write_text(
            f'echo $1 >> "{self.folder}/began"\n'
            f'until [ $1 -lt {free} ] || [ -e "{self.folder}/open" ]; do sleep 0.1; done\n'
            f'echo $1 >> "{self.folder}/passed"\n')

    def command(self):
        return f"bash {self.script} $(MERLIN_SAMPLE_ID) || exit 1"

    def open(self):
        (self.folder / "open").touch()

    def began(self):
        return [int(n) for n in lines_of(self.folder / "began")]

    def passed(self):
        return [int(n) for n in lines_of(self.folder / "passed")]

    def waiting(self):
        """How many are held. Those that may pass count for nothing between their two lines."""
        return sum(n >= self.free for n in self.began()) - sum(n >= self.free for n in self.passed())


class CampaignTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="wfe-")).resolve()
        temporary = self.folder / "t"  # Open MPI's session directories: a path of theirs must fit into a socket's name
        temporary.mkdir()
        self.environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", MARK: str(self.folder), "TMPDIR": str(temporary),
                            "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": str(temporary / "state"), "XDG_CACHE_HOME": str(temporary / "cache")}
        for name in ("TERM", "NO_COLOR", "WFLOW_EVENTS"):
            self.environment.pop(name, None)
        self.count = 0
        self.addCleanup(self.clean_up)

    def clean_up(self):
        result = self._outcome.result
        failed = any(test is self for test, _ in result.failures + result.errors)  # then its campaign did not come to an end
        try:
            if not failed:
                wait_for(lambda: not self.processes(), "the end of all processes", 30)
        except AssertionError:
            self.fail("processes were left behind: " + "; ".join(self.describe(pid) for pid in self.processes()))
        finally:
            self.kill(self.processes())
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- processes

    def processes(self, word=None):
        """Every process that belongs to this test: by its environment, command line or working directory."""
        mark = str(self.folder).encode()
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            folder = Path("/proc") / entry
            try:
                command = (folder / "cmdline").read_bytes()
                if not command:
                    continue  # it has ended, or is a thread of the kernel
                ours = mark in command or mark in (folder / "environ").read_bytes()
                ours = ours or os.readlink(folder / "cwd").startswith(str(self.folder))
            except OSError:
                continue  # it has ended meanwhile
            if ours and (word is None or word.encode() in command.replace(b"\0", b" ")):
                found.append(int(entry))
        return found

    @staticmethod
    def words(pid):
        """Its command line; empty when it has ended."""
        return read_text(f"/proc/{pid}/cmdline").split("\0")

    @classmethod
    def describe(cls, pid):
        return f"{pid}: " + " ".join(cls.words(pid))

    @staticmethod
    def parent(pid):
        return int((read_text(f"/proc/{pid}/stat") or ") Z 0").rsplit(")", 1)[1].split()[1])

    @staticmethod
    def signal_each(pids, number):
        """Some of them may have ended."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self, pids):
        """All at one moment as far as they can tell: stopped first, so that none sees another die."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            self.signal_each(pids, number)

    def kill_everything(self):
        """Every process of this test, with what they fork while they are being found: what is stopped forks no more."""
        stopped = []
        while new := [pid for pid in self.processes() if pid not in stopped]:
            self.signal_each(new, signal.SIGSTOP)
            stopped += new
        self.kill(stopped)
        return stopped

    def wait_until_gone(self, pids):
        wait_for(lambda: not set(pids) & set(self.processes()), f"the end of {pids}")

    def assert_same_weights(self, first, second):
        """Two files of TorchScript have the same arrays, bit by bit."""
        import torch
        ours, theirs = (torch.jit.load(str(model)).state_dict() for model in (first, second))
        self.assertEqual(set(ours), set(theirs))
        self.assertGreater(len(ours), 0)
        for name, value in ours.items():
            self.assertTrue(torch.equal(value, theirs[name]), f"{name} differs")

    # ---- wflow

    def start(self, *arguments, program="wflow"):
        self.count += 1
        process = Process(self, [BIN / program, *arguments], f"{program}-{self.count}")
        self.addCleanup(self.reap, process)
        return process

    @staticmethod
    def reap(process):
        if process.running():
            process.process.kill()
        process.process.wait()

    def wflow(self, *arguments, code=OK, program="wflow"):
        process = self.start(*arguments, program=program)
        got = process.wait()
        self.assertEqual(got, code, f"wflow {' '.join(map(str, arguments))}\n{process.out}\n{process.err}")
        return process

    def campaign(self):
        found = [path.parent.parent for path in self.folder.glob("*/.wflow/campaign.db")]
        return found[0] if len(found) == 1 else None

    def wait(self, condition, what, during=None):
        """wait_for, which gives up when the program that it depends on has ended."""
        def either():
            value = condition()
            if not value and during and not during.running() and not condition():
                raise AssertionError(f"the program ended before {what}\n{during.out}\n{during.err}")
            return value

        return wait_for(either, what)

    def wait_for_campaign(self, during=None):
        return self.wait(self.campaign, "a campaign directory", during)

    def status(self):
        return json.loads(self.wflow("status", self.campaign(), "--json").out)

    def counts(self, step):
        return next(s["counts"] for s in self.status()["steps"] if s["name"] == step)

    def wait_for_done(self, step, number, during=None):
        return self.wait(lambda: self.counts(step)["done"] == number, f"{number} tasks of {step} are done", during)

    def history(self, kind=None):
        return [row["text"] for row in self.status()["history"] if kind in (None, row["kind"])]

    def study(self, text, name="study.yaml"):
        path = self.folder / name
        path.write_text(text)
        return path

    def sentence(self, process):
        """The one line that an error is."""
        lines = process.err.strip().split("\n")
        self.assertEqual(len(lines), 1, process.err)
        self.assertRegex(lines[0], r"^(wflow|.*:\d+:\d+: (error|warning): )")
        return lines[0]

    def assert_one_sentence(self, process, *parts):
        sentence = self.sentence(process)
        for part in parts:
            self.assertIn(part, sentence)

    def assert_nothing_half_written(self):
        left = [str(p) for p in self.folder.rglob("*") if re.search(r"\.tmp|\.temporary|\.part$|~$", p.name)]
        self.assertEqual(left, [])


def gated_study(gate, count, then="true", extra=""):
    """`count` shell tasks behind the gate."""
    return f"""
description: {{name: gated, description: tasks behind a gate}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: uniform, count: {count}, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run:
      cmd: |
        {gate.command()}
        : $(x)
        {then}
{extra}"""


def quickstart(universes, epochs, gate=None, checkpoint_steps=0, failing=""):
    """The quickstart campaign, with fewer universes and what a test must hold on to."""
    text = QUICKSTART.read_text()
    test = max(2, universes // 6)
    for name, value in (("OUTPUT_PATH", "."), ("UNIVERSES", universes), ("TRAIN", universes - 2 * test), ("VALIDATION", test),
                        ("TEST", test), ("EPOCHS", epochs)):
        text = re.sub(rf"^    {name}: \S+", f"    {name}: {value}", text, flags=re.M)
    before = [gate.command()] if gate else []
    before += [failing] if failing else []
    text = text.replace("      cmd: |\n", "      cmd: |\n" + "".join(f"        {line}\n" for line in before))
    if checkpoint_steps:
        text += f"      checkpoint: {{every_steps: {checkpoint_steps}, keep: 2}}\n"
        text = re.sub(r"^      batch: \d+", "      batch: 4", text, flags=re.M)
    return text.replace("shard_samples: 50", f"shard_samples: {max(4, universes // 3)}")


class Terminal:
    """A program on a pseudo-terminal of a given width; what it writes is collected."""

    def __init__(self, test, arguments, columns, rows=24, environment=None, program="wflow"):
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(test.folder)
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(str(BIN / program), [str(a) for a in [program, *arguments]],
                      {**test.environment, "TERM": "xterm-256color", **(environment or {})})
        self.text = ""

    def finish(self, deadline_s=DEADLINE_S):
        end = time.monotonic() + deadline_s
        data = b""
        while time.monotonic() < end:
            ready, _, _ = select.select([self.descriptor], [], [], 1)
            if not ready:
                continue
            try:
                part = os.read(self.descriptor, 65536)
            except OSError:  # the terminal's other side is closed
                part = b""
            if not part:
                break
            data += part
        self.text = data.decode(errors="replace")
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
