# SPDX-License-Identifier: Apache-2.0
"""What scripts/install-deps would install on a bare machine: with an apt-get and a dpkg-query that know nothing."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "install-deps"
TRAINER = {"libopenmpi-dev", "openmpi-bin", "libtorch-dev", "python3-torch"}
TESTS_ONLY = {"chromium", "python3-pandas", "python3-onnx", "tmux", "libgtest-dev", "poppler-utils"}
MPICH = {"libmpich-dev", "mpich"}
PACKAGING = MPICH | {"musl-tools", "busybox-static", "binutils", "patchelf", "xz-utils", "dpkg-dev", "lintian", "debootstrap", "python3-pip",
                     "python3-venv", "python3-wheel"}
DEVELOPERS = {"clang-tidy", "slurmctld", "gridengine-master"}


class InstallDeps(unittest.TestCase):
    def run_on_bare_machine(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("apt-get", "dpkg-query"):
                (Path(folder) / name).write_text("#!/bin/sh\nexit 1\n")
                (Path(folder) / name).chmod(0o755)
            return subprocess.run([SCRIPT, *options], env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
                                  capture_output=True, text=True)

    def packages(self, *options):
        done = self.run_on_bare_machine("--dry-run", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("install-deps: would install: "), done.stdout)
        words = done.stdout.split(": ")[2].split()
        self.assertEqual(len(words), len(set(words)), "a package is named twice")
        return set(words)

    def test_each_purpose_holds_the_one_before(self):
        build, run, test = (self.packages("--for", purpose) for purpose in ("build", "run", "test"))
        self.assertLess(build, run)
        self.assertLess(run, test)
        self.assertEqual(test, self.packages())
        self.assertEqual(run, self.packages("--for=run"))
        self.assertLessEqual(TESTS_ONLY | DEVELOPERS, test)
        self.assertFalse((TESTS_ONLY | DEVELOPERS) & run)
        self.assertLessEqual({"g++", "cmake", "libhdf5-dev", "libtorch-dev"}, build)

    def test_packaging(self):
        self.assertEqual(self.packages("--for", "package") - self.packages("--for", "build"), PACKAGING)

    def test_left_out(self):
        self.assertFalse(DEVELOPERS & self.packages("--no-dev"))
        self.assertLessEqual(TESTS_ONLY, self.packages("--no-dev"))
        for purpose in ("build", "run", "package", "test"):
            self.assertFalse((TRAINER | MPICH) & self.packages("--for", purpose, "--no-trainer"))

    def test_mpich(self):
        self.assertEqual(self.packages("--for", "build", "--mpich") - self.packages("--for", "build"), MPICH)
        self.assertLessEqual(MPICH, self.packages("--for", "test"))

    def test_wrong_options(self):
        for options in (["--for"], ["--for", "fun"], ["--what"]):
            self.assertEqual(self.run_on_bare_machine(*options).returncode, 2, options)


if __name__ == "__main__":
    unittest.main()
