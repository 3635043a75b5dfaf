# SPDX-License-Identifier: Apache-2.0
"""A campaign, running or finished, as Python values. All of them come from the program `wflow`, which queries the coordinator if one runs.

Frames are those of pandas, which is imported when the first one is made.
"""
from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import tempfile
from pathlib import Path

from wflow._errors import Error
from wflow._program import program


class Campaign:
    """`directory`: that of the campaign, which `wflow run` made."""

    def __init__(self, directory: str | os.PathLike):
        self.directory = Path(directory)
        if not (self.directory / ".wflow").is_dir():
            raise Error(f"{self.directory} is no campaign: it has no folder .wflow")

    def _wflow(self, command: str, *arguments: str) -> str:
        done = subprocess.run([program(), command, str(self.directory), *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise Error(f"wflow {command} ended with code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def status(self) -> dict:
        """Returns what `wflow status --json` prints: state, steps with the counts of their tasks, failures, metrics."""
        return json.loads(self._wflow("status", "--json"))

    @property
    def finished(self) -> bool:
        return self.status()["state"] == "finished"

    def tasks(self, step: str | None = None, state: str | None = None, where: str | None = None):
        """Returns one row per task: step, sample, state, attempts, exit_code, reason, worker, started, duration, cpu, peak_bytes, ... `where` is
        an expression of `wflow tasks --where`."""
        import pandas

        words = ["--json"]
        for option, value in (("--step", step), ("--state", state), ("--where", where)):
            words += [option, value] if value is not None else []
        return pandas.json_normalize(json.loads(self._wflow("tasks", *words)))

    def samples(self, step: str | None = None, where: str | None = None, training: str | None = None):
        """Returns the table of `wflow samples --csv`, one row per sample: id, its values, its targets, NAME_predicted and NAME_error of the test
        samples, split, and of its task in `step` (default: the step that is converted) state, exit_code, attempts, duration_s, cpu_s, peak_bytes,
        worker, directory. `training`: whose predictions; default: the best one's."""
        import pandas

        words = ["--csv"]
        for option, value in (("--step", step), ("--where", where), ("--training", training)):
            words += [option, value] if value is not None else []
        return pandas.read_csv(io.StringIO(self._wflow("samples", *words)), keep_default_na=False, na_values=[""],
                               float_precision="round_trip")

    def query(self, sql: str, parameters=()):
        """Returns a frame from the views of docs/database.md at one moment, also while the campaign runs."""
        import pandas

        with tempfile.TemporaryDirectory(prefix="wflow-snapshot-") as folder:
            copy = Path(folder) / "campaign.db"
            self._wflow("snapshot", str(copy))
            connection = sqlite3.connect(copy)
            try:
                return pandas.read_sql_query(sql, connection, params=parameters)
            except (sqlite3.Error, pandas.errors.DatabaseError) as error:
                raise Error(f"the campaign's database does not take this query: {error}") from error
            finally:
                connection.close()

    def metrics(self, name: str | None = None):
        """Returns the metrics that tasks reported: step, array, sample, name, epoch, train_step, value, not_finite, time."""
        if name is None:
            return self.query("select * from v_metrics order by time")
        return self.query("select * from v_metrics where name = ? order by time", (name,))

    def failures(self):
        """Returns one row per execution that did not succeed."""
        return self.query("select * from v_failures")

    def log(self, task: str) -> str:
        """Returns the output of a task; `task` is as in `wflow tasks`: simulate/12."""
        return self._wflow("logs", task)

    def data(self, step: str):
        """Returns the data set of a convert step, once it is complete: wflow.open() of its folder."""
        from wflow._data import open_data

        return open_data(self.directory / step)

    def _repr_html_(self) -> str:
        """The view of a notebook: bars of the steps and curves of the metrics, of now. Run the cell again for a later one."""
        from wflow._view import campaign_html

        return campaign_html(self.status())

    def __repr__(self):
        return f"<wflow campaign {self.directory}>"
