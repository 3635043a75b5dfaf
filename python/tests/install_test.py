#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`pip install ./python` into an environment of its own, without the network."""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


class Install(unittest.TestCase):
    def test_pip_install(self):
        folder = Path(tempfile.mkdtemp(prefix="wflow-pip-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        source = folder / "python"  # pip writes to the folder that it builds
        shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "tests"))
        subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", folder / "venv"], check=True, capture_output=True)
        python = folder / "venv/bin/python"
        done = subprocess.run([python, "-m", "pip", "install", "--no-index", "--no-build-isolation", "--no-deps", source], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        code = "import wflow, pathlib; print(wflow.__file__); print((pathlib.Path(wflow.__file__).parent / 'py.typed').exists()); wflow.open"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        where, typed = done.stdout.split()
        self.assertTrue(where.startswith(str(folder / "venv")), where)
        self.assertEqual(typed, "True")
        modules = {p.name for p in (PACKAGE / "wflow").glob("*.py")}
        self.assertEqual({p.name for p in Path(where).parent.glob("*.py")}, modules)

    def test_an_old_h5py_is_refused_with_a_sentence(self):
        # Debian 11 has h5py 2.10.
        code = ("import h5py\n"
                "h5py.version.version_tuple = (2, 10, 0); h5py.__version__ = '2.10.0'\n"
                "try:\n    import wflow\nexcept ImportError as error:\n    print(error)\n")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE, check=True)
        self.assertEqual(done.stdout, "wflow needs h5py 3.0 or newer, found 2.10.0; pip install --upgrade h5py\n")


if __name__ == "__main__":
    unittest.main()
