# SPDX-License-Identifier: Apache-2.0
"""A program of ours in a real terminal: a tmux of its own."""

import os
import subprocess

from wflow_test import BIN, wait_for


class Screen:
    """wflow with these arguments, started by `starter`; when it has ended, the screen says with which exit code."""

    count = 0

    def __init__(self, test, arguments, columns, rows=30, starter="", **environment):
        Screen.count += 1
        self.socket = test.folder / f"tmux{Screen.count}"
        self.environment = {**test.environment, "TERM": "xterm-256color"}
        words = " ".join(str(a) for a in [BIN / "wflow", *arguments])
        given = "".join(f"{name}={value} " for name, value in environment.items())
        self.tmux("-u", "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(test.folder),
                  f"{given}{starter} {words}; echo exit code $?; cat")
        test.addCleanup(self.tmux, "kill-server", check=False)
        self.tmux("set", "-g", "status", "off")

    def tmux(self, *arguments, check=True):
        return subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", *arguments], env=self.environment, check=check,
                              capture_output=True, text=True).stdout

    def rows(self):
        """All rows of the screen, also empty ones."""
        return self.tmux("capture-pane", "-p").split("\n")[:-1]

    def lines(self):
        return [line for line in self.rows() if line.strip()]

    def resize(self, columns, rows=None):
        self.tmux("resize-window", "-x", str(columns), *(["-y", str(rows)] if rows else []))
        wait_for(lambda: self.columns() == columns, "tmux to resize its terminal")

    def columns(self):
        """The width of the terminal, as the program in it can ask for it."""
        terminal = os.open(self.tmux("display-message", "-p", "#{pane_tty}").strip(), os.O_RDONLY | os.O_NOCTTY)
        try:
            return os.get_terminal_size(terminal).columns
        finally:
            os.close(terminal)

    def press(self, *keys):
        self.tmux("send-keys", *keys)

    def type(self, text):
        self.tmux("send-keys", "-l", text)
