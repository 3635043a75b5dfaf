# SPDX-License-Identifier: Apache-2.0
"""The record of a campaign: commits that are lost are never lost silently, and what the logs keep."""

import shutil
import unittest

from wflow_test import DATA, OK, TASKS_FAILED, USAGE, CampaignTest

class Record(CampaignTest):
    def run_with_a_failure(self, *options):
        """Task 1 fails while there is no file `cure`."""
        study = self.study(f"""
description: {{name: record, description: one task fails}}
samples: {{design: uniform, count: 3, seed: 1, parameters: {{x: [0, 1]}}}}
study:
  - name: work
    run:
      cmd: '[ $(MERLIN_SAMPLE_ID) != 1 ] || [ -e "{self.folder}/cure" ]'
      max_retries: 0
""")
        self.wflow(*options, "run", study, "-j", "1", code=TASKS_FAILED)

    def test_an_older_database_is_not_taken_for_the_newest(self):
        self.run_with_a_failure()
        campaign, copy = self.campaign(), self.folder / "copy.db"
        self.wflow("snapshot", campaign, copy)
        (self.folder / "cure").touch()
        self.wflow("retry", campaign, "-j", "1", code=OK)
        shutil.copy(copy, campaign / ".wflow" / "campaign.db")
        for command in ("status", "resume"):
            self.assert_one_sentence(self.wflow(command, campaign, code=DATA), "commits", "--accept-loss")
        self.wflow("resume", campaign, "--accept-loss", "-j", "1", code=TASKS_FAILED)
        self.assertEqual(sum("--accept-loss" in row["text"] for row in self.status()["history"]), 1)
        self.wflow("retry", campaign, "-j", "1", code=OK)

    def test_logs(self):
        self.run_with_a_failure("--log-level", "debug")
        logs = self.campaign() / ".wflow" / "logs"
        for process in ("coordinator", "worker"):
            texts = [path.read_text() for path in logs.glob(f"{process}-*.log")]
            self.assertEqual(len(texts), 1, process)
            self.assertRegex(texts[0], rf"(?m)^\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}[+-]\d\d:\d\d \w+ {process}-[^ ]+\[\d+\] ")
        self.assert_one_sentence(self.wflow("--log-level", "loud", "status", code=USAGE), "log-level")


if __name__ == "__main__":
    unittest.main()
