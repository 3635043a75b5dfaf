# SPDX-License-Identifier: Apache-2.0
"""scripts/packaging/elf.py: what it reads of readelf's output, and what it finds wrong in a folder of programs and libraries."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "packaging"))
import elf  # noqa: E402

OUTPUT = """
Dynamic section at offset 0x2da0 contains 30 entries:
  Tag        Type                         Name/Value
 0x0000000000000001 (NEEDED)             Shared library: [libone.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x000000000000001d (RUNPATH)            Library runpath: [$ORIGIN/../lib:/opt/x]

Symbol table '.dynsym' contains 6 entries:
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND 
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND arc4random@GLIBC_2.36 (3)
     2: 0000000000000000     0 NOTYPE  WEAK   DEFAULT  UND __gmon_start__
     3: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND one
     4: 0000000000001139    11 FUNC    GLOBAL DEFAULT   12 two@@V_1
     5: 0000000000001150    11 FUNC    GLOBAL DEFAULT [<other>: 88]    12 three

Version needs section '.gnu.version_r' contains 2 entries:
 Addr: 0x0000000000000590  Offset: 0x000590  Link: 7 (.dynstr)
  000000: Version: 1  File: libc.so.6  Cnt: 2
  0x0010:   Name: GLIBC_2.9  Flags: none  Version: 4
  0x0020:   Name: GLIBC_2.36  Flags: none  Version: 3
  0x0030: Version: 1  File: libone.so.1  Cnt: 1
  0x0040:   Name: GLIBC_9.9  Flags: none  Version: 2
"""


class Parse(unittest.TestCase):
    def test_what_a_file_needs_and_defines(self):
        file = elf.parse(OUTPUT)
        self.assertEqual(file.needed, ["libone.so.1", "libc.so.6"])
        self.assertEqual(file.run_path, ["$ORIGIN/../lib", "/opt/x"])
        self.assertLessEqual({"arc4random", "one", "__gmon_start__"}, file.undefined)
        self.assertIn("__gmon_start__", file.weak)
        self.assertNotIn("one", file.weak)
        self.assertEqual(file.defined, {"two", "three"})
        self.assertEqual(file.versions, {"libc.so.6": {"GLIBC_2.9", "GLIBC_2.36"}, "libone.so.1": {"GLIBC_9.9"}})


class Check(unittest.TestCase):
    def check(self, **of_program):
        program = elf.Elf(needed=["libone.so.1", "libc.so.6"], run_path=["$ORIGIN/../lib"], undefined={"one", "printf"}, **of_program)
        library = elf.Elf(defined={"one"}, versions={"libc.so.6": {"GLIBC_2.9"}})
        return program, {"libone.so.1": library}

    def test_complete(self):
        program, inside = self.check(versions={"libc.so.6": {"GLIBC_2.34", "GLIBC_2.4"}})
        least, problems = elf.check({"bin/program": program, "lib/libone.so.1": inside["libone.so.1"]}, inside)
        self.assertEqual((least, problems), ((2, 34), []))

    def test_only_glibc_counts(self):
        program, inside = self.check(versions={"libone.so.1": {"GLIBC_9.9"}, "libm.so.6": {"GLIBC_2.29"}})
        self.assertEqual(elf.check({"bin/program": program}, inside)[0], (2, 29))

    def test_each_problem_is_one_sentence(self):
        program, inside = self.check(weak={"absent"}, versions={"libc.so.6": {"GLIBC_PRIVATE"}})
        program.undefined |= {"absent", "missing"}
        program.needed.append("libtwo.so.2")
        program.run_path.append("/usr/lib/x")
        problems = elf.check({"bin/program": program}, inside)[1]
        self.assertEqual(len(problems), 4, problems)
        for part in ("libtwo.so.2, which is not inside", "/usr/lib/x, which is not relative", "the symbol missing", "a private symbol of libc.so.6"):
            self.assertEqual(sum(part in problem for problem in problems), 1, part)

    def test_of_this_machine(self):
        file = elf.read("/bin/ls")
        self.assertIn("libc.so.6", file.needed)
        self.assertGreater(elf.check({"ls": file}, {name: elf.Elf() for name in file.needed})[0], (2, 0))


if __name__ == "__main__":
    unittest.main()
