# SPDX-License-Identifier: Apache-2.0
"""Nodes of a small cluster on this machine: each has a network namespace, a host name and an /etc/hosts of its own, and
all share the file system and the process table. Their cables can be cut, one-way too, lose packets, or lead through a
relay that delays, holds back or resets connections. Needs root."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

RELAY = Path(__file__).with_name("relay.py")
NODE = "WFLOW_CHAOS_NODE"


def ip(*words, check=True):
    return subprocess.run(["ip", *map(str, words)], check=check, capture_output=True, text=True)


def available():
    return os.geteuid() == 0 and all(subprocess.run(["which", tool], capture_output=True).returncode == 0 for tool in ("ip", "nft", "nsenter"))


class Nodes:
    """`count` nodes n0, n1, ... on a switch, with the addresses 10.77.0.1, ...; the relay is 10.77.0.99. close() takes all of it away."""

    counter = 0
    lock = threading.Lock()

    def __init__(self, folder, count=3):
        with Nodes.lock:
            Nodes.counter += 1
            self.prefix = f"wfc{os.getpid() % 100000:x}x{Nodes.counter:x}"
        self.folder, self.names = Path(folder), [f"n{i}" for i in range(count)]
        self.hosts = self.folder / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{self.address(n)} {n}\n" for n in self.names))
        self.switch = f"{self.prefix}sw"
        self.made = []
        self.relay_process = None
        try:
            self.make()
        except BaseException:
            self.close()
            raise

    def make(self):
        self.add_namespace(self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for name in [*self.names, "relay"]:
            space = self.space(name)
            self.add_namespace(space)
            ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", name, "netns", self.switch)
            ip("-n", self.switch, "link", "set", name, "master", "br0")
            ip("-n", self.switch, "link", "set", name, "up")
            ip("-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
        for name in self.names:
            self.nft(name, "add table inet chaos")
            for chain, hook in (("inward", "input"), ("outward", "output")):
                self.nft(name, f"add chain inet chaos {chain} {{ type filter hook {hook} priority 0; }}")

    def add_namespace(self, space):
        ip("netns", "add", space)
        self.made.append(space)
        ip("-n", space, "link", "set", "lo", "up")

    def close(self):
        if self.relay_process:
            self.relay_process.kill()
            self.relay_process.wait()
        for space in self.made:
            ip("netns", "del", space, check=False)

    def space(self, name):
        return f"{self.prefix}{name}"

    def address(self, name):
        return "10.77.0.99" if name == "relay" else f"10.77.0.{int(name[1:]) + 1}"

    def nft(self, name, text):
        subprocess.run(["nsenter", f"--net=/run/netns/{self.space(name)}", "nft", text], check=True, capture_output=True, text=True)

    # ---- programs

    def start(self, name, words, environment, out, cwd):
        """A program on that node, the leader of a session; its pid is the program's own."""
        script = f'hostname {name} && mount --bind "{self.hosts}" /etc/hosts && exec "$@"'
        inside = ["nsenter", f"--net=/run/netns/{self.space(name)}", "unshare", "--uts", "--mount", "bash", "-c", script, "-", *map(str, words)]
        with open(out, "ab") as file:
            return subprocess.Popen(inside, env={**environment, NODE: name}, cwd=cwd, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                    start_new_session=True)

    # ---- faults; heal() takes all of them back

    def cut(self, name):
        """The network interface is down, and the node sees that."""
        ip("-n", self.switch, "link", "set", name, "down")

    def join(self, name):
        ip("-n", self.switch, "link", "set", name, "up")

    def drop(self, name, chain, percent=100):
        """Packets vanish silently: `chain` is inward (it receives none) or outward (none of its own arrive)."""
        self.nft(name, f"add rule inet chaos {chain} meta iifname != lo meta oifname != lo "
                       + (f"numgen random mod 100 < {percent} " if percent < 100 else "") + "drop")

    def flush(self, name):
        self.nft(name, "flush table inet chaos")

    def heal(self):
        for name in self.names:
            self.join(name)
            self.flush(name)
        self.command_relay("normal")

    # ---- the relay

    def start_relay(self, environment):
        """Coordinators started with WFLOW_HOST=10.77.0.99 are reached through it."""
        self.relay_file = self.folder / "relay"
        self.relay_file.mkdir(exist_ok=True)
        words = ["nsenter", f"--net=/run/netns/{self.space('relay')}", sys.executable, RELAY, self.relay_file]
        with open(self.folder / "relay.out", "ab") as out:
            self.relay_process = subprocess.Popen(list(map(str, words)), env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def relay_to(self, name, port):
        """The coordinator listens there: so does the relay, on the same port."""
        self.write(self.relay_file / "target", f"{self.address(name)} {port}")

    def command_relay(self, mode):
        if self.relay_process:
            self.write(self.relay_file / "mode", mode)

    @staticmethod
    def write(path, text):
        path.with_suffix(".new").write_text(text)
        os.replace(path.with_suffix(".new"), path)


def processes_with(mark):
    """pid: environment, of living processes whose environment has the entry `mark`."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            state = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if mark in environment and state not in b"ZX":
            found[int(name)] = environment
    return found


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.02)
    return value
