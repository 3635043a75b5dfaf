# SPDX-License-Identifier: Apache-2.0
"""Reads one shard (docs/formats/shards.md) without HDF5: h5py gives the places of the chunks once; then a sample is a pread that zlib inflates.

No handle is shared, so you can pickle a shard, and use it from threads and from forked processes.
"""
from __future__ import annotations

import os
import threading
import zlib
from dataclasses import dataclass, field as dataclass_field, replace
from math import prod

import h5py
import numpy as np

from wflow._checksum import xxh3_64
from wflow._errors import DamagedData, NewerFormat

if h5py.version.version_tuple[0] < 3:  # the places of chunks are not in its interface
    raise ImportError(f"wflow needs h5py 3.0 or newer, found {h5py.__version__}; pip install --upgrade h5py")

FORMAT = 2
WITH_RAGGED = 3  # of data sets with a ragged field
_SHUFFLE, _DEFLATE = 2, 1  # the numbers of HDF5's filters
_MOST_ASKED = 16384  # chunks: HDF5 searches through all of them before the one that it is asked for


class _Descriptor:
    """An open file. It is closed with its last reference."""

    def __init__(self, path):
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self):
        if hasattr(self, "number"):
            os.close(self.number)


@dataclass
class _Ragged:
    """A field whose samples have their own lengths along one axis. Its chunks hold steps along this axis."""

    axis: int  # in the shape of a sample
    offsets: np.ndarray  # in steps: of each sample, then the end
    pad: float
    mask: bool = False  # no values in the file: 1 up to the sample's length


@dataclass
class _Layout:
    """The places of the values of a field. Without `chunks`, only HDF5 knows them."""

    name: str
    dtype: np.dtype  # in the file
    logical: np.dtype  # of the values
    shape: tuple
    rows: int = 1  # samples per chunk
    chunk: tuple = ()  # shape of a chunk of a sample; shorter than `shape` if the sample is stored in slabs or bricks
    shuffle: bool = False
    deflate: bool = False
    hashed: bool = False
    chunks: np.ndarray | None = None  # (chunks, 4): offset, bytes, mask, XXH3-64
    attributes: dict = dataclass_field(default_factory=dict)
    ragged: _Ragged | None = None  # `shape` is then that of a step

    @property
    def sample_bytes(self):
        return prod(self.shape) * self.dtype.itemsize

    @property
    def parts(self):
        """The number of chunks of a sample."""
        return prod(-(-n // c) for n, c in zip(self.shape, self.chunk))


class Shard:
    def __init__(self, path, names, shapes=None):
        """`shapes`: of the samples of ragged fields and their masks, padded to the longest."""
        self.path = os.fspath(path)
        self._local = threading.local()
        self._shapes = shapes or {}
        self._checked: set = set()  # (field, chunk) of packed chunks whose checksum matches
        try:
            with h5py.File(self.path, "r") as file:
                self._read_layout(file, names)
        except (OSError, KeyError, RuntimeError, ValueError) as error:
            raise DamagedData(f"{self.path} is not a shard of wflow: {error}") from error

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k != "_local"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._local = threading.local()

    def __len__(self):
        return len(self.ids)

    # ---- layout

    def _read_layout(self, file, names):
        version = int(file.attrs["wflow_format"])
        if version > WITH_RAGGED:
            raise NewerFormat(f"{self.path} is of shard format {version}, this package knows {WITH_RAGGED}; use a newer wflow")
        self.ids = file["id"][...]
        if "xxh3_64" in file["id"].attrs and xxh3_64(self.ids.tobytes(), int(file["id"].attrs["xxh3_64"])) is False:
            raise ValueError("its sample numbers (/id) are damaged; convert its block again")
        self.size = os.path.getsize(self.path)
        self.layouts = {name: self._field(file, name, version) for name in names}

    def _field(self, file, name, version):
        if f"wflow/offsets/{name}" in file:
            return self._ragged_field(file, name, version)
        padded = name.removesuffix("_mask")
        if name not in file and padded != name and f"wflow/offsets/{padded}" in file:
            layout = self._ragged_field(file, padded, version)
            channels = str(file[padded].attrs["layout"]).find("C") >= 0
            mask = replace(layout.ragged, axis=layout.ragged.axis - channels, mask=True)
            return replace(layout, name=name, dtype=np.dtype("u1"), logical=np.dtype("u1"), shape=layout.shape[channels:], ragged=mask)
        dataset = file[name]
        if dataset.shape[0] != len(self.ids):
            raise ValueError(f"/{name} is not of {len(self.ids)} samples, as /id")
        return self._placed(file, dataset, name, version)

    def _ragged_field(self, file, name, version):
        table, dataset = file[f"wflow/offsets/{name}"], file[name]
        offsets = table[...].astype(np.int64)
        if "xxh3_64" in table.attrs and xxh3_64(table[...].tobytes(), int(table.attrs["xxh3_64"])) is False:
            raise ValueError(f"the offsets of {name} are damaged; convert its block again")
        if len(offsets) != len(self.ids) + 1 or offsets[0] != 0 or offsets[-1] != dataset.shape[0] or (np.diff(offsets) <= 0).any():
            raise ValueError(f"the offsets of {name} do not fit its values")
        ragged = _Ragged(int(dataset.attrs["ragged_axis"]), offsets, float(dataset.attrs.get("pad_value", 0)))
        layout = self._placed(file, dataset, name, version, ragged)
        if layout.chunks is None:
            raise ValueError(f"/{name} is ragged and has chunks or filters of another tool; convert its block again")
        return layout

    def _placed(self, file, dataset, name, version, ragged=None):
        logical = dataset.attrs.get("dtype", dataset.dtype.str)
        layout = _Layout(name, dataset.dtype, np.dtype(logical), dataset.shape[1:], ragged=ragged)
        if dataset.chunks is None:
            start = dataset.id.get_offset()
            if start is not None and len(self.ids):
                bytes_ = max(1, layout.sample_bytes)
                layout.chunk = layout.shape
                layout.chunks = np.array([[start + i * layout.sample_bytes, bytes_, 0, 0] for i in range(dataset.shape[0])], np.uint64)
            return layout
        plist = dataset.id.get_create_plist()
        filters = [plist.get_filter(k)[0] for k in range(plist.get_nfilters())]
        layout.rows, layout.chunk = dataset.chunks[0], tuple(dataset.chunks[1:])
        layout.shuffle, layout.deflate = _SHUFFLE in filters, _DEFLATE in filters
        whole = layout.chunk == layout.shape
        plain = set(filters) <= {_SHUFFLE, _DEFLATE} and filters == sorted(filters, reverse=True) and dataset.dtype.isnative
        if not plain or not (whole or (layout.rows == 1 and not ragged)) or (layout.rows > 1 and filters and not ragged):
            return layout  # chunks or filters of another tool: through h5py
        places = self._places(file, dataset, layout, version)
        if places is not None:
            layout.chunks, layout.hashed = places
        return layout

    def _places(self, file, dataset, layout, version):
        count = -(-dataset.shape[0] // layout.rows) * layout.parts
        index = file.get("wflow/index" if version == 1 else f"wflow/index/{layout.name}")
        if isinstance(index, h5py.Dataset) and index.shape == (count, 4) and count > 0:
            words = index[...]
            holder = file["wflow/index"]
            ends = words[:, 0] + words[:, 1]
            fresh = int(holder.attrs.get("index_file_size", -1)) == self.size and int(ends.max()) <= self.size
            if fresh and all(self._place(dataset, layout, k)[:3] == tuple(int(w) for w in words[k, :3]) for k in (0, count - 1)):
                return words, True
        if layout.parts > 1 and count > _MOST_ASKED:
            return None
        return np.array([self._place(dataset, layout, k) for k in range(count)], np.uint64).reshape(count, 4), False

    @staticmethod
    def _place(dataset, layout, k):
        sample, part = divmod(k, layout.parts)
        start = [sample * layout.rows]
        for n, c in zip(reversed(layout.shape), reversed(layout.chunk)):
            part, at = divmod(part, -(-n // c))
            start.insert(1, at * c)
        info = dataset.id.get_chunk_info_by_coord(tuple(start))
        if info.byte_offset is None:
            raise ValueError(f"sample {sample} of /{layout.name} has no data")
        return info.byte_offset, info.size, info.filter_mask, 0

    # ---- reading

    def _descriptor(self):
        """Returns the file of this thread and process; it is closed with the thread."""
        local = self._local
        if getattr(local, "pid", None) != os.getpid():
            local.file = _Descriptor(self.path)
            local.pid = os.getpid()
        return local.file.number

    def _pread(self, offset, size):
        data = os.pread(self._descriptor(), size, offset)
        if len(data) != size:
            raise DamagedData(f"{self.path} is shorter than when it was opened")
        return data

    def lengths(self, name):
        """Returns the length of each sample along the ragged axis."""
        return np.diff(self.layouts[name].ragged.offsets)

    def ragged(self, name, row):
        """Returns the values of a ragged field of sample `row` at its own length."""
        layout = self.layouts[name]
        begin, end = (int(offset) for offset in layout.ragged.offsets[row:row + 2])
        if layout.ragged.mask:
            steps = np.ones((end - begin, *layout.shape), layout.dtype)
        else:
            chunks = range(begin // layout.rows, -(-end // layout.rows))
            steps = np.concatenate([self._steps(layout, k, row)[max(0, begin - k * layout.rows):end - k * layout.rows] for k in chunks])
        return np.moveaxis(steps, 0, layout.ragged.axis)

    def _steps(self, layout, chunk, row):
        """A chunk of steps; each thread keeps its last one, because neighbouring samples share it."""
        key = (os.getpid(), layout.name, chunk)
        if getattr(self._local, "steps", (None,))[0] != key:
            self._local.steps = key, self._chunk(layout, chunk, row).reshape(layout.rows, *layout.shape)
        return self._local.steps[1]

    def _padded(self, layout, row):
        values = self.ragged(layout.name, row)
        shape = self._shapes.get(layout.name)
        if shape is None:
            axis = layout.ragged.axis
            shape = values.shape[:axis] + (int(self.lengths(layout.name).max()),) + values.shape[axis + 1:]
        padded = np.full(shape, 0 if layout.ragged.mask else layout.ragged.pad, layout.logical)
        padded[tuple(slice(0, n) for n in values.shape)] = values
        return padded

    def read(self, name, row):
        """Returns the values of a field of sample `row`: a new array of the field's shape and type. A ragged field is padded."""
        layout = self.layouts[name]
        if layout.ragged:
            return self._padded(layout, row)
        if layout.chunks is None:
            with h5py.File(self.path, "r") as file:
                return np.asarray(file[name][row]).astype(layout.logical, copy=False)
        if layout.sample_bytes == 0:
            return np.zeros(layout.shape, layout.logical)
        if layout.rows > 1:
            self._check_packed(layout, row // layout.rows)
            offset = int(layout.chunks[row // layout.rows, 0]) + row % layout.rows * layout.sample_bytes
            values = np.frombuffer(bytearray(self._pread(offset, layout.sample_bytes)), layout.dtype).reshape(layout.shape)
        elif layout.parts == 1:
            values = self._chunk(layout, row, row).reshape(layout.shape)
        else:
            values = self._parts(layout, row)
        return values.astype(layout.logical, copy=False)

    def _parts(self, layout, row):
        values = np.empty(layout.shape, layout.dtype)
        for k, corner in enumerate(np.ndindex(*(-(-n // c) for n, c in zip(layout.shape, layout.chunk)))):
            place = tuple(slice(at * c, min(n, (at + 1) * c)) for at, n, c in zip(corner, layout.shape, layout.chunk))
            part = self._chunk(layout, row * layout.parts + k, row).reshape(layout.chunk)
            values[place] = part[tuple(slice(0, s.stop - s.start) for s in place)]
        return values

    def _chunk(self, layout, chunk, row):
        offset, size, mask, checksum = (int(w) for w in layout.chunks[chunk])
        stored = self._pread(offset, size)
        damaged = DamagedData(f"sample {self.ids[row]} of {self.path} is damaged; `wflow shards verify` checks the whole data set")
        if layout.hashed and xxh3_64(stored, checksum) is False:
            raise damaged
        expected = layout.rows * prod(layout.chunk) * layout.dtype.itemsize
        deflated = layout.deflate and not mask >> (1 if layout.shuffle else 0) & 1
        if deflated:
            try:
                stored = zlib.decompress(stored, bufsize=expected)
            except zlib.error as error:
                raise damaged from error
        if len(stored) != expected:
            raise damaged
        width = layout.dtype.itemsize
        if layout.shuffle and not mask & 1 and width > 1:
            planes = np.frombuffer(stored, np.uint8).reshape(width, -1)
            return np.ascontiguousarray(planes.T).reshape(-1).view(layout.dtype)
        return np.frombuffer(stored if not deflated else bytearray(stored), layout.dtype).copy()

    def _check_packed(self, layout, chunk):
        """Reads a whole chunk of several samples once, for its checksum."""
        if not layout.hashed or (layout.name, chunk) in self._checked:
            return
        offset, size, _, checksum = (int(w) for w in layout.chunks[chunk])
        if xxh3_64(self._pread(offset, size), checksum) is False:
            first, end = chunk * layout.rows, min((chunk + 1) * layout.rows, len(self.ids))
            raise DamagedData(f"{layout.name} of samples {self.ids[first]} to {self.ids[end - 1]} of {self.path} is damaged; "
                              "`wflow shards verify` checks the whole data set")
        self._checked.add((layout.name, chunk))

    def read_all(self, name):
        """Returns a field of all samples, read through h5py; for small fields."""
        layout = self.layouts[name]
        if layout.ragged:
            return np.stack([self.read(name, row) for row in range(len(self))])
        if layout.hashed and layout.rows > 1:
            for chunk in range(len(layout.chunks)):
                self._check_packed(layout, chunk)
        elif layout.hashed and len(self):
            return np.stack([self.read(name, row) for row in range(len(self))])
        with h5py.File(self.path, "r") as file:
            return file[name][...].astype(self.layouts[name].logical, copy=False)
