# SPDX-License-Identifier: Apache-2.0
"""A data set that wflow-convert wrote: fields, splits, samples as numpy arrays."""
from __future__ import annotations

import json
import os
from bisect import bisect_right
from dataclasses import dataclass, field as dataclass_field, replace
from itertools import accumulate
from pathlib import Path
from typing import Iterator, Mapping, Sequence

import numpy as np

from wflow._checksum import checked_json
from wflow._errors import DamagedData, Error, NewerFormat
from wflow._shard import WITH_RAGGED, Shard
from wflow._stage import stage as copy_to_node

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Field:
    """A named field of every sample. `layout` has a letter per axis (C, T, D, H, W). Statistics are of the training samples, one per channel."""

    name: str
    role: str  # "input" or "target"
    dtype: np.dtype
    shape: tuple
    layout: str
    channels: tuple
    units: str
    mean: np.ndarray
    std: np.ndarray
    min: np.ndarray
    max: np.ndarray
    normalisation: Mapping = dataclass_field(default_factory=dict)  # from the manifest; empty: by mean and deviation
    quantiles: np.ndarray | None = None  # (channels, levels, 2): level and value
    lengths: tuple | None = None  # of a ragged field and its mask: the least and the most; `shape` has the most
    ragged_axis: int | None = None  # the axis of these lengths in `shape`
    is_mask: bool = False  # NAME_mask of a padded field: 1 where NAME has values, and never normalised

    def _along_channels(self, values):
        if not self.layout.startswith("C"):
            return values.reshape(())
        return values.reshape((-1,) + (1,) * (len(self.shape) - 1))

    def normalise(self, values):
        """Returns float32 values, normalised per channel by the statistics of the training samples. The last step of the field's transform sets
        the kind (standardise, min_max, quantile); the default is mean 0 and deviation 1. Channels that are constant in training are only
        shifted, to 0 (min_max: to low)."""
        if self.is_mask:
            return np.asarray(values, np.float32)
        kind = self.normalisation.get("kind")
        if kind == "quantile":
            return self._by_channel(values, lambda c, x: self._level(c, x)).astype(np.float32)
        values = np.asarray(values, np.float64)  # also if the statistic is one number: numpy 1 would subtract in float32
        if kind == "min_max":
            low, high = self.normalisation["low"], self.normalisation["high"]
            factor = np.where(self.max > self.min, (high - low) / np.where(self.max > self.min, self.max - self.min, 1), 1)
            return ((values - self._along_channels(self.min)) * self._along_channels(factor) + low).astype(np.float32)
        deviation = self._along_channels(np.where(self.std > 0, self.std, 1))
        return ((values - self._along_channels(self.mean)) / deviation).astype(np.float32)

    def scales(self):
        """Returns factor, offset and centre of each channel, shape (channels, 3): normalise() is (value - centre) * factor + offset. Compute the
        difference in float64. The centre is 0 if float32 is precise enough for the values. None if the map is not linear (quantile)."""
        if self.is_mask:
            return np.array([[1.0, 0.0, 0.0]] * len(self.mean))
        kind = self.normalisation.get("kind")
        if kind == "quantile":
            return None
        if kind == "min_max":
            low, high = self.normalisation["low"], self.normalisation["high"]
            factor = np.where(self.max > self.min, (high - low) / np.where(self.max > self.min, self.max - self.min, 1), 1)
            at, offset = self.min, low
        else:
            factor = 1 / np.where(self.std > 0, self.std, 1)
            at, offset = self.mean, 0.0
        far = np.abs(at * factor) > 100
        return np.stack([factor, np.where(far, offset, offset - at * factor), np.where(far, at, 0.0)], axis=1)

    def undo(self, values):
        """The inverse of normalise(). With quantiles, the result is between the least and the greatest training value."""
        if self.is_mask:
            return np.asarray(values, np.float64)
        kind = self.normalisation.get("kind")
        if kind == "quantile":
            return self._by_channel(values, lambda c, x: self._value(c, x))
        if kind == "min_max":
            low, high = self.normalisation["low"], self.normalisation["high"]
            width = np.where(self.max > self.min, (self.max - self.min) / (high - low), 1)
            return (np.asarray(values, np.float64) - low) * self._along_channels(width) + self._along_channels(self.min)
        deviation = self._along_channels(np.where(self.std > 0, self.std, 1))
        return np.asarray(values, np.float64) * deviation + self._along_channels(self.mean)

    def _by_channel(self, values, function):
        values = np.asarray(values, np.float64)
        if not self.layout.startswith("C"):
            return function(0, values)
        return np.stack([function(c, channel) for c, channel in enumerate(values)])

    def _level(self, c, x):
        levels, knots = self.quantiles[c].T
        # Interpolates from both sides, so that a value with several levels gets the middle one.
        below = np.interp(x, *_first_of_each(knots, levels))
        above = np.interp(x, *_last_of_each(knots, levels))
        level = (below + above) / 2
        if self.normalisation["shape"] == "uniform":
            return level
        from statistics import NormalDist

        return np.vectorize(NormalDist().inv_cdf, otypes=[float])(np.clip(level, 1e-4, 1 - 1e-4))

    def _value(self, c, y):
        levels, knots = self.quantiles[c].T
        if self.normalisation["shape"] == "normal":
            from statistics import NormalDist

            y = np.vectorize(NormalDist().cdf, otypes=[float])(y)
        return np.interp(y, levels, knots)


def _first_of_each(knots, levels):
    values, first = np.unique(knots, return_index=True)
    return values, levels[first]


def _last_of_each(knots, levels):
    values, counts = np.unique(knots, return_counts=True)
    return values, levels[np.cumsum(counts) - 1]


def _with_masks(fields):
    """Adds masks as the trainer does (trainer/data/roles.cc): a field NAME_mask of one channel, with the role and the cells of NAME."""
    for name, field in fields.items():
        padded = fields.get(name.removesuffix("_mask")) if name.endswith("_mask") else None
        if padded and padded.role == field.role and field.shape == padded.shape[padded.layout.startswith("C"):]:
            fields[name] = replace(field, is_mask=True)
    return fields


class Split:
    """The samples of one split of a data set, in order of shard and row. You can pickle it, and share it between threads and processes."""

    def __init__(self, directory, name, entry, fields):
        self.name = name
        self.fields: Mapping[str, Field] = fields
        self._directory = directory
        self._entries = entry["shards"]
        self._ends = list(accumulate(shard["samples"] for shard in self._entries))
        self._shards: dict = {}

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _shard(self, k):
        if k not in self._shards:
            shapes = {name: field.shape for name, field in self.fields.items() if field.lengths}
            shard = Shard(self._directory / self._entries[k]["file"], list(self.fields), shapes)
            if len(shard) != self._entries[k]["samples"]:
                raise DamagedData(f"{shard.path} holds {len(shard)} samples, which is not what the manifest says; convert again")
            self._shards[k] = shard
        return self._shards[k]

    def _locate(self, i):
        i = i + len(self) if i < 0 else i
        if not 0 <= i < len(self):
            raise IndexError(f"the split '{self.name}' has {len(self)} samples, so there is no sample {i}")
        k = bisect_right(self._ends, i)
        return self._shard(k), i - (self._ends[k - 1] if k else 0)

    def __getitem__(self, i: int) -> dict:
        """Returns sample i: a dictionary of its fields, and its number as "id"."""
        shard, row = self._locate(i)
        sample = {name: shard.read(name, row) for name in self.fields}
        sample["id"] = int(shard.ids[row])
        return sample

    def __iter__(self) -> Iterator[dict]:
        return (self[i] for i in range(len(self)))

    def read(self, name: str, i: int) -> np.ndarray:
        """Returns one field of sample i."""
        self._field(name)
        shard, row = self._locate(i)
        return shard.read(name, row)

    def lengths(self, name: str) -> np.ndarray:
        """Returns the length of each sample of a ragged field."""
        self._ragged(name)
        parts = [self._shard(k).lengths(name) for k in range(len(self._entries))]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def ragged(self, name: str, i: int) -> np.ndarray:
        """Returns a ragged field of sample i at its own length. read() returns it padded to the longest sample of the data set."""
        self._ragged(name)
        shard, row = self._locate(i)
        return shard.ragged(name, row)

    def order_by(self, keys: Sequence[str] | str) -> np.ndarray:
        """Returns the numbers of the samples in the order of `wflow shards sort --by`: the first key decides. A key is a field of one number, a
        number of a list by its name, `length` (of the one ragged field) or `length(NAME)`."""
        keys = [keys] if isinstance(keys, str) else list(keys)
        return np.lexsort([np.arange(len(self))] + [self._key(key) for key in reversed(keys)])

    def _key(self, key):
        ragged = [name for name, field in self.fields.items() if field.lengths and not field.is_mask]
        for name in ragged:
            if key == f"length({name})" or (key == "length" and len(ragged) == 1):
                return self.lengths(name)
        for name, field in self.fields.items():
            if name == key and field.shape == ():
                return self.all(name)
            if field.layout == "C" and key in field.channels:
                return self.all(name)[:, field.channels.index(key)]
        raise Error(f"no field, label or length is named '{key}'; the data has {', '.join(self.fields)}")

    def _ragged(self, name):
        if not self._field(name).lengths:
            raise Error(f"the field '{name}' is not ragged: all samples have the shape {self.fields[name].shape}")

    def batch(self, name: str, indices: Sequence[int]) -> np.ndarray:
        """Returns one field of several samples; the first axis is that of the samples."""
        field = self._field(name)
        values = np.empty((len(indices), *field.shape), field.dtype)
        for k, i in enumerate(indices):
            values[k] = self.read(name, i)
        return values

    def all(self, name: str) -> np.ndarray:
        """Returns one field of all samples; they must fit into memory."""
        field = self._field(name)
        parts = [self._shard(k).read_all(name) for k in range(len(self._entries))]
        return np.concatenate(parts) if parts else np.empty((0, *field.shape), field.dtype)

    @property
    def ids(self) -> np.ndarray:
        """Numbers of the samples in their campaign or table."""
        parts = [self._shard(k).ids for k in range(len(self._entries))]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _field(self, name):
        if name not in self.fields:
            raise Error(f"there is no field '{name}'; the data has {', '.join(self.fields)}")
        return self.fields[name]


class Data:
    """A data set. `train`, `validation` and `test` are its splits, `fields` its fields by name (inputs first)."""

    def __init__(self, directory: str | os.PathLike):
        self.directory = Path(directory)
        path = self.directory / "manifest.json"
        try:
            text, matches = checked_json(path.read_bytes())
            if matches is False:
                raise DamagedData(f"{path} is damaged: its checksum does not match; write it anew: convert again with --finish")
            self.manifest = json.loads(text)
        except FileNotFoundError:
            raise Error(f"{self.directory} has no manifest.json: it is no data set, or its conversion has not ended") from None
        except ValueError as error:
            raise DamagedData(f"{path} is damaged: {error}") from error
        version = self.manifest.get("wflow_format", 0)
        if version > WITH_RAGGED:
            raise NewerFormat(f"{path} is of format {version}, this package knows {WITH_RAGGED}; use a newer wflow")
        try:
            self.name: str = self.manifest["name"]
            self.fields: dict[str, Field] = _with_masks({field.name: field for field in self._read_fields(version)})
            splits = {name: Split(self.directory, name, self.manifest["splits"][name], self.fields) for name in SPLITS}
        except (KeyError, TypeError) as error:
            raise DamagedData(f"{path} is damaged: it has no {error}") from error
        self.train, self.validation, self.test = (splits[name] for name in SPLITS)

    def _read_fields(self, version):
        statistics = self.manifest["statistics"]
        for entry in self.manifest["fields"] if version > 1 else self._format_1():
            of_field = statistics[entry["name"]]
            numbers = {key: np.array([s[key] for s in of_field]) for key in ("mean", "std", "min", "max")}
            numbers["normalisation"] = entry.get("normalisation", {})
            if "ragged" in entry:
                numbers["lengths"] = (entry["ragged"]["least"], entry["ragged"]["most"])
                numbers["ragged_axis"] = entry["layout"].index(entry["ragged"]["axis"])
            if of_field and all("quantiles" in s for s in of_field):
                numbers["quantiles"] = np.array([s["quantiles"] for s in of_field])
            yield Field(entry["name"], entry["role"], np.dtype(entry["dtype"]), tuple(entry["shape"]), entry["layout"],
                        tuple(entry.get("channels", ())), entry.get("units", ""), **numbers)

    def _format_1(self):
        m = self.manifest
        return [{"name": "x", "role": "input", "dtype": m["dtype"], "shape": m["shape"], "layout": "CDHW", "channels": m["channels"],
                 "units": m.get("units", "")},
                {"name": "y", "role": "target", "dtype": "float64", "shape": [len(m["labels"])], "layout": "C", "channels": m["labels"]}]

    def __getitem__(self, name: str) -> Split:
        if name not in SPLITS:
            raise KeyError(f"there is no split '{name}'; known are {', '.join(SPLITS)}")
        return getattr(self, name)

    @property
    def inputs(self) -> list[str]:
        return [f.name for f in self.fields.values() if f.role == "input"]

    @property
    def targets(self) -> list[str]:
        return [f.name for f in self.fields.values() if f.role == "target"]

    def __repr__(self):
        parts = ", ".join(f"{len(self[name])} {name}" for name in SPLITS)
        return f"<wflow data '{self.name}': {parts}; fields {', '.join(self.fields)}>"


def open_data(directory: str | os.PathLike, stage: str | os.PathLike | None = None) -> Data:
    """Opens the data set in a folder (the one with manifest.json). `stage`: a folder on this node's own disk, such as $TMPDIR. The shards are
    copied there first, once for all processes of the node, and samples are read from the copy. The copy stays until you remove it."""
    data = Data(directory)
    return data if stage is None else Data(copy_to_node(data.directory, data.manifest, stage))
