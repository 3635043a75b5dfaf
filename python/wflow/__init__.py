# SPDX-License-Identifier: Apache-2.0
"""Training data, campaigns and models of wflow.

    data = wflow.open("data")                  # a folder with manifest.json
    data.train[0]["x"]                         # numpy; a sample is a dictionary of its fields
    wflow.torch.MapDataset(data.train)         # for torch.utils.data.DataLoader
    wflow.Campaign("campaign").tasks()         # a pandas frame
    wflow.load_model("training/model.pt")      # called with numpy arrays or tensors
"""

from wflow._data import Data, Field, Split, open_data as open
from wflow._errors import DamagedData, Error, NewerFormat
from wflow.campaign import Campaign
from wflow.model import Model, load_model

__all__ = ["Campaign", "DamagedData", "Data", "Error", "Field", "Model", "NewerFormat", "Split", "load_model", "open"]
__version__ = "0.2.0"


def __getattr__(name):
    if name == "torch":  # imported on first use: importing torch takes seconds
        import importlib

        return importlib.import_module("wflow.torch")
    raise AttributeError(f"module 'wflow' has no attribute '{name}'")
