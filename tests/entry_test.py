# SPDX-License-Identifier: Apache-2.0
"""Exit codes of entries (entry.py): a failure is never reported as skipped, whatever it prints."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ENTRY = Path(__file__).resolve().parent / "entry.py"
PASSES = "    def test_passes(self): pass\n"
SKIPS = "    def test_skips(self): self.skipTest('no root here')\n"
FAILS = "    def test_fails(self): self.fail('no root here')\n"


class ExitCodes(unittest.TestCase):
    def code(self, body, *arguments, head="class A(unittest.TestCase):\n"):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "some_test.py"
            file.write_text(f"import unittest\n{head}{body}\nif __name__ == '__main__':\n    unittest.main()\n")
            return subprocess.run([sys.executable, ENTRY, file, *arguments], capture_output=True).returncode

    def test_passed(self):
        self.assertEqual(self.code(PASSES), 0)
        self.assertEqual(self.code(PASSES + SKIPS), 0)

    def test_all_skipped(self):
        self.assertEqual(self.code(SKIPS, "-v", "A"), 77)
        self.assertEqual(self.code(PASSES, head="@unittest.skip('no Slurm here')\nclass A(unittest.TestCase):\n"), 77)
        class_skips = "    @classmethod\n    def setUpClass(cls): raise unittest.SkipTest('no Slurm here')\n"
        self.assertEqual(self.code(class_skips + PASSES), 77)

    def test_failed(self):
        for body in (FAILS, FAILS + SKIPS, FAILS + PASSES, "    print('no root here')\n    raise SystemExit(1)\n"):
            with self.subTest(body):
                self.assertEqual(self.code(body), 1)
        failing_class = "    @classmethod\n    def setUpClass(cls): raise RuntimeError('no Slurm here')\n"
        self.assertEqual(self.code(failing_class + SKIPS), 1)
        self.assertEqual(self.code("    @unittest.expectedFailure\n" + PASSES + SKIPS), 1)

    def test_parts_of_a_test(self):
        part = "    def test_parts(self):\n        with self.subTest(1): self.skipTest('no root here')\n"
        self.assertEqual(self.code(part), 77)
        self.assertEqual(self.code(part + "        with self.subTest(2): pass\n"), 0)
        self.assertEqual(self.code(part + "        with self.subTest(2): self.fail()\n"), 1)

    def test_nothing_ran(self):
        self.assertEqual(self.code("    pass\n"), 5)
        self.assertEqual(self.code(PASSES, "-k", "no_such_test"), 5)
        self.assertEqual(self.code(PASSES, "NoSuchClass"), 1)


if __name__ == "__main__":
    unittest.main()
