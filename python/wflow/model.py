# SPDX-License-Identifier: Apache-2.0
"""A model that wflow-train exported: TorchScript with transform and normalisation inside."""
from __future__ import annotations

import os
import zipfile
import zlib

from wflow._errors import DamagedData, Error


class Model:
    """Call it with a batch of raw samples (numpy or tensor). It returns the targets in their own units, as numpy for numpy;
    of a model with several heads, a dictionary of them by the heads' names."""

    def __init__(self, module):
        self.module = module
        self.targets: list[str] = list(getattr(module, "targets", []))
        self.heads: list[str] = list(getattr(module, "heads", []))
        self.wflow: str = getattr(module, "wflow", "")

    @staticmethod
    def _own_shape(result, grid, has_channels):
        """Returns a field in the shape of the data, for instance (N, H, W) if the module returns (N, 1, 1, H, W)."""
        import torch

        axes = len(grid)
        if not axes or not isinstance(result, torch.Tensor) or result.dim() != 5 or any(n != 1 for n in result.shape[2:5 - axes]):
            return result
        result = result.reshape(*result.shape[:2], *result.shape[5 - axes:])
        return result if result.shape[1] > 1 or has_channels else result[:, 0]

    def _by_head(self, results):
        shapes = zip(self.module.head_grids, self.module.head_has_channels)
        return {name: self._own_shape(result, *shape) for name, result, shape in zip(self.heads, results, shapes)}

    def __call__(self, *inputs):
        import numpy as np
        import torch

        arrays = [value for value in inputs if not isinstance(value, torch.Tensor)]
        tensors = [torch.as_tensor(np.asarray(value)) if not isinstance(value, torch.Tensor) else value for value in inputs]
        with torch.no_grad():
            result = self.module(*tensors)
        if self.heads:
            parts = self._by_head(result)
            return {name: part.numpy() for name, part in parts.items()} if arrays else parts
        result = self._own_shape(result, getattr(self.module, "target_grid", []), getattr(self.module, "target_has_channels", True))
        return result.numpy() if arrays and isinstance(result, torch.Tensor) else result


def _check_archive(path):
    """Compares the checksums of the archive's members. torch does not, and would load a changed weight without an error."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except zlib.error as error:
        raise DamagedData(f"{path} is damaged ({error}); train again, or take a copy of it") from error
    except (zipfile.BadZipFile, OSError) as error:
        raise Error(f"{path} is no model that wflow-train exported: {error}") from error
    if damaged is not None:
        raise DamagedData(f"{path} is damaged (its member {damaged}); train again, or take a copy of it")


def load_model(path: str | os.PathLike) -> Model:
    """Loads the model.pt of a training."""
    import torch

    _check_archive(os.fspath(path))
    try:
        module = torch.jit.load(os.fspath(path), map_location="cpu")
    except (RuntimeError, ValueError) as error:
        raise Error(f"{os.fspath(path)} is no model that wflow-train exported: {str(error).splitlines()[0]}") from error
    return Model(module.eval())
