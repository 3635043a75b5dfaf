# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, spoken to over a pipe by its DevTools protocol: for pages that wflow writes."""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page. `with Browser() as browser: browser.open(path)`; a call that gets no answer in `deadline_s` fails."""

    def __init__(self, width=1280, height=900, dark=False, deadline_s=120):
        self.deadline_s = deadline_s
        self.folder = tempfile.mkdtemp(prefix="wflow-browser-")
        to_browser, self.commands = os.pipe()
        self.answers, from_browser = os.pipe()

        def connect():
            # Chromium reads commands from descriptor 3 and answers on 4; the pipes may have these numbers already.
            read, write = os.dup(to_browser), os.dup(from_browser)
            high_read, high_write = fd_above(read), fd_above(write)
            os.dup2(high_read, 3)
            os.dup2(high_write, 4)

        arguments = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe", "--hide-scrollbars",
                     f"--window-size={width},{height}", f"--user-data-dir={self.folder}", "about:blank"]
        # The names of the machine's own home are not needed.
        environment = dict(os.environ, HOME=self.folder, XDG_CONFIG_HOME=self.folder, XDG_CACHE_HOME=self.folder)
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=connect, close_fds=False, start_new_session=True, env=environment)
        os.close(to_browser)
        os.close(from_browser)
        self.number = 0
        self.buffer = b""
        self.complaints, self.requests, self.loaded = [], [], False
        self.session = None
        pages = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        target = pages[0]["targetId"] if pages else self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self, end):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"chromium has not answered for {self.deadline_s} s")
            read = os.read(self.answers, 1 << 20)
            if not read:
                raise AssertionError("chromium has ended")
            self.buffer += read
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def note(self, event):
        method, values = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(a.get("value", a.get("description"))) for a in values["args"]))
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.complaints.append(values["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])

    def call(self, method, **values):
        self.number += 1
        command = {"id": self.number, "method": method, "params": values}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        end = time.monotonic() + self.deadline_s
        while True:
            answer = self.message(end)
            if answer.get("id") != self.number:
                self.note(answer)
                continue
            if "error" in answer:
                raise AssertionError(f"{method}: {answer['error']}")
            return answer["result"]

    def open(self, page):
        """A file, or an address that begins with http:."""
        self.loaded = False
        self.complaints, self.requests = [], []
        self.call("Page.navigate", url=page if str(page).startswith("http:") else Path(page).resolve().as_uri())
        end = time.monotonic() + self.deadline_s
        while not self.loaded:
            self.note(self.message(end))

    def evaluate(self, expression):
        """The value of an expression in the page, as JSON has it."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"].get("exception", {}).get("description", "error in the page"))
        return result["result"].get("value")

    def screenshot(self, path, whole=True):
        values = {"format": "png"}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            values["captureBeyondViewport"] = True
            values["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **values)["data"]))

    def print_pdf(self, path):
        Path(path).write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))


def fd_above(fd, least=10):
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD, least)
