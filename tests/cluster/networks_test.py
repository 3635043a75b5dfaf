# SPDX-License-Identifier: Apache-2.0
"""A coordinator and a worker that share one of several networks, in network namespaces of their own: the worker finds it."""

import json
import os
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from wflow_test import OK, CampaignTest, Process, lines_of, wait_for  # noqa: E402


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@unittest.skipUnless(os.geteuid() == 0, "no root here, so nothing was tested")
class Networks(CampaignTest):
    """Host `a` has a public network that no other host has, a management network whose packets get lost, and a data
    network; host `b` has the management and the data network, and a bridge of the same address as one of `a`."""

    def setUp(self):
        super().setUp()
        self.names = {host: f"wfn{os.getpid() % 100000}{host}" for host in "ab"}
        for name in self.names.values():
            ip("netns", "add", name)
            self.addCleanup(subprocess.run, ["ip", "netns", "del", name], check=False)
            ip("-n", name, "link", "set", "lo", "up")
        a, b = self.names["a"], self.names["b"]
        self.dummy(a, "eth0", "192.0.2.1/24")
        self.dummy(a, "docker0", "172.17.0.1/16")
        self.dummy(b, "docker0", "172.17.0.1/16")
        # The same network by its address, and another one by its wire. No host refuses: packets vanish, as behind a firewall.
        self.dummy(a, "mgmt", "198.18.1.1/24")
        self.dummy(b, "mgmt", "198.18.1.2/24")
        ip("-n", b, "neigh", "add", "198.18.1.1", "lladdr", "02:00:00:00:00:01", "dev", "mgmt", "nud", "permanent")
        self.cable("data", "198.18.2")
        ip("-n", b, "route", "add", "192.0.2.0/24", "via", "198.18.1.1")
        self.hosts = self.folder / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n127.0.1.1 a\n127.0.1.1 b\n")  # as Debian names a host

    @staticmethod
    def dummy(name, link, address):
        """A network without another host: this kernel need not have interfaces of the type `dummy`."""
        ip("-n", name, "link", "add", link, "type", "veth", "peer", "name", f"{link}-peer")
        ip("-n", name, "link", "set", f"{link}-peer", "up")
        ip("-n", name, "addr", "add", address, "dev", link)
        ip("-n", name, "link", "set", link, "up")

    def cable(self, link, net):
        a, b = self.names["a"], self.names["b"]
        ip("link", "add", link, "netns", a, "type", "veth", "peer", "name", link, "netns", b)
        for number, name in ((1, a), (2, b)):
            ip("-n", name, "addr", "add", f"{net}.{number}/24", "dev", link)
            ip("-n", name, "link", "set", link, "up")

    def on(self, host, *words, name):
        """A program on that host: its network, its host name, its /etc/hosts."""
        script = f'hostname {host} && mount --bind "{self.hosts}" /etc/hosts && exec "$@"'
        inside = ["nsenter", f"--net=/run/netns/{self.names[host]}", "unshare", "--uts", "--mount", "bash", "-c", script, "-", *map(str, words)]
        return Process(self, inside, name)

    def study_for_b(self):
        return self.study(f"""
description: {{name: networks, description: tasks on another host}}
env: {{variables: {{OUTPUT_PATH: .}}}}
workers: {{far: {{machines: [b]}}}}
samples: {{design: uniform, count: 4, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run: {{cmd: ": $(x); hostname >> {self.folder}/ran"}}
""")

    def campaign_with_worker(self, run):
        directory = self.wait_for_campaign(run)
        endpoint = wait_for(lambda: self.endpoint(directory), "the endpoint file")
        began = time.monotonic()
        worker = self.on("b", "wflow", "worker", "--campaign", directory, "--group", "far", "--slots", "2", name="worker")
        self.assertEqual(run.wait(), OK, run.err)
        self.assertEqual(worker.wait(), OK, worker.err)
        self.assertEqual(lines_of(self.folder / "ran"), ["b"] * 4)
        return endpoint, time.monotonic() - began

    @staticmethod
    def endpoint(directory):
        try:
            return json.loads((directory / ".wflow" / "endpoint.json").read_text())
        except (OSError, ValueError):
            return None

    def test_the_worker_finds_the_network_that_works(self):
        run = self.on("a", "wflow", "run", self.study_for_b(), name="run")
        endpoint, took = self.campaign_with_worker(run)
        every = [endpoint["remote"], *endpoint["others"]]
        hosts = [address.split("//")[1].rsplit(":", 1)[0] for address in every]
        self.assertEqual(hosts, ["192.0.2.1", "198.18.1.1", "198.18.2.1", "172.17.0.1", "a"], "all of them, bridges last")
        print(f"with one silent network before the one that works: {took:.1f} s", file=sys.stderr)
        self.assertLess(took, 30)

    def test_the_address_can_be_set(self):
        self.environment["WFLOW_HOST"] = "198.18.2.1"
        run = self.on("a", "wflow", "run", self.study_for_b(), name="run")
        endpoint, _ = self.campaign_with_worker(run)
        self.assertEqual(endpoint["others"], [])
        self.assertTrue(endpoint["remote"].startswith("tcp://198.18.2.1:"))

    def test_a_question_from_the_other_host(self):
        run = self.on("a", "wflow", "run", self.study_for_b(), name="run")
        directory = self.wait_for_campaign(run)
        wait_for(lambda: self.endpoint(directory), "the endpoint file")
        status = self.on("b", "wflow", "status", directory, "--json", name="status")
        self.assertEqual(status.wait(), OK, status.err)
        self.assertEqual(json.loads(status.out)["state"], "running")
        drain = self.on("b", "wflow", "stop", directory, name="stop")
        self.assertEqual(drain.wait(), OK, drain.err)
        run.wait()


if __name__ == "__main__":
    unittest.main()
