# SPDX-License-Identifier: Apache-2.0
"""Samples on a node's own storage: the draws of a rank's subset, and copies of a data set that the processes of a node share."""
from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

import numpy as np

from wflow._errors import Error

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _hash64(seed, counters):
    """base/random.h's hash64 of one seed and an array of counters."""
    seed = np.array([seed], np.uint64)  # an array: numpy warns of overflow in scalars
    return _mix(_mix(seed + _GOLDEN) + (np.asarray(counters, np.uint64) + np.uint64(1)) * _GOLDEN)


def draw(seed: int, subset: int, size: int, samples: int) -> np.ndarray:
    """Returns the numbers of `size` of `samples` samples, drawn with replacement: those that rank `subset` of wflow-train draws with this seed
    (`stage: {subset: N}`, trainer/data/data_loader.h)."""
    key = _hash64(_hash64(seed, [8])[0], [subset])[0]
    return (_hash64(key, np.arange(size)) % np.uint64(samples)).astype(np.int64)


def stage(directory: Path, manifest: dict, folder) -> Path:
    """Copies the manifest and the shards of a data set to a folder of this node, once for all processes of the node that call it, and returns
    the copy. Later calls for the same data set find it there."""
    files = [entry["file"] for split in manifest["splits"].values() for entry in split["shards"]]
    copy = Path(folder) / f"wflow-stage-{hashlib.sha256((directory / 'manifest.json').read_bytes()).hexdigest()[:32]}"
    try:
        with open(f"{copy}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the other processes of the node wait until the copy is whole
            if not (copy / "manifest.json").exists():
                needed = sum((directory / name).stat().st_size for name in files)
                free = shutil.disk_usage(folder).free
                if needed > free:
                    raise Error(f"{folder} has {free} bytes free, and the shards of {directory} take {needed}: name another folder for 'stage'")
                for name in [*files, "manifest.json"]:  # the manifest comes last: with it, the copy is whole
                    to = copy / name
                    to.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(directory / name, f"{to}.part")
                    os.replace(f"{to}.part", to)
    except OSError as error:
        raise Error(f"cannot stage {directory} in {folder}: {error}") from error
    return copy
