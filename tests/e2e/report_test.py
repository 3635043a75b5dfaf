# SPDX-License-Identifier: Apache-2.0
"""wflow report: the page in a real browser, what it says, what --share leaves out, plots as files, a running campaign."""

import getpass
import re
import socket
import sqlite3
import subprocess
import unittest

from browser import CHROMIUM, Browser
from wflow_test import OK, SMALL, TASKS_FAILED, USAGE, CampaignTest, Gate, gated_study

FAILING = """description: {{name: implosions, description: "short <tasks> & \\"some\\" fail"}}
env: {{variables: {{OUTPUT_PATH: .}}}}
samples: {{design: sobol, count: 120, seed: 1, parameters: {{velocity: [1, 5], thickness: [0.1, 0.9]}}}}
study:
  - name: simulate
    description: one implosion
    run:
      memory: 1GiB
      cmd: |
        echo "{{\\"type\\":\\"metric\\",\\"name\\":\\"score\\",\\"epoch\\":1,\\"step\\":1,\\"value\\":$(velocity)}}" >> $WFLOW_EVENTS
        if [ $(( $(MERLIN_SAMPLE_ID) % 20 )) = 7 ]; then
          echo '</script><script>throw new Error("escaped")</script><img src=x onerror="throw 1"> $(thickness)' >&2
          echo "wrote $PWD/out.h5 on $(hostname), https://10.11.12.13/x" >&2
          exit 3
        fi
  - name: train
    run:
      depends: [simulate_*]
      cmd: |
        for e in 1 2 3 4 5; do
          echo "{{\\"type\\":\\"metric\\",\\"name\\":\\"train_loss\\",\\"epoch\\":$e,\\"step\\":$e,\\"value\\":0.$((9 - e))}}" >> $WFLOW_EVENTS
          echo "{{\\"type\\":\\"metric\\",\\"name\\":\\"validation_loss\\",\\"epoch\\":$e,\\"step\\":$e,\\"value\\":0.$((10 - e))}}" >> $WFLOW_EVENTS
        done
"""

# The content of a plot that is not empty: marks, bars or lines in an SVG, or pixels that differ on a canvas.
PLOTS = """Array.from(document.querySelectorAll('.plot')).map(plot => {
  const drawn = Array.from(plot.querySelectorAll('.data path, .data rect')).filter(e => {
    const box = e.getBBox(); return box.width > 0 || box.height > 0; }).length;
  const pictures = Array.from(plot.querySelectorAll('canvas')).filter(c => {
    const p = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);
    return new Set(p).size > 1; }).length;
  return {id: plot.parentElement.id, drawn, pictures, width: plot.scrollWidth - plot.clientWidth}; })"""
BROKEN_LINKS = """Array.from(document.querySelectorAll('a[href]')).map(a => a.getAttribute('href'))
  .filter(h => !h.startsWith('#') || !document.getElementById(h.slice(1)))"""
TWICE = "(() => { const ids = Array.from(document.querySelectorAll('[id]')).map(e => e.id); return ids.filter((x, i) => ids.indexOf(x) !== i); })()"


class Report(CampaignTest):
    def setUp(self):
        super().setUp()
        self.assertIsNotNone(CHROMIUM, "chromium is missing: scripts/install-deps installs it")

    def run_failing(self):
        self.wflow("run", self.study(FAILING.format()), "-q", "-j", "2", code=TASKS_FAILED)

    def report(self, *options):
        return self.wflow("report", self.campaign(), *options)

    def check_page(self, file, browser):
        """No complaint, no request but for the file itself, no plot empty, no link broken. Gives the ids of the plots."""
        browser.open(file)
        self.assertEqual(browser.complaints, [])
        self.assertEqual([r for r in browser.requests if not r.startswith("file://")], [])
        self.assertEqual(len(browser.requests), 1, browser.requests)
        self.assertEqual(browser.evaluate(BROKEN_LINKS), [])
        self.assertEqual(browser.evaluate(TWICE), [])
        plots = browser.evaluate(PLOTS)
        self.assertTrue(plots)
        for plot in plots:
            self.assertGreater(plot["drawn"] + plot["pictures"], 0, plot)
        return {plot["id"] for plot in plots}

    def test_failures_in_a_browser(self):
        self.run_failing()
        said = self.report().out
        page = self.campaign() / "report.html"
        self.assertIn(str(page), said)
        text = page.read_text()
        self.assertNotIn('<img src=x', text)
        self.assertIsNone(re.search(r"(src|href)=[\"']?https?:", text.split("<script>")[0]))
        with Browser() as browser:
            plots = self.check_page(page, browser)
            for name in ("throughput", "timeline", "simulate-duration", "simulate-memory", "failures-by-kind", "failures-by-node",
                         "samples-velocity-thickness", "duration-velocity", "metric-score-velocity", "curve-loss"):
                self.assertIn("figure-" + name, plots)
            shown = browser.evaluate("document.body.innerText")
            self.assertIn("115 of 121 tasks", " ".join(shown.split()))
            self.assertIn('short <tasks> & "some" fail', shown)
            log = browser.evaluate("document.querySelector('details pre').textContent")
            self.assertIn('</script><script>throw new Error("escaped")</script>', log)
            self.assertEqual(browser.evaluate("document.querySelectorAll('details').length >= 2"), True)
        with Browser(width=360, height=740, dark=True) as browser:
            self.assertEqual(self.check_page(page, browser), plots)
            self.assertLessEqual(browser.evaluate("document.documentElement.scrollWidth"), 360, "the page is wider than a phone")
            self.assertEqual(browser.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(20, 23, 28)")
            pdf = self.folder / "page.pdf"
            browser.print_pdf(pdf)
            printed = subprocess.run(["pdftotext", pdf, "-"], capture_output=True, text=True, check=True).stdout
            self.assertIn("Failures by kind", printed)

    def test_ten_million_tasks(self):
        """A finished campaign of 10^7 tasks on 300 workers: each plot drawn, and the page small."""
        made = self.start(2000 if SMALL else 10_000_000, self.folder, program="wflow_report_campaign")
        self.assertEqual(made.wait(), OK, made.err)
        self.report()
        page = self.campaign() / "report.html"
        self.assertLess(page.stat().st_size, 5 << 20)
        with Browser() as browser:
            plots = self.check_page(page, browser)
        self.assertIn("figure-worker-map", plots)
        self.assertNotIn("figure-timeline", plots)
        self.assertLess(len(plots), 40)

    def test_share_names_nobody(self):
        self.run_failing()
        shared, whole = self.folder / "shared.html", self.folder / "whole.html"
        self.report("--share", "-o", shared)
        self.report("-o", whole)

        def written(path):
            # Without what is in every page: the style sheet and the scripts.
            text = path.read_text()
            library = text.index("<script>\n")
            return text[text.index("<body>"):library]

        host, user = socket.gethostname(), getpass.getuser()
        worker = sqlite3.connect(self.campaign() / ".wflow" / "campaign.db").execute("select id from workers").fetchone()[0]
        secrets = [str(self.campaign()), str(self.folder), "/out.h5", worker, "10.11.12.13"]
        words = [host] + ([user] if user != "root" else [])
        for secret in secrets:
            self.assertIn(secret, written(whole), "the test looks for something that no page has")
            self.assertNotIn(secret, written(shared))
        for word in words:
            self.assertIsNotNone(re.search(rf"\b{re.escape(word)}\b", written(whole)))
            self.assertIsNone(re.search(rf"\b{re.escape(word)}\b", written(shared)))
        self.assertIn("The study as it was given", written(whole))
        self.assertNotIn("The study as it was given", written(shared))
        with Browser() as browser:
            self.check_page(shared, browser)

    def test_plots_as_files(self):
        self.run_failing()
        self.report("--png", self.folder / "png", "--svg", self.folder / "svg")
        ids = re.findall(r'<figure id="figure-([^"]+)"', (self.campaign() / "report.html").read_text())
        self.assertEqual(sorted(p.stem for p in (self.folder / "png").iterdir()), sorted(ids))
        self.assertEqual(sorted(p.stem for p in (self.folder / "svg").iterdir()), sorted(ids))
        for file in (self.folder / "png").iterdir():
            self.assertEqual(file.read_bytes()[:8], b"\x89PNG\r\n\x1a\n", file)
        for file in (self.folder / "svg").iterdir():
            self.assertIn("<svg", file.read_text()[:400], file)

    def test_while_it_runs_and_what_is_wrong(self):
        gate = Gate(self.folder, 2)
        run = self.start("run", self.study(gated_study(gate, 6)), "-j", "2")
        self.wait_for_campaign(run)
        self.wait_for_done("work", 2, run)
        self.report()
        text = (self.campaign() / "report.html").read_text()
        self.assertIn("is running", text)
        self.assertEqual([p for p in (self.campaign() / ".wflow").iterdir() if p.name.startswith("report-")], [], "the copy of the record is left")
        self.assertEqual(self.status()["state"], "running")
        self.wflow("report", self.folder / "nowhere", code=USAGE)
        gate.open()
        run.wait()
        self.report()
        self.assertIn("has finished", (self.campaign() / "report.html").read_text())


if __name__ == "__main__":
    unittest.main()
