# SPDX-License-Identifier: Apache-2.0
"""scripts/release: how packages of two builds are compared, and how it refuses what is no release. Nothing is built here."""
import os
import shutil
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

    def test_a_version_without_a_date(self):
        tree = self.folder / "tree"
        (tree / "scripts").mkdir(parents=True)
        (tree / "python").mkdir()
        shutil.copy(ROOT / "scripts" / "release", tree / "scripts")
        shutil.copytree(ROOT / "scripts" / "packaging", tree / "scripts" / "packaging", ignore=shutil.ignore_patterns("__pycache__"))
        (tree / "CMakeLists.txt").write_text("project(wflow VERSION 3.1.4 LANGUAGES C CXX)\n")
        (tree / "python" / "pyproject.toml").write_text('version = "3.1.4"\n')
        git = ["git", "-C", tree, "-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run([*git, "init", "--quiet"], check=True)
        for heading, error in (("3.1.4, not released yet", "put the date there, or use --trial"),
                               ("3.1.3, 2026-11-28", "CMakeLists.txt has the version 3.1.4, the first heading of CHANGELOG.md is '3.1.3, 2026-11-28'")):
            (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n")
            subprocess.run([*git, "add", "--all"], check=True)
            subprocess.run([*git, "commit", "--quiet", "--message", "x"], check=True)
            done = subprocess.run([tree / "scripts" / "release", "--output", self.folder / "out"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(error, done.stdout)
            self.assertRegex(done.stdout, r"^FAILED  versions ")
            self.assertIn("1 of 1 steps failed: versions", done.stderr)


if __name__ == "__main__":
    unittest.main()
