#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The trainings of cosmoflow.yaml: time to a validation loss on one and two ranks, the share of start-up, errors of three parameters."""

import argparse
import itertools
import time

import headlines

RANKS = (1, 2)


class Run:
    def __init__(self, options, ranks):
        training = headlines.Training(
            f"ranks-{ranks}", ranks=ranks, data=options.data, epochs=options.epochs, batch=8, seed=1, transform={"log": 0.1},
            augment=["shift", "flip", "permute"], model={"name": "sc18", "width": options.width}, schedule="one_cycle",
            optimizer={"name": "adamw", "learning_rate": 0.001, "clip_norm": 1}, checkpoint={"every_epochs": 0}, guard=False)
        begin = time.monotonic()
        training.run()
        self.ranks, self.wall, result = ranks, time.monotonic() - begin, training.result()
        self.losses = [epoch["validation_loss"] for epoch in training.epochs()]
        each = [epoch["seconds"] for epoch in training.epochs()]
        self.ends, self.fastest = list(itertools.accumulate(each)), min(each)
        self.training, self.targets = result["seconds"]["training"], result["test"]["targets"]
        self.reached = next((i for i, loss in enumerate(self.losses) if loss <= options.goal), None)

    @property
    def to_goal(self):
        """Seconds, if every epoch takes as long as the fastest one: other programs on the machine count less then."""
        return None if self.reached is None else self.fastest * (self.reached + 1)

    @property
    def other(self):
        """The part of the process's time outside of steps: start, validation, tests and models."""
        return 1 - self.training / self.wall


def seconds(value):
    return "not reached" if value is None else f"{value:.0f} s"


def statements(one, two, goal):
    efficiency = None if None in (one.to_goal, two.to_goal) else one.to_goal / (2 * two.to_goal)
    ratios = {name: target["mae_ratio"] for name, target in two.targets.items()}
    middles = {"omega_m": 0.3, "sigma_8": 0.8, "n_s": 0.95}
    errors = ", ".join(f"{name} {two.targets[name]['mae'] / middle:.3f} ({ratios[name]:.2f})" for name, middle in middles.items())
    to_goal = f"validation loss {goal} after {seconds(one.to_goal)} on one rank and {seconds(two.to_goal)} on two"
    return [
        headlines.row("efficiency, by time to a fixed loss", "77 % on 8,192 nodes, by samples/s",
                      to_goal if efficiency is None else f"{100 * efficiency:.0f} % on two ranks: {to_goal}", "at least 77 %",
                      efficiency is not None and efficiency >= 0.77),
        headlines.row("share of a run outside of training steps", "1/9 (9 minutes, 8 of them training)",
                      f"{one.other:.3f} on one rank, {two.other:.3f} on two", "at most 1/9 (0.111)", two.other <= 1 / 9),
        headlines.row("relative error of three parameters (and test error over the mean guess's)", "Omega_m, sigma_8 and n_s are predicted", errors,
                      "each below 0.9 of the mean guess's", max(ratios.values()) < 0.9)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--goal", type=float, required=True)
    options = parser.parse_args()
    runs = [Run(options, ranks) for ranks in RANKS]
    table = {"head": ["ranks", "seconds of the program", "seconds of steps", f"to loss {options.goal}, at the fastest epoch", "as it went", "epochs to it", "last validation loss"],
             "rows": [[str(run.ranks), f"{run.wall:.1f}", f"{run.training:.1f}", seconds(run.to_goal),
                       "not reached" if run.reached is None else f"{run.ends[run.reached]:.0f} s",
                       "-" if run.reached is None else str(run.reached + 1), f"{run.losses[-1]:.3f}"] for run in runs]}
    plot = {"kind": "lines", "title": "Validation loss", "x": {"name": "seconds of training steps"}, "y": {"name": "loss", "low": 0, "high": 1.5},
            "series": [{"name": f"{run.ranks} rank{'s' * (run.ranks > 1)}", "x": run.ends, "y": [min(loss, 1.5) for loss in run.losses], "marks": True} for run in runs],
            "references": [{"value": options.goal, "horizontal": True, "text": "goal"}]}
    headlines.finish("cosmoflow", statements(*runs, options.goal), plot, table)


if __name__ == "__main__":
    main()
