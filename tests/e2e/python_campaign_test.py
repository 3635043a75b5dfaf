# SPDX-License-Identifier: Apache-2.0
"""`wflow.Campaign` of a campaign that runs, and of the same one when it has ended; and the lineage of a row of its data set."""

import os
import sys
from unittest import mock
from xml.etree import ElementTree

import numpy

from wflow_test import BIN, SOURCE, CampaignTest, Gate

sys.path.insert(0, str(SOURCE / "python"))
import wflow

STUDY = """
description: {{name: seen, description: a campaign that Python looks at}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: sobol, count: 24, parameters: {{a: [0, 1], b: [1, 2]}}}}
study:
  - name: simulate
    run:
      cmd: |
        {gate}
        echo "this is $(MERLIN_SAMPLE_ID)"
        wflow event metric name=energy value=$(a)
        test $(MERLIN_SAMPLE_ID) != 20 || exit 1
        echo "y = $(b)" > run.log
      max_retries: 0
  - name: data
    convert:
      from: simulate
      inputs: [a, b]
      targets: {{y: {{file: run.log, regex: 'y = (\\S+)'}}}}
      shard_samples: 8
"""


class PythonCampaign(CampaignTest):
    def setUp(self):
        super().setUp()
        state = {"WFLOW": str(BIN / "wflow"), "XDG_STATE_HOME": self.environment["XDG_STATE_HOME"]}
        patch = mock.patch.dict(os.environ, state)
        patch.start()
        self.addCleanup(patch.stop)

    def test_live_and_finished(self):
        gate = Gate(self.folder, 10)
        study = self.study(STUDY.format(gate=gate.command()))
        run = self.start("run", study, "-j", "2")
        directory = self.wait_for_campaign(run)
        self.wait(lambda: gate.waiting() == 2 and len(gate.passed()) == 10, "ten have run, two are held", run)
        self.wait_for_done("simulate", 10, run)
        campaign = wflow.Campaign(directory)
        self.check_live(campaign, set(gate.began()) - set(gate.passed()))
        gate.open()
        run.wait()
        self.check_finished(campaign)
        self.check_lineage(directory, campaign)

    def check_live(self, campaign, held):
        self.assertFalse(campaign.finished)
        self.assertEqual(campaign.status()["state"], "running")
        tasks = campaign.tasks(step="simulate")
        self.assertEqual(sorted(tasks["sample"]), list(range(24)))
        self.assertEqual(sorted(campaign.tasks(step="simulate", state="done")["sample"]), list(range(10)))
        self.assertLessEqual(held, set(campaign.tasks(where="state = running")["sample"]))
        self.assertEqual(len(campaign.metrics("energy")), 10)  # a snapshot of the live database
        self.assertEqual(len(campaign.failures()), 0)
        self.assertIn("this is 3", campaign.log("simulate/3"))
        self.assertIn("10 of 24", self.view(campaign))

    def view(self, campaign):
        """The text of a notebook's cell, whose markup must be whole."""
        root = ElementTree.fromstring(campaign._repr_html_())
        return " ".join(root.itertext())

    def check_finished(self, campaign):
        self.assertNotEqual(campaign.status()["state"], "running")
        samples = campaign.samples("simulate")
        self.assertEqual((len(samples), sorted(set(samples["state"]))), (24, ["done", "failed"]))
        failed = campaign.tasks(step="simulate", state="failed")
        self.assertEqual((list(failed["sample"]), list(failed["exit_code"])), ([20], [1]))
        failures = campaign.failures()
        self.assertEqual([(r.step, r.sample, r.reason) for r in failures.itertuples()], [("simulate", 20, "exited")])
        energy = campaign.metrics("energy").set_index("sample")["value"]
        values = samples.set_index("id")
        numpy.testing.assert_array_equal(energy.loc[range(24)], values["a"].loc[range(24)])
        self.assertEqual(set(campaign.metrics()["name"]), {"energy"})
        count = campaign.query("select sum(count) as n from v_runs where step = ? and state = 'done'", ("simulate",))
        self.assertEqual(list(count["n"]), [23])
        data = campaign.data("data")
        found = {}
        for split in (data.train, data.validation, data.test):
            for sample in split:
                found[sample["id"]] = (list(sample["x"]), float(numpy.asarray(sample["y"]).item()))
        self.assertEqual(sorted(found), [i for i in range(24) if i != 20])
        for i, (x, y) in found.items():
            row = values.loc[i]
            self.assertEqual((x, y), ([row["a"], row["b"]], row["b"]))
        with self.assertRaisesRegex(wflow.Error, "ended with code 2"):
            campaign.log("nothing/0")
        with self.assertRaisesRegex(wflow.Error, "does not take this query: .*no such table: v_nothing"):
            campaign.query("select * from v_nothing")
        self.assertEqual(repr(campaign), f"<wflow campaign {campaign.directory}>")
        text = self.view(campaign)
        for words in ("23 of 24", "1 failed", "1 execution did not succeed", "energy", "seen: "):
            self.assertIn(words, text)

    def check_lineage(self, directory, campaign):
        text = self.wflow("shards", "sample", directory / "data", "11", "--lineage").out
        row = campaign.samples("simulate").set_index("id").loc[11]
        self.assertRegex(text, r"sample 11: row \d+ of \w+/shard-00001.h5 \(\w+\)")
        self.assertIn(f"  a = {row['a']!r}\n  b = {row['b']!r}\n", text)
        (log,) = directory.glob("simulate/**/11/run.log")
        self.assertRegex(text, rf"{log} \(\d+ B, changed 20")
        self.assertRegex(text, rf"simulated by:\n  simulate/11  done: .*\n.* on worker {row['worker']}")
        self.assertRegex(text, r"converted by:\n  data/1  done: ")
        self.assertRegex(text, r"versions of the study:\n  version 1  ")
        self.assertRegex(text, r"made by wflow \d")
        log.unlink()
        self.assertIn(f"{log} (not there any more)", self.wflow("shards", "sample", directory / "data", "11", "--lineage").out)
        self.assertIn("there is no sample 20", self.wflow("shards", "sample", directory / "data", "20", "--lineage", code=2).err)
        # Outside of its campaign the data set still says what it knows.
        (directory / "data").rename(self.folder / "moved")
        text = self.wflow("shards", "sample", self.folder / "moved", "11", "--lineage").out
        self.assertIn("no campaign is recorded for it", text)


if __name__ == "__main__":
    import unittest

    unittest.main()
