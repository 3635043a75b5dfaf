# SPDX-License-Identifier: Apache-2.0
"""A model that wflow-train exported: TorchScript with transform and normalisation inside."""
from __future__ import annotations

import os
import zipfile
import zlib

from wflow._errors import DamagedData, Error


class Model:
    """Call it with a batch of raw samples (numpy or tensor). It returns the targets in their own units, as numpy for numpy."""

    def __init__(self, module):
        self.module = module
        self.targets: list[str] = list(getattr(module, "targets", []))
        self.wflow: str = getattr(module, "wflow", "")

    def _own_shape(self, result):
        """Returns a field in the shape of the data, for instance (N, H, W) if the module returns (N, 1, 1, H, W)."""
        import torch

        axes = len(getattr(self.module, "target_grid", []))
        if not axes or not isinstance(result, torch.Tensor) or result.dim() != 5 or any(n != 1 for n in result.shape[2:5 - axes]):
            return result
        result = result.reshape(*result.shape[:2], *result.shape[5 - axes:])
        return result if result.shape[1] > 1 or self.module.target_has_channels else result[:, 0]

    def __call__(self, *inputs):
        import numpy as np
        import torch

        arrays = [value for value in inputs if not isinstance(value, torch.Tensor)]
        tensors = [torch.as_tensor(np.asarray(value)) if not isinstance(value, torch.Tensor) else value for value in inputs]
        with torch.no_grad():
            result = self._own_shape(self.module(*tensors))
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
