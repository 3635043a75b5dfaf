#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Has the network learned? Runs the full quickstart on several seeds, and once more with shuffled labels, and compares the
test errors with the limits: below 0.35 of the mean-guess error for both targets, at least 0.9 with shuffled labels.

    WFLOW_BIN=build/release/bin /usr/bin/python3 tests/accuracy/quickstart_accuracy.py --seeds 3

Minutes a seed, so not in ctest. Exit code 1 where a limit is missed.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
QUICKSTART = SOURCE / "examples" / "cosmoflow" / "quickstart.yaml"
LEARNED = 0.35
NOTHING = 0.9


def run(bin_directory, folder, study, name):
    path = folder / f"{name}.yaml"
    path.write_text(study)
    environment = {**os.environ, "PATH": f"{bin_directory}:{os.environ['PATH']}"}
    output = folder / name
    subprocess.run([bin_directory / "wflow", "run", "-q", path, "--vars", f"OUTPUT_PATH={output}"], env=environment, check=True)
    result = json.loads(next(output.glob("*/train/result.json")).read_text())
    return {target: errors["mae_ratio"] for target, errors in result["test"]["targets"].items()}


def seeded(text, seed):
    """Other phases, another split, other initial weights; the same 400 points of parameter space."""
    text = re.sub(r"^    SEED: \S+", f"    SEED: {seed}", text, flags=re.M)
    text = re.sub(r"(split: \{.*)seed: \d+", rf"\g<1>seed: {seed}", text)
    return re.sub(r"^      seed: \d+", f"      seed: {seed}", text, flags=re.M)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="a folder for the campaigns (default: a temporary one)")
    arguments = parser.parse_args()
    bin_directory = Path(os.environ.get("WFLOW_BIN", SOURCE / "build" / "release" / "bin")).resolve()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="wflow-accuracy-"))
    folder.mkdir(parents=True, exist_ok=True)
    text = QUICKSTART.read_text()
    met = True
    try:
        for seed in range(1, arguments.seeds + 1):
            for shuffled in (False, True):
                study = seeded(text, seed) + ("      shuffle_labels: true\n" if shuffled else "")
                ratios = run(bin_directory, folder, study, f"{'shuffled' if shuffled else 'seed'}-{seed}")
                good = all(r >= NOTHING if shuffled else r < LEARNED for r in ratios.values())
                met = met and good
                words = "  ".join(f"{target} {ratio:.3f}" for target, ratio in ratios.items())
                limit = f">= {NOTHING}" if shuffled else f"< {LEARNED}"
                print(f"seed {seed}  {'shuffled labels' if shuffled else 'true labels':16}  {words}  ({limit}: {'yes' if good else 'NO'})", flush=True)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
