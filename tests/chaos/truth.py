# SPDX-License-Identifier: Apache-2.0
"""What really ran, from the simulator's own record and the kernel's: executions, and what they say against the promise."""

import ctypes
import os
import signal
import socket
import struct
import threading
from collections import defaultdict
from dataclasses import dataclass

LINE = 64  # bytes, as task.c writes them
SECOND = 1_000_000_000


@dataclass
class Execution:
    step: str
    element: int
    attempt: int
    pid: int
    agent: int     # its parent
    guardian: int  # the leader of its session
    begin: int  # nanoseconds of the monotonic clock
    end: int = 0
    success: bool = False
    beside_another: bool = False


class Truth:
    """The record of one campaign; read() takes in what is new."""

    def __init__(self, path):
        self.path = path
        self.offset = 0
        self.ended = 0
        self.executions = []
        self.open = {}

    def read(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = len(data) - len(data) % LINE
        self.offset += whole
        for line in data[:whole].decode().splitlines():
            self.take(line.split())

    def take(self, fields):
        kind, step = fields[:2]
        element, attempt, pid, agent, guardian, time = map(int, fields[2:])
        if kind == "B":
            execution = Execution(step, element, attempt, pid, agent, guardian, time)
            self.executions.append(execution)
            self.open[pid] = execution
        elif kind == "O":
            self.open[pid].beside_another = True
        else:
            self.open[pid].end = time
            self.open[pid].success = kind == "E"
            self.ended += kind == "E"

    def without_killed(self, killed, faults, in_shell=False):
        """Takes back the success of those that a signal ended between their last line and their exit; how many. Later than
        that it is another process of the same number, unless it was frozen in between. `in_shell`: their parent is the shell
        of the step's command, whose exit is the task's."""
        count = 0
        for execution in self.executions:
            deaths = [*killed.get(execution.pid, ()), *(killed.get(execution.agent, ()) if in_shell else ())]
            latest = execution.end + SECOND // 10
            if any(execution.begin < at < latest and number == signal.SIGSTOP for at, number in faults.get(execution.pid, ())):
                latest += 60 * SECOND
            if execution.success and any(execution.begin < death < latest for death in deaths):
                execution.success = False
                count += 1
        return count

    def by_element(self):
        result = defaultdict(list)
        for execution in sorted(self.executions, key=lambda e: e.begin):
            result[execution.step, execution.element].append(execution)
        return result

    def reruns(self):
        """(first success, a later execution of the same element)."""
        found = []
        for executions in self.by_element().values():
            first = next((i for i, e in enumerate(executions) if e.success), len(executions))
            found += [(executions[first], later) for later in executions[first + 1:]]
        return found

    def overlaps(self):
        return [e for e in self.executions if e.beside_another]

    def most_at_once(self):
        """The results of executions that came to their own end."""
        moments = sorted([(e.begin, 1) for e in self.executions if e.end] + [(e.end, -1) for e in self.executions if e.end])
        most = now = 0
        for _, change in moments:
            now += change
            most = max(most, now)
        return most

    def succeeded(self):
        return {(e.step, e.element) for e in self.executions if e.success}


class KilledProcesses:
    """The kernel's word on which processes ended by a signal, and when: a task that is killed between its last line and
    its exit has not succeeded. Of the whole machine; needs root. Without it `available` is false."""

    def __init__(self):
        self.killed = defaultdict(list)
        self.available = False
        try:
            self.socket = self.connect()
        except OSError:
            return
        self.available = True
        threading.Thread(target=self.listen, daemon=True).start()

    @staticmethod
    def connect():
        connector, multicast_listen, process_events = 11, 1, 1
        link = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, connector)
        link.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
        KilledProcesses.only_killed(link)
        link.bind((0, process_events))
        message = struct.pack("=IIIIHHI", process_events, 1, 0, 0, 4, 0, multicast_listen)
        link.send(struct.pack("=IHHII", 16 + len(message), 3, 0, 0, os.getpid()) + message)
        return link

    @staticmethod
    def only_killed(link):
        """A filter in the kernel: exits (event 0x80000000) whose code has a signal in its low seven bits."""
        program = struct.pack("HBBI" * 7,
                              0x20, 0, 0, 36,           # load the word at 36: which event, in the machine's own order
                              0x15, 0, 4, 0x00000080,   # not an exit: drop
                              0x30, 0, 0, 60,           # load the lowest byte of the exit code
                              0x54, 0, 0, 0x7f,
                              0x15, 1, 0, 0,            # no signal: drop
                              0x06, 0, 0, 0xffff,       # pass
                              0x06, 0, 0, 0)            # drop
        buffer = ctypes.create_string_buffer(program)
        link.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HL", 7, ctypes.addressof(buffer)))  # SO_ATTACH_FILTER

    def listen(self):
        while True:
            try:
                message = self.socket.recv(4096)
            except OSError:
                continue  # some were lost: their executions count as successes
            time, pid = struct.unpack_from("=QI", message, 44)
            self.killed[pid].append(time)
