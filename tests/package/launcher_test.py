# SPDX-License-Identifier: Apache-2.0
"""scripts/packaging/launcher.c: which glibc runs a program of the archive, with which words, and what it says where files are missing."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "scripts" / "packaging" / "launcher.c"
LINKER = Path("/lib64/ld-linux-x86-64.so.2")
FAILED = 5


@unittest.skipUnless(LINKER.exists(), "the archive is for x86-64")
class Launcher(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.prefix = Path(scratch.name) / "a folder"
        for folder in ("bin", "libexec", "lib/glibc"):
            (self.prefix / folder).mkdir(parents=True)
        for program in ("cat", "sh"):
            shutil.copy(shutil.which(program), self.prefix / "libexec" / program)
        self.glibc = self.prefix / "lib" / "glibc"
        shutil.copy(LINKER, self.glibc / LINKER.name)
        listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
        libc = next(line.split("=> ")[1] for line in listing.splitlines() if "libc.so.6 (libc6,x86-64" in line)
        shutil.copy(libc, self.glibc / "libc.so.6")

    def compiled_for(self, version, names=("cat", "sh")):
        for name in names:
            subprocess.run(["cc", "-static", "-Wall", "-Wextra", "-Werror", f'-DGLIBC="{version}"', "-o", self.prefix / "bin" / name, SOURCE], check=True)

    def run_program(self, *words, **environment):
        return subprocess.run([self.prefix / "bin" / words[0], *words[1:]], capture_output=True, text=True, env={**os.environ, **environment}, check=False)

    def test_the_machines_glibc_where_it_is_new_enough(self):
        self.compiled_for("GLIBC_2.2.5")
        maps = self.run_program("cat", "/proc/self/maps").stdout
        self.assertIn(str(self.prefix / "libexec" / "cat"), maps)
        self.assertIn("libc.so.6", maps)
        self.assertNotIn(str(self.glibc), maps)

    def test_the_archives_glibc_where_the_machines_is_older(self):
        self.compiled_for("GLIBC_99.0")
        maps = self.run_program("cat", "/proc/self/maps").stdout
        self.assertIn(str(self.prefix / "libexec" / "cat"), maps)
        self.assertIn(str(self.glibc / "libc.so.6"), maps)
        self.assertIn(str(self.glibc / LINKER.name), maps)

    def test_words_and_folders_of_the_user_are_kept(self):
        self.compiled_for("GLIBC_99.0")
        done = self.run_program("sh", "-c", 'echo "$0|$1|$LD_LIBRARY_PATH"; exit 3', "a name", "a word", LD_LIBRARY_PATH="/one:/two")
        self.assertEqual((done.returncode, done.stdout), (3, "a name|a word|/one:/two\n"))
        # The user's folders come behind the archive's glibc.
        command = self.run_program("cat", "/proc/self/cmdline", LD_LIBRARY_PATH="/one:/two").stdout.split("\0")
        self.assertEqual(command[1:5], ["--library-path", f"{self.glibc}:/one:/two", "--argv0", str(self.prefix / "bin" / "cat")])
        self.assertEqual(command[5], str(self.prefix / "libexec" / "cat"), "base/program_file.cc reads it")

    def test_programs_of_open_mpi_lie_deeper(self):
        self.compiled_for("GLIBC_99.0")
        inner = self.prefix / "lib" / "openmpi"
        for folder in ("bin", "libexec"):
            shutil.copytree(self.prefix / folder, inner / folder)
        done = subprocess.run([inner / "bin" / "cat", "/proc/self/maps"], capture_output=True, text=True, check=True)
        self.assertIn(str(self.glibc / "libc.so.6"), done.stdout)

    def test_files_that_are_missing(self):
        for version, missing in (("GLIBC_2.2.5", self.prefix / "libexec" / "cat"), ("GLIBC_99.0", self.glibc / LINKER.name)):
            with self.subTest(version):
                self.compiled_for(version, names=["cat"])
                missing.unlink()
                done = self.run_program("cat", "/dev/null")
                self.assertEqual(done.returncode, FAILED)
                self.assertEqual(done.stderr, f"cat: cannot start {self.prefix}/libexec/cat: No such file or directory; unpack the archive again\n")


if __name__ == "__main__":
    unittest.main()
