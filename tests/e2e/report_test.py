# SPDX-License-Identifier: Apache-2.0
"""wflow report: the page in a real browser, what it says, what --share leaves out, plots as files, a running campaign."""

import base64
import getpass
import http.client
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import unittest

from browser import CHROMIUM, Browser
from wflow_test import BUSY, OK, SMALL, SYSTEM, TASKS_FAILED, USAGE, CampaignTest, Gate, gated_study, wait_for

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

# A picture of one red pixel, and one that would run a script if it were part of the page.
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==")
SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20" onload="parent.ran = 1"><script>parent.ran = 1; document.title = 'ran'</script>
<rect width="40" height="20" fill="blue"/></svg>"""
WITH_FILES = """description: {name: files, description: figures and tables of its own}
env: {variables: {OUTPUT_PATH: .}}
samples: {design: uniform, count: 50, seed: 1, parameters: {x: [0, 1]}}
study:
  - name: simulate
    run:
      cmd: mkdir -p plots && cp $(SPECROOT)/a.png "plots/a $(MERLIN_SAMPLE_ID).png" && echo $(x)
      report: {figures: "plots/*.png"}
  - name: sum
    report: {figures: [all.svg], tables: [summary.csv]}
    run:
      depends: [simulate_*]
      cmd: cp $(SPECROOT)/a.svg all.svg && printf 'name,value\\n"<b>,",1.5\\nb,22\\n' > summary.csv
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
        outside = [r for r in browser.requests if not r.startswith("data:")]
        self.assertEqual([r for r in outside if not r.startswith("file://")], [])
        self.assertEqual(len(outside), 1, outside)
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
            for name in ("throughput", "tasks", "simulate-duration", "simulate-memory", "failures-by-kind", "failures-by-node",
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

    def test_opens_a_browser(self):
        self.run_failing()
        browser = self.folder / "browser"
        browser.write_text(f"#!/bin/sh\necho \"$1\" > '{self.folder}/opening'; mv '{self.folder}/opening' '{self.folder}/opened'\n")
        browser.chmod(0o755)
        self.environment["BROWSER"] = str(browser)
        self.wflow("report", self.campaign(), "--open")
        self.wait((self.folder / "opened").exists, "the browser has its page")
        self.assertEqual((self.folder / "opened").read_text().strip(), str(self.campaign() / "report.html"))
        programs = self.folder / "programs"
        programs.mkdir()
        (programs / "hostname").symlink_to(shutil.which("hostname"))  # which the study's $(hostname) names
        self.environment |= {"BROWSER": "", "PATH": str(programs)}
        done = self.wflow("report", self.campaign(), "--open", code=SYSTEM)
        self.assertIn("no browser is here", done.err)

    def test_figures_and_tables_of_the_study(self):
        (self.folder / "a.png").write_bytes(PNG)
        (self.folder / "a.svg").write_text(SVG)
        self.wflow("run", self.study(WITH_FILES), "-q", "-j", "2")
        self.report()
        with Browser() as browser:
            self.check_page(self.campaign() / "report.html", browser)
            images = browser.evaluate("""Array.from(document.querySelectorAll('#study-files img')).map(i =>
                ({width: i.naturalWidth, text: i.parentElement.innerText, src: i.src.slice(0, 30)}))""")
            self.assertEqual(len(images), 40)
            self.assertEqual({i["width"] for i in images}, {1}, "an image does not show")
            self.assertEqual(images[3]["text"].strip(), "simulate/3: plots/a 3.png")
            shown = " ".join(browser.evaluate("document.getElementById('study-files').innerText").split())
            self.assertIn("up to 40 files, of up to 20 MB in all: 12 more are left out, the first of them is plots/a 40.png of simulate/40", shown)
        # With fewer samples the others fit, too.
        for sample in range(20):
            next(self.campaign().glob(f"simulate/**/a {sample}.png")).unlink()
        self.report()
        with Browser() as browser:
            self.check_page(self.campaign() / "report.html", browser)
            self.assertEqual(browser.evaluate("Array.from(document.querySelectorAll('#study-files img')).pop().naturalWidth"), 40)
            self.assertEqual(browser.evaluate("window.ran === undefined && document.title !== 'ran'"), True, "a picture has run its script")
            cells = browser.evaluate("Array.from(document.querySelectorAll('#study-files td'), cell => cell.textContent)")
            self.assertEqual(cells, ["<b>,", "1.5", "b", "22"])

    def test_a_live_page_in_a_browser(self):
        gate = Gate(self.folder, 2)
        run = self.start("run", self.study(gated_study(gate, 6)), "-j", "2")
        self.wait_for_campaign(run)
        self.wait_for_done("work", 2, run)
        served = self.start("report", self.campaign(), "--serve", "127.0.0.1:0")
        address = self.wait(lambda: re.search(r"http://127.0.0.1:\d+/[0-9a-f]{32}/", served.out), "the address", served)[0]
        with Browser() as browser:
            browser.open(address)
            text = lambda: " ".join(browser.evaluate("document.body.innerText").split())
            self.wait(lambda: "is running" in text(), "the first state", served)
            self.assertIn("2 of 6 tasks", text())
            self.assertTrue(browser.evaluate(PLOTS))
            browser.evaluate("document.getElementById('lineage').marked = true; document.getElementById('summary').marked = true")
            gate.open()
            self.assertEqual(run.wait(), OK)
            self.wait(lambda: "has finished" in text(), "the end in the page", served)
            self.assertIn("6 of 6 tasks", text())
            self.assertEqual(browser.evaluate("document.getElementById('summary').marked === undefined"), True, "a changed section is replaced")
            for plot in browser.evaluate(PLOTS):
                self.assertGreater(plot["drawn"] + plot["pictures"], 0, plot)
            self.assertEqual(browser.complaints, [])
            self.assertEqual({r.split("?")[0] for r in browser.requests}, {address, address + "sections"})
            marked = "document.getElementById('usage') === window.usage"
            browser.evaluate("window.usage = document.getElementById('usage'); 1")
            before = len(browser.requests)
            self.wait(lambda: browser.evaluate("1") and len(browser.requests) > before, "another poll", served)
            self.assertEqual(browser.evaluate(marked), True, "an unchanged section stays")
        port = int(address.split(":")[2].split("/")[0])
        for path, headers, status in (("/", {}, 404), ("/" + "0" * 32 + "/", {}, 404), (address[address.index("/", 8):], {"Host": "evil.example"}, 403)):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", path, headers=headers)
            self.assertEqual(connection.getresponse().status, status, path)
            connection.close()
        served.signal(signal.SIGINT)
        self.assertEqual(served.wait(), OK, served.err)

    def test_a_live_page_at_a_socket(self):
        self.environment["XDG_RUNTIME_DIR"] = str(self.folder)
        self.run_failing()

        def ask(place, request=b"GET / HTTP/1.1\r\nHost: localhost:8000\r\n\r\n"):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(place)
                client.sendall(request)
                return b"".join(iter(lambda: client.recv(1 << 16), b""))

        def serve():
            served = self.start("report", "--serve", self.campaign())
            place = self.wait(lambda: re.search(r"at the socket (\S+)\.\n", served.out), "the socket", served)[1]
            return served, place

        served, place = serve()
        self.assertIn(f"ssh -N -L 8000:{place} ", served.out)
        mode = (self.folder / "wflow").stat().st_mode
        self.assertEqual((stat.S_IMODE(mode), stat.S_IMODE((self.folder / place).stat().st_mode)), (0o700, 0o600))
        page = ask(place)
        self.assertTrue(page.startswith(b"HTTP/1.1 200 OK\r\n"), page[:100])
        self.assertIn(b"connect-src 'self'", page)
        self.assertTrue(ask(place, b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 405 "))
        self.assertTrue(ask(place, b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 404 "))
        sections = lambda: ask(place, b"GET /sections?have= HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_for(lambda: b"115 of 121 tasks" in sections(), "the campaign's state")
        self.assert_one_sentence(self.wflow("report", self.campaign(), "--serve", code=BUSY), place, "already")
        # The next one replaces the socket of a killed one.
        served.signal(signal.SIGKILL)
        served.wait()
        served, again = serve()
        self.assertEqual(again, place)
        self.assertTrue(ask(place).startswith(b"HTTP/1.1 200 OK\r\n"))
        served.signal(signal.SIGTERM)
        self.assertEqual(served.wait(), OK, served.err)
        self.assertEqual(list((self.folder / "wflow").glob("report-*")), [])
        for wrong in ("0.0.0.0:8000", "127.0.0.1:99999"):
            self.assert_one_sentence(self.wflow("report", self.campaign(), "--serve", wrong, code=USAGE), wrong)
        self.wflow("report", self.campaign(), "--serve", "--share", "-o", "x.html", code=USAGE)

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
