# SPDX-License-Identifier: Apache-2.0
"""Datasets for torch.utils.data. Import it by name: `import wflow.torch`.

    data = wflow.open("data")
    loader = torch.utils.data.DataLoader(wflow.torch.MapDataset(data.train), batch_size=32, shuffle=True, num_workers=4)
    for inputs, targets in loader: ...

You can use workers: each reads samples with its own descriptor, and no handle of HDF5 is shared.
"""
from __future__ import annotations

import collections
import os
from typing import Iterator, Sequence

import numpy as np
import torch
import torch.utils.data

from wflow._data import Split
from wflow._errors import Error
from wflow._loader import Loader
from wflow._stage import draw


class _Fields:
    """The fields of a sample that become tensors, and their conversion."""

    def __init__(self, split: Split, inputs, targets, normalise):
        self.split = split
        roles = {"input": inputs, "target": targets}
        self.names = {role: self._names(role, given) for role, given in roles.items()}
        self.normalise = normalise
        self._lengths: dict = {}

    def _names(self, role, given):
        if given is None:
            return [f.name for f in self.split.fields.values() if f.role == role]
        given = [given] if isinstance(given, str) else list(given)
        for name in given:
            self.split._field(name)
        return given

    def _tensor(self, name, i):
        values = self.split.read(name, i)
        if self.normalise:
            values = self.split.fields[name].normalise(values)
        return torch.from_numpy(np.asarray(values, np.float32))

    def trimmed(self, batch, indices):
        """Cuts ragged fields, and their masks, of a batch of these samples to its longest sample."""
        return tuple(self._trimmed_role(role, values, indices) for role, values in zip(("input", "target"), batch))

    def _trimmed_role(self, role, values, indices):
        names = self.names[role]
        if len(names) == 1:
            return self._trimmed(names[0], values, indices)
        return {name: self._trimmed(name, values[name], indices) for name in names}

    def _trimmed(self, name, values, indices):
        field = self.split.fields[name]
        if not field.lengths:
            return values
        if name not in self._lengths:
            self._lengths[name] = self.split.lengths(name)
        return values.narrow(field.ragged_axis + 1, 0, int(self._lengths[name][indices].max()))

    def by_role(self, tensors):
        """Returns (inputs, targets) of a dictionary of tensors by the names of fields."""
        return tuple(tensors[names[0]] if len(names) == 1 else {name: tensors[name] for name in names}
                     for names in (self.names[role] for role in ("input", "target")))

    def all_names(self):
        """Returns each field once."""
        return list(dict.fromkeys(name for role in ("input", "target") for name in self.names[role]))

    def sample(self, i):
        """Returns (inputs, targets): a tensor if the role has one field, else a dictionary of tensors."""
        return tuple(self._role(role, i) for role in ("input", "target"))

    def _role(self, role, i):
        names = self.names[role]
        if len(names) == 1:
            return self._tensor(names[0], i)
        return {name: self._tensor(name, i) for name in names}


class _Board:
    """The epoch of each worker of a DataLoader, in memory that all workers share. The process that consumes the batches needs it, because
    DataLoader does not report the beginning or end of an iteration. Each worker writes one word: iteration, epoch, workers, and whether it
    has ended."""

    _WORKERS = 256

    def __init__(self):
        self._words = torch.zeros(self._WORKERS, dtype=torch.int64).share_memory_()
        self._iterations = 0  # of this process

    def __getstate__(self):
        return {"_words": self._words, "_iterations": 0}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._words.share_memory_()  # a copy, unless a DataLoader starts a worker

    def clear(self):
        self._words.zero_()

    def _rows(self):
        for word in self._words.tolist():
            if word:
                yield word >> 38, word >> 10 & (1 << 28) - 1, word >> 1 & 511, word & 1

    def last_epoch(self):
        return max((epoch for _, epoch, _, _ in self._rows()), default=0)

    def next_epoch(self):
        """Returns the epoch after the last one if all workers finished it, else the last one. None before the first."""
        rows = list(self._rows())
        if not rows:
            return None
        last = max(epoch for _, epoch, _, _ in rows)
        of_last: dict = {}
        for key, epoch, workers, ended in rows:
            if epoch == last:
                of_last.setdefault((key, workers), []).append(ended)
        return last + any(sum(ends) == workers for (_, workers), ends in of_last.items())

    def begin(self, info, least):
        """Returns the epoch of the iteration that this worker begins, and the word for end(). All workers of an iteration get the same epoch."""
        self._iterations += 1
        # All workers have the same seed in an iteration. Persistent workers keep it over several iterations.
        key = hash((info.seed - info.id, self._iterations)) & (1 << 24) - 1 or 1
        known = [epoch for k, epoch, _, _ in self._rows() if k == key]
        epoch = known[0] if known else max(least, self.next_epoch() or 0)
        word = key << 38 | epoch << 10 | info.num_workers << 1
        self._words[info.id % self._WORKERS] = word
        return epoch, word

    def end(self, info, word):
        if int(self._words[info.id % self._WORKERS]) == word:
            self._words[info.id % self._WORKERS] = word | 1


class MapDataset(torch.utils.data.Dataset):
    """Samples by number. `inputs`, `targets`: names of fields; by default those of the role. Values are float32, normalised to mean 0 and
    deviation 1 by the training statistics unless `normalise` is false."""

    def __init__(self, split: Split, inputs: Sequence[str] | str | None = None, targets: Sequence[str] | str | None = None, normalise: bool = True):
        self._fields = _Fields(split, inputs, targets, normalise)

    def __len__(self):
        return len(self._fields.split)

    def __getitem__(self, i):
        return self._fields.sample(i)


class IterableDataset(torch.utils.data.IterableDataset):
    """Batches of one epoch, in a random order that depends on (seed, epoch), but not on the number of ranks or workers. If an iteration reaches
    its end, the next one is over the next epoch.

    Pass it to DataLoader(dataset, batch_size=None). It makes the batches itself, with `batch` samples each over all ranks. Batch k of an epoch
    has the same samples on any number of ranks. Rank r takes its equal part of each batch (`batch` must be divisible by `world`). Worker w of
    W takes the batches k with k % W == w, which is the order in which DataLoader reads from its workers. The samples that do not fill a batch
    are left out, unless `drop_last` is false.

    To resume, save state_dict(), and pass it to load_state_dict() before the iteration. The position counts the batches that you have used.
    Call advance() for each of them: with workers, the data set cannot know it. Once you have called advance(), it alone decides where the
    next iteration begins.

    `batch_by`: keys of Split.order_by(), such as ("type", "length"). Neighbours in this order then come together, in runs of `run` samples
    (default: a batch), and the order of the runs is random. With `wflow shards sort` by the same keys, a run is also a range of a shard. With
    run = batch // world, each rank has one run of each batch: its samples are alike, and those of the ranks differ.

    `trim`: ragged fields and their masks have the length of the longest sample of the rank's batch, in place of that of the data set.

    `subset`: this rank draws so many samples, with replacement, reads them now, and gives batches of them alone. An epoch has world * subset
    samples; nothing is read later. Rank r draws the samples that rank r of wflow-train draws with `stage: {subset: N}` and the same seed.
    """

    def __init__(self, split: Split, batch: int, inputs=None, targets=None, normalise: bool = True, shuffle: bool = True, seed: int = 1, rank: int = 0,
                 world: int = 1, drop_last: bool = True, batch_by: Sequence[str] | str | None = None, run: int = 0,
                 trim: bool = False, subset: int = 0):
        if subset < 0 or (subset and batch_by):
            raise Error(f"subset ({subset}) is the number of samples that each rank draws: 1 or more, without batch_by")
        if batch < 1 or world < 1 or batch % world != 0:
            raise Error(f"batch ({batch}) must be divisible by world ({world})")
        if not 0 <= rank < world:
            raise Error(f"there is no rank {rank} in a world of {world}")
        self._draws = np.stack([draw(seed, r, subset, len(split)) for r in range(world)]) if subset else None
        count = world * subset or len(split)
        if drop_last and batch > count:
            raise Error(f"batch ({batch}) is more than the {count} samples of '{split.name}', so there would be no batch: take a smaller one, or "
                        "drop_last=False")
        if run < 0 or (run and not batch_by):
            raise Error(f"run ({run}) is the number of samples that come together in the order of batch_by: 1 or more, with batch_by")
        self._fields = _Fields(split, inputs, targets, normalise)
        self._alike = split.order_by(batch_by) if batch_by else None
        self._run = min(run or batch, len(split))
        self._trim = trim
        self.batch, self.shuffle, self.seed, self.rank, self.world, self.drop_last = batch, shuffle, seed, rank, world, drop_last
        self._epoch = self.position = 0
        self._advanced = False  # by advance()
        self._before = None  # epoch and position before an iteration advanced to the next epoch
        self._board = _Board()
        self._held = self._hold() if subset else None

    def _hold(self):
        """Returns the samples of this rank's subset, ascending, and their fields by name."""
        samples = np.unique(self._draws[self.rank])
        return samples, self._read_fields(samples)

    def _read_fields(self, samples):
        return {name: torch.stack([self._fields._tensor(name, int(i)) for i in samples]) for name in self._fields.all_names()}

    @property
    def samples(self):
        """The number of samples in an epoch."""
        return len(self._fields.split) if self._draws is None else self._draws.size

    @property
    def epoch(self):
        """The epoch that the next iteration begins or continues."""
        return self._epoch if self._advanced else max(self._epoch, self._board.next_epoch() or 0)

    @epoch.setter
    def epoch(self, epoch):
        self._board.clear()
        self._epoch = epoch

    def __len__(self):
        """The number of batches in an epoch."""
        return self.samples // self.batch if self.drop_last else -(-self.samples // self.batch)

    def order(self) -> np.ndarray:
        """Returns the samples of this epoch in their order, over all ranks."""
        return self._order(self.epoch)

    def _order(self, epoch):
        count = len(self._fields.split)
        if not self.shuffle and self._draws is not None:
            return self._in_equal_parts(self._draws)
        if not self.shuffle:
            return np.arange(count) if self._alike is None else self._alike
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        if self._draws is not None:
            return self._in_equal_parts(np.stack([random.permutation(of_rank) for of_rank in self._draws]))
        if self._alike is None:
            return random.permutation(count)
        runs = count // self._run
        first = random.integers(count)  # runs begin elsewhere in each epoch
        places = (random.permutation(runs)[:, None] * self._run + np.arange(self._run)).ravel()
        places = np.concatenate([places, np.arange(runs * self._run, count)])
        return self._alike[(places + first) % count]

    def _in_equal_parts(self, draws):
        """The order in which each batch has an equal part of the row of each rank."""
        part = self.batch // self.world
        return np.concatenate([draws[:, at:at + part].ravel() for at in range(0, draws.shape[1], part)])

    def _iteration(self, batches):
        """Yields `batches` from a position on, for this worker; then the next epoch begins."""
        info = torch.utils.data.get_worker_info()
        if info is None:
            epoch, position = self.epoch, self.position
            self._before = None
            yield from batches(self._order(epoch), range(position, len(self)))
            if not self._advanced and (self.epoch, self.position) == (epoch, position):
                self._board.clear()
                self._before = epoch, position
                self._epoch, self.position = epoch + 1, 0
            return
        if self._advanced:  # the consumer has set the position
            yield from batches(self._order(self._epoch), range(self.position + info.id, len(self), info.num_workers))
            return
        epoch, word = self._board.begin(info, self._epoch)
        position = self.position if epoch == self._epoch else 0
        yield from batches(self._order(epoch), range(position + info.id, len(self), info.num_workers))
        self._board.end(info, word)

    def __iter__(self) -> Iterator:
        return self._iteration(self._batches if self._held is None else self._held_batches)

    def _ours(self, order, k):
        """This rank's samples of batch k."""
        return np.array_split(order[k * self.batch:(k + 1) * self.batch], self.world)[self.rank]

    def _held_batches(self, order, numbers):
        samples, tensors = self._held
        for k in numbers:
            ours = self._ours(order, k)
            if len(ours):
                places = torch.from_numpy(np.searchsorted(samples, ours))
                batch = self._fields.by_role({name: values[places] for name, values in tensors.items()})
                yield self._fields.trimmed(batch, ours) if self._trim else batch

    def _batches(self, order, numbers):
        for k in numbers:
            ours = self._ours(order, k)
            if len(ours):
                batch = torch.utils.data.default_collate([self._fields.sample(int(i)) for i in ours])
                yield self._fields.trimmed(batch, ours) if self._trim else batch

    def advance(self, batches: int = 1):
        """Records that you have used this number of batches. At the end of an epoch the next one begins."""
        if not self._advanced and self._before is not None:  # already counted by the iteration
            self._epoch, self.position = self._before
        elif not self._advanced:
            self._epoch = max(self._epoch, self._board.last_epoch())
        self._advanced = True
        self.position += batches
        if self.position >= len(self):
            self._epoch, self.position = self._epoch + 1, 0

    def state_dict(self) -> dict:
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed, "batch": self.batch, "samples": self.samples}

    def load_state_dict(self, state: dict):
        for key, ours in (("seed", self.seed), ("batch", self.batch), ("samples", self.samples)):
            if state[key] != ours:
                raise Error(f"the state is of {key} {state[key]}, but this dataset has {ours}")
        self.epoch, self.position = state["epoch"], state["position"]
        self._advanced, self._before = False, None


class FastDataset(IterableDataset):
    """The batches of IterableDataset, made by threads of libwflow_loader. They merge reads, inflate several times as fast, and cast and scale in
    one pass.

    Iterate over it directly, or with DataLoader(dataset, batch_size=None) without workers. `threads` threads (default: the number of processors
    of this process) read `ahead` batches ahead. Samples, order and state are those of IterableDataset. Values are the same within float32's
    rounding.

    `cache`: bytes for samples that stay in memory, so that later epochs need not read them again. If all decoded samples fit, it keeps them
    decoded, else as many compressed ones as fit. -1: a quarter of the memory that this process could take within the limits of its control
    groups. 0: only the kernel's page cache.
    """

    _AT_ONCE = 64  # samples of a subset that are read together

    def __init__(self, split: Split, batch: int, *args, threads: int = 0, ahead: int = 3, cache: int = 0, **options):
        if ahead < 1 or threads < 0:
            raise Error(f"ahead ({ahead}) must be 1 or more, threads ({threads}) 0 or more")
        if cache and options.get("subset"):
            raise Error("a subset stays in memory anyway: leave out 'cache' or 'subset'")
        self._threads = threads or len(os.sched_getaffinity(0))
        self._ahead = ahead
        self._cache = cache
        self._loader = None
        self._pid = None
        super().__init__(split, batch, *args, **options)

    def __getstate__(self):
        return {**self.__dict__, "_loader": None}  # its threads belong to this process

    def _open(self):
        if self._loader is None or self._pid != os.getpid():  # threads end at a fork
            split = self._fields.split
            self._loader, self._pid = Loader(split._directory, split.name, self._threads), os.getpid()
            if self._cache:
                self._loader.keep(self._cache, [number for _, (number, _, _), _ in self._wanted()])
        return self._loader

    def _wanted(self):
        """A tuple for each field that is read: name, number, shape, scales, and the work that remains for Python."""
        fields = self._fields
        numbers = {name: k for k, name in enumerate(fields.split.fields)}
        for name in fields.all_names():
            field = fields.split.fields[name]
            scales = field.scales() if fields.normalise else None
            yield name, (numbers[name], field.shape, scales), field.normalise if fields.normalise and scales is None else None

    def _read_fields(self, samples):
        loader, wanted = self._open(), list(self._wanted())
        parts = [self._named(loader.wait(loader.submit(some, [what for _, what, _ in wanted])), wanted)
                 for some in np.array_split(samples, -(-len(samples) // self._AT_ONCE))]
        loader.close()
        self._loader = None
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _batches(self, order, numbers):
        loader, wanted = self._open(), list(self._wanted())
        batches = (self._ours(order, k) for k in numbers)
        submitted = ((ours, loader.submit(ours, [what for _, what, _ in wanted])) for ours in batches if len(ours))
        pending = collections.deque()
        try:
            for batch in submitted:
                pending.append(batch)
                if len(pending) > self._ahead:
                    yield self._next(loader, pending, wanted)
            while pending:
                yield self._next(loader, pending, wanted)
        finally:
            while pending:  # ended half way
                loader.wait(pending.popleft()[1])

    def _next(self, loader, pending, wanted):
        ours, number = pending.popleft()
        batch = self._fields.by_role(self._named(loader.wait(number), wanted))
        return self._fields.trimmed(batch, ours) if self._trim else batch

    @staticmethod
    def _named(arrays, wanted):
        tensors = {}
        for array, (name, _, finish) in zip(arrays, wanted):
            if finish:
                array = np.stack([finish(values) for values in array])
            tensors[name] = torch.from_numpy(array)
        return tensors
