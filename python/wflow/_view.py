# SPDX-License-Identifier: Apache-2.0
"""A campaign as HTML, for a cell of a notebook: bars of its steps, and a curve of each metric."""
from __future__ import annotations

import html
import math

CURVES = 8  # metrics with a curve
WIDTH, HEIGHT = 220, 40


def _cell(text, right: bool = False) -> str:
    align = "right" if right else "left"
    return f'<td style="text-align:{align}">{html.escape(str(text))}</td>'


def _bar(counts: dict, elements: int) -> str:
    parts = [("done", "#2a9d5c"), ("running", "#3b82c4"), ("failed", "#c0392b"), ("hard_failed", "#c0392b")]
    filled = "".join(f'<div style="width:{100 * counts.get(name, 0) / max(1, elements):.4g}%;background:{colour}"></div>' for name, colour in parts)
    return f'<td><div style="display:flex;width:200px;height:12px;background:#8884">{filled}</div></td>'


def _steps(steps: list) -> str:
    rows = []
    for step in steps:
        counts, elements = step["counts"], step["elements"]
        failed = counts.get("failed", 0) + counts.get("hard_failed", 0)
        done = f"{counts.get('done', 0):,} of {elements:,}"
        rows.append(f"<tr>{_cell(step['name'])}{_bar(counts, elements)}{_cell(done, True)}{_cell(f'{failed:,} failed' if failed else '')}</tr>")
    return f"<table>{''.join(rows)}</table>"


def _curve(values: list) -> str:
    """A line through the finite values."""
    points = [(k, value) for k, value in enumerate(values) if isinstance(value, (int, float)) and math.isfinite(value)]
    if len(points) < 2:
        return "<td></td>"
    low, high = min(v for _, v in points), max(v for _, v in points)
    place = [f"{WIDTH * k / (len(values) - 1):.1f},{HEIGHT - 2 - (HEIGHT - 4) * (v - low) / ((high - low) or 1):.1f}" for k, v in points]
    points = " ".join(place)
    return f'<td><svg width="{WIDTH}" height="{HEIGHT}"><polyline points="{points}" fill="none" stroke="#3b82c4" stroke-width="1.5"/></svg></td>'


def _metrics(metrics: list) -> str:
    series: dict = {}
    for metric in metrics:
        series.setdefault((metric["task"], metric["name"]), []).append(metric)
    rows = []
    for (task, name), of_name in list(series.items())[:CURVES]:
        values = [one["value"] for one in sorted(of_name, key=lambda one: (one["epoch"], one["step"]))]
        last = values[-1]
        rows.append(f"<tr>{_cell(task)}{_cell(name)}{_curve(values)}{_cell(f'{last:.4g}' if isinstance(last, (int, float)) else '', True)}</tr>")
    more = len(series) - CURVES
    return f"<table>{''.join(rows)}</table>" + (f"<p>and {more} more metrics</p>" if more > 0 else "")


def campaign_html(status: dict) -> str:
    """`status`: Campaign.status()."""
    title = html.escape(f"{status['name']}: {status['state']}")
    failures = len(status["failures"])
    count = "1 execution" if failures == 1 else f"{failures:,} executions"
    note = f"<p>{count} did not succeed: Campaign.failures() lists them</p>" if failures else ""
    return f"<div><b>{title}</b>{_steps(status['steps'])}{note}{_metrics(status['metrics'])}</div>"
