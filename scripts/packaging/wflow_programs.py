# SPDX-License-Identifier: Apache-2.0
"""Part of the wheel: starts the programs in the folder _prefix of the package. It does not import the package, which loads numpy and h5py."""
import os
import runpy
import sys

PREFIX = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wflow", "_prefix")


def main():
    """The program of the name by which this was called."""
    path = os.path.join(PREFIX, "bin", os.path.basename(sys.argv[0]))
    os.execv(path, [path, *sys.argv[1:]])


def cosmoflow():
    """A Python program of the CosmoFlow example: cosmoflow-whole-box is whole_box.py."""
    script = os.path.basename(sys.argv[0]).removeprefix("cosmoflow-").replace("-", "_") + ".py"
    runpy.run_path(os.path.join(PREFIX, "share", "wflow", "examples", "cosmoflow", script), run_name="__main__")
