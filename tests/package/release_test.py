# SPDX-License-Identifier: Apache-2.0
"""scripts/release: how packages of two builds are compared, and how it refuses what is no release. Nothing is built here."""
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "packaging"))

import reproduce  # noqa: E402


class Release(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def wheel(self, name, files):
        (self.folder / name).mkdir(exist_ok=True)
        path = self.folder / name / "wflow.whl"
        with zipfile.ZipFile(path, "w") as out:
            for inside, (date, text) in files.items():
                out.writestr(zipfile.ZipInfo(inside, date_time=(date, 1, 1, 0, 0, 0)), text)
        return path

    def test_differences_are_named(self):
        first = self.wheel("1", {"a": (1980, "1"), "b/c": (1980, "2"), "old": (1980, "")})
        self.assertEqual(reproduce.compare(first, self.wheel("2", {"a": (1980, "1"), "b/c": (1980, "2"), "old": (1980, "")})), [])
        self.assertEqual(reproduce.compare(first, self.wheel("3", {"a": (1980, "1"), "b/c": (1980, "3"), "new": (1980, "")})),
                         ["wflow.whl: b/c differs", "wflow.whl: new differs", "wflow.whl: old differs"])
        self.assertEqual(reproduce.compare(first, self.wheel("4", {"a": (1999, "1"), "b/c": (1980, "2"), "old": (1980, "")})),
                         ["wflow.whl: the same files in other bytes (order, dates or compression)"])

    def test_archives_keep_links_and_modes(self):
        archives = []
        for number, mode in enumerate((0o755, 0o644)):
            folder = self.folder / f"tree{number}" / "wflow"
            folder.mkdir(parents=True)
            (folder / "program").write_text("x")
            (folder / "program").chmod(mode)
            os.symlink(f"program{number}", folder / "link")
            archives.append(self.folder / f"tree{number}" / "wflow.tar.xz")
            subprocess.run(["tar", "--create", "--xz", "--file", archives[-1], "--directory", folder.parent, "wflow"], check=True)
        self.assertEqual(reproduce.compare(*archives), ["wflow.tar.xz: wflow/link differs", "wflow.tar.xz: wflow/program differs"])

    def test_what_is_no_release(self):
        done = subprocess.run([ROOT / "scripts" / "release", "--build", "a"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--build takes two finished builds", done.stderr)
        if "not released" not in (ROOT / "CHANGELOG.md").read_text().split("## ")[1]:
            self.skipTest("this is a release")
        done = subprocess.run([ROOT / "scripts" / "release", "--output", self.folder], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"^FAILED  versions .* put the date there, or use --trial\n$")
        self.assertIn("1 of 1 steps failed: versions", done.stderr)


if __name__ == "__main__":
    unittest.main()
