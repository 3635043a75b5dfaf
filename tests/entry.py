# SPDX-License-Identifier: Apache-2.0
"""Runs a file of unittest tests as an entry of ctest: entry.py FILE [ARGUMENT...], with the file's own arguments.

The file runs as `python3 FILE ARGUMENT...` would, and its exit code is kept, with two exceptions:

  77  every test was skipped, and none failed: ctest reports the entry as skipped (SKIP_RETURN_CODE)
   5  no test ran at all, for instance because a filter matches nothing

Output never decides: a program that prints "skipped" and fails is a failure. The last line gives the CPU seconds of the
entry and of its processes, from which tests/CMakeLists.txt chooses PROCESSORS."""

import os
import runpy
import sys
import tempfile
import time
import unittest

ALL_SKIPPED = 77
NO_TESTS = 5


class CountingResult(unittest.TextTestResult):
    """Counts what passed or failed, and what was skipped: a whole class, a test or a part of one (subTest)."""

    done = 0

    def addSuccess(self, test):
        self.done += 1
        super().addSuccess(test)

    def addSubTest(self, test, subtest, error):
        self.done += 1
        super().addSubTest(test, subtest, error)

    def addExpectedFailure(self, test, error):
        self.done += 1
        super().addExpectedFailure(test, error)


class Entry(unittest.TestProgram):
    def __init__(self, *arguments, **keywords):
        keywords.setdefault("testRunner", unittest.TextTestRunner(
            verbosity=2 if {"-v", "--verbose"} & set(sys.argv) else 1, resultclass=CountingResult))
        super().__init__(*arguments, **keywords)

    def runTests(self):
        wanted_exit, self.exit = self.exit, False
        super().runTests()
        print_skipped(self.result)
        if wanted_exit:
            sys.exit(exit_code(self.result))


def exit_code(result):
    if not result.wasSuccessful():
        return 1
    if result.done:
        return 0
    return ALL_SKIPPED if result.skipped else NO_TESTS


def print_skipped(result):
    """In the form of cmake/test_main.cc, for tests/ctest_run.py."""
    for test, reason in result.skipped:
        print(f"skipped: {'_'.join(test.id().split())} ({' '.join(reason.split())})", file=sys.stderr)


def print_cost(started_s):
    times = os.times()
    cpu_s = times.user + times.system + times.children_user + times.children_system
    print(f"entry: {cpu_s:.1f} s of CPU in {time.monotonic() - started_s:.1f} s", file=sys.stderr)


def main():
    file, sys.argv[:] = sys.argv[1], sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(file))
    unittest.main = Entry
    started_s = time.monotonic()
    # Tasks that call `python3` get the interpreter of the tests: another one in PATH may lack their packages, or be a script that
    # chooses among versions (pyenv) and takes a second.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    # Open MPI keeps its sessions in a folder of TMPDIR, and an mpirun that begins while another one removes that folder fails: the
    # programs of an entry share it with no other entry.
    with tempfile.TemporaryDirectory(prefix="entry-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o1777)  # some tests become another user
        os.environ["TMPDIR"] = folder
        try:
            runpy.run_path(file, run_name="__main__")
        finally:
            print_cost(started_s)


if __name__ == "__main__":
    main()
