# SPDX-License-Identifier: Apache-2.0
"""`output: packed`, and commands that need no shell, through the whole engine."""

import re
import shutil
import tempfile
import unittest
from pathlib import Path

from wflow_test import DATA, OK, TASKS_FAILED, CampaignTest, Gate

TASKS = 30


class Packed(CampaignTest):
    def text(self, cmd, extra="", output="packed"):
        return f"""
description: {{name: packed}}
env: {{variables: {{OUTPUT_PATH: "{self.folder}"}}}}
samples: {{design: uniform, count: {TASKS}, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run:
      cmd: |
        {cmd}
      output: {output}
{extra}
"""

    def files(self):
        return sorted(str(path.relative_to(self.campaign() / "work")) for path in (self.campaign() / "work").rglob("*") if path.is_file())

    def test_logs_of_one_sample(self):
        self.wflow("run", self.study(self.text('echo "x is $(x)"; [ $(MERLIN_SAMPLE_ID) != 7 ] || { echo ill >&2; exit 3; }')), "-j", "2",
                   code=TASKS_FAILED)
        self.assertRegex(self.wflow("logs", "work/12").out, r"^== output of attempt 0 \(from .*\.log\)\nx is 0\.\d+\n$")
        self.assertEqual(self.wflow("logs", "work/7", "--err").out, "ill\n")
        self.assertIn("ill", self.wflow("explain", "work/7").out)
        names = self.files()
        self.assertTrue(all(re.fullmatch(r"packed/.*\.0\.(log|index)", name) for name in names), names)

    def test_logs_of_a_sample_of_a_bundle(self):
        text = self.text("echo samples from $(WFLOW_FIRST); echo $(WFLOW_COUNT) of them >&2", "      bundle: 12")
        self.wflow("run", self.study(text), "-j", "2", code=OK)
        for element in (0, 11, 12, TASKS - 1):
            first = element // 12 * 12
            self.assertEqual(self.wflow("logs", self.campaign(), f"work/{element}", "--out").out, f"samples from {first}\n")
            self.assertEqual(self.wflow("logs", f"work/{element}", "--err").out, f"{min(12, TASKS - first)} of them\n")

    def test_nothing_printed_is_no_file(self):
        self.wflow("run", self.study(self.text("true $(MERLIN_SAMPLE_ID)")), "-j", "2", code=OK)
        self.assertEqual(self.files(), [])
        self.assertEqual(list((self.campaign() / "work").iterdir()), [])
        self.assert_one_sentence(self.wflow("logs", "work/3", code=DATA), "work/3 has printed nothing, or has not ended yet")

    def test_damage_is_not_that_nothing_was_printed(self):
        self.wflow("run", self.study(self.text("echo line $(MERLIN_SAMPLE_ID) of $(x)")), "-j", "1", code=OK)
        log, = (self.campaign() / "work/packed").glob("*.log")
        for path, harmed in ((log, lambda whole: whole.index(b"line 7 of")), (log.with_suffix(".index"), lambda whole: len(whole) // 2)):
            whole = path.read_bytes()
            at = harmed(whole)
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
            damaged = 0
            for task in range(TASKS):
                logs = self.start("logs", self.campaign(), f"work/{task}")
                if logs.wait() == OK:
                    self.assertIn(f"line {task} of", logs.out)
                    continue
                self.assertIn("damaged", logs.err)
                damaged += 1
            self.assertGreater(damaged, 0, path)
            if path == log:
                self.assertEqual(damaged, 1)
            path.write_bytes(whole)

    def test_files_behind_a_link_to_another_file_system(self):
        other = Path(tempfile.mkdtemp(dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, other)
        if other.stat().st_dev == self.folder.stat().st_dev:
            self.skipTest("/dev/shm is the file system of the temporary folder")
        self.wflow("run", self.study(self.text("echo $(MERLIN_SAMPLE_ID) > u; mkdir d; ln -s ../u d/v")), "--dry")
        work = self.campaign() / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.symlink_to(other)
        self.wflow("resume", self.campaign(), "-j", "2", code=OK)
        self.assertEqual(sorted(int(path.read_text()) for path in other.rglob("u")), list(range(TASKS)))
        self.assertEqual(len([path for path in other.rglob("v") if path.is_symlink()]), TASKS)
        self.assertEqual([path for path in other.rglob("*.tmp.*")], [])

    def test_files_that_a_task_leaves_are_found_by_what_depends_on_it(self):
        extra = """
  - name: read
    run: {cmd: 'cat "$(work.workspace)/$(MERLIN_SAMPLE_PATH)/u"', depends: [work], output: packed}
"""
        self.wflow("run", self.study(self.text("echo $(MERLIN_SAMPLE_ID) > u", extra)), "-j", "2", code=OK)
        for element in (0, 13, TASKS - 1):
            self.assertEqual(self.wflow("logs", f"read/{element}", "--out").out, f"{element}\n")

    def test_everything_killed_in_the_middle(self):
        gate = Gate(self.folder, free=10)
        text = self.text(f"{gate.command()}; echo printed by $(MERLIN_SAMPLE_ID); touch left")
        run = self.start("run", self.study(text), "-j", "2")
        self.wait_for_campaign(run)
        self.wait_for_done("work", 10, run)
        self.wait(lambda: gate.waiting() == 2, "two are in the middle", run)
        everything = self.kill_everything()
        run.wait()
        self.wait_until_gone(everything)
        gate.open()
        self.wflow("resume", self.campaign(), "-j", "2", code=OK)
        self.assertEqual(len(gate.began()), TASKS + 2)
        for element in range(TASKS):
            self.assertEqual(self.wflow("logs", f"work/{element}", "--out").out, f"printed by {element}\n")
            self.assertEqual([path.name for path in (self.campaign() / f"work/{element // 25:02}/{element % 25:02}").iterdir()], ["left"])

    def test_a_plain_command_has_no_script(self):
        self.wflow("run", self.study(self.text("env A=$(MERLIN_SAMPLE_ID)", output="files")), "-j", "2", code=OK)
        self.assertEqual({name.rsplit("/", 1)[1] for name in self.files()}, {"work.out", "work.err", "MERLIN_FINISHED"})
        self.assertIn("\nA=7\n", self.wflow("logs", "work/7", "--out").out)

    def test_merlins_files_keep_their_scripts(self):
        text = f"""
description: {{name: merlins, description: one}}
env: {{variables: {{OUTPUT_PATH: "{self.folder}"}}}}
study:
  - {{name: work, description: plain, run: {{cmd: env A=1}}}}
merlin: {{resources: {{workers: {{w: {{steps: [all]}}}}}}}}
"""
        self.wflow("run", self.study(text), "-j", "2", code=OK)
        self.assertIn("work.sh", self.files())


if __name__ == "__main__":
    unittest.main()
