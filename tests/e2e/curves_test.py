# SPDX-License-Identifier: Apache-2.0
"""Comparing trainings: `wflow curves` of live campaigns, of ones at rest and of files; the ranking in `wflow status`."""

import json
import struct
import unittest
import xml.etree.ElementTree as ElementTree

from wflow_test import DATA, OK, USAGE, CampaignTest

# Reports three epochs, and goes on when the gate is open. The loss of rate r is r / epoch.
STUDY = """
description: {{name: sweep, description: trainings of two rates}}
env: {{variables: {{OUTPUT_PATH: .}}}}
parameters:
  RATE: {{values: [3, 1], label: RATE.%%}}
  SEED: {{values: [7, 7], label: SEED.%%}}
study:
  - name: fit
    run:
      cmd: |
        for epoch in 1 2 3; do
          loss=$(awk "BEGIN {{ print $(RATE) / $epoch }}")
          echo '{{"type": "metric", "name": "validation_loss", "epoch": '$epoch', "step": '$((10 * epoch))', "value": '$loss'}}'
          echo '{{"type": "metric", "name": "other", "epoch": '$epoch', "step": '$((10 * epoch))', "value": $(SEED)}}'
        done >> $WFLOW_EVENTS
        until [ -e {folder}/open ]; do sleep 0.1; done
"""


class Curves(CampaignTest):
    def start_sweep(self):
        run = self.start("run", self.study(STUDY.format(folder=self.folder)), "-j", "2")
        self.addCleanup((self.folder / "open").touch)
        self.wait_for_campaign(run)
        self.wait(lambda: len(self.status()["trainings"]) == 2 and all(t["epoch"] == 3 for t in self.status()["trainings"]), "all losses", run)
        return run

    def finish(self, run):
        (self.folder / "open").touch()
        self.assertEqual(run.wait(), OK, run.err)

    def check(self):
        trainings = self.status()["trainings"]
        # By the last loss; only what differs is a parameter.
        self.assertEqual([t["parameters"] for t in trainings], [{"RATE": "1"}, {"RATE": "3"}])
        self.assertEqual([t["metric"] for t in trainings], ["validation_loss"] * 2)
        self.assertAlmostEqual(trainings[0]["last"], 0.333, 3)
        self.assertEqual(trainings[0]["best_epoch"], 3)
        out = self.wflow("curves", self.campaign(), code=OK).out
        self.assertTrue(out.startswith("validation_loss by epoch\n"), out)
        self.assertNotIn("\x1b", out)
        legend = [line for line in out.splitlines() if "RATE " in line]
        self.assertEqual([line.split()[-1] for line in legend], ["1", "3"])
        # Each has a sign of its own, and each sign is in the plot.
        plot = out.splitlines()[1:-len(legend) - 1]
        for line in legend:
            self.assertTrue(any(line.split()[0] in row for row in plot), out)
        self.assertIn("other metrics (--metric): other", out)
        values = json.loads(self.wflow("curves", self.campaign(), "--json", code=OK).out)
        self.assertEqual([each["parameters"] for each in values], ["RATE 1", "RATE 3"])
        self.assertEqual((values[1]["epoch"], values[1]["value"]), ([1, 2, 3], [3, 1.5, 1]))
        text = self.wflow("status", self.campaign(), code=OK).out
        self.assertIn("2 trainings by validation_loss:", text)
        self.assertRegex(text, r"(?m)^1 +\S*fit\S* +0.3333 +0.3333 +3 +3 +\S.* 1$")

    def test_live_and_at_rest(self):
        run = self.start_sweep()
        self.check()
        self.assertEqual(self.status()["trainings"][0]["seconds"], None)
        self.finish(run)
        self.check()
        self.assertGreater(self.status()["trainings"][0]["seconds"], 0)

    def test_files_of_a_plot(self):
        run = self.start_sweep()
        self.finish(run)
        png, svg = self.folder / "losses.png", self.folder / "losses.svg"
        out = self.wflow("curves", self.campaign(), "--metric", "other", "--metric", "validation_loss", "--png", png, "--svg", svg, "--smooth", "0.5",
                         "--log", code=OK).out
        self.assertIn(f"written: {png}", out)
        head = png.read_bytes()[:24]
        self.assertEqual(head[:8], b"\x89PNG\r\n\x1a\n")
        self.assertGreater(min(struct.unpack(">II", head[16:])), 400)
        root = ElementTree.parse(svg).getroot()
        self.assertTrue(root.tag.endswith("svg"))
        self.assertGreater(sum(1 for _ in root.iter("{http://www.w3.org/2000/svg}path")), 6)
        self.assert_one_sentence(self.wflow("curves", self.campaign(), "--metric", "othr", code=USAGE), "did you mean 'other'?")
        self.assert_one_sentence(self.wflow("curves", self.campaign(), "--png", self.folder / "x.jpg", code=USAGE), ".jpg")

    def test_files_of_metrics(self):
        for name, scale in (("a", 1), ("b", 2)):
            (self.folder / name).mkdir()
            rows = [{"epoch": e, "step": 10 * e, "train_loss": scale / e, "validation": {"x": {"mae": 0.5}}} for e in range(1, 9)]
            (self.folder / name / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        out = self.wflow("curves", self.folder / "a", self.folder / "b" / "metrics.jsonl", code=OK).out
        self.assertIn("train_loss by epoch", out)
        self.assertIn("0.125", out)
        self.assertIn("0.25", out)
        (self.folder / "empty").write_text("nothing\n")
        self.assert_one_sentence(self.wflow("curves", self.folder / "empty", code=DATA), "has no metrics")


if __name__ == "__main__":
    unittest.main()
