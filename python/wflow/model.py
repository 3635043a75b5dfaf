# SPDX-License-Identifier: Apache-2.0
"""A model that wflow-train exported: TorchScript with transform and normalisation inside."""
from __future__ import annotations

import os

from wflow._errors import Error


class Model:
    """Called with a batch of raw samples (numpy or tensor), gives the targets in their own units, as it got them: numpy for numpy."""

    def __init__(self, module):
        self.module = module
        self.targets: list[str] = list(getattr(module, "targets", []))
        self.wflow: str = getattr(module, "wflow", "")

    def __call__(self, *inputs):
        import numpy as np
        import torch

        arrays = [value for value in inputs if not isinstance(value, torch.Tensor)]
        tensors = [torch.as_tensor(np.asarray(value, np.float32)) if not isinstance(value, torch.Tensor) else value for value in inputs]
        with torch.no_grad():
            result = self.module(*tensors)
        return result.numpy() if arrays and isinstance(result, torch.Tensor) else result


def load_model(path: str | os.PathLike) -> Model:
    """Loads model.pt of a training."""
    import torch

    try:
        module = torch.jit.load(os.fspath(path), map_location="cpu")
    except (RuntimeError, ValueError) as error:
        raise Error(f"{os.fspath(path)} is no model that wflow-train exported: {str(error).splitlines()[0]}") from error
    return Model(module.eval())
