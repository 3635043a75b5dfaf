# SPDX-License-Identifier: Apache-2.0
"""examples/active_learning as a user runs it: the model chooses samples until it has found the minimum."""

import re
import unittest

from wflow_test import OK, SOURCE, CampaignTest

LEAST = 0.397887  # of Branin's function


class ActiveLearning(CampaignTest):
    def test_finds_the_minimum(self):
        study = SOURCE / "examples" / "active_learning" / "active_learning.yaml"
        self.wflow("run", study, "-j", "2", "--vars", f"OUTPUT_PATH={self.folder}", code=OK)
        status = self.status()
        self.assertRegex(status["iterations"], r"^converged in iteration \d+$")
        last = status["followups"][-1]
        said = (self.folder / last["directory"] / "choose" / "choose.out").read_text()
        values, least = re.match(r"(\d+) values, the least is ([\d.]+)", said).groups()
        self.assertEqual(int(values), 10 + 4 * len(status["followups"]))
        self.assertLess(float(least), LEAST + 0.02, said)


if __name__ == "__main__":
    unittest.main()
