#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a network of your own, in PyTorch, on a data set of wflow. Change `network()`; run the cells (# %%) one by one, or all:

    PYTHONPATH=../../python ./train.py CAMPAIGN/data --epochs 20

It leaves network.pt (TorchScript), and prints the errors on the test samples in the targets' own units. In a campaign its losses are shown by `wflow status`.
"""

# %% What is asked for
import argparse
import json
import os

import torch
import wflow
import wflow.torch
from torch import nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("data", help="folder of a data set, with manifest.json")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--output", default="network.pt")
options = parser.parse_args()

# %% The data: fields by name, samples as numpy arrays
data = wflow.open(options.data)
print(data)
fields = {role: [data.fields[name] for name in names] for role, names in (("input", data.inputs), ("target", data.targets))}


# %% Your network
def width(fields_):
    """Numbers of all fields together."""
    return sum(int(torch.tensor(f.shape).prod()) if f.shape else 1 for f in fields_)


class Flat(nn.Module):
    """Several fields side by side as one list of numbers."""

    def forward(self, values):
        parts = values.values() if isinstance(values, dict) else [values]
        return torch.cat([v.reshape(len(v), -1) for v in parts], dim=1)


def network():
    """Numbers in: dense layers. A field in: convolutions of its dimension, then dense layers. What comes out has the targets' shape."""
    field = fields["input"][0]
    space = len(field.layout.replace("C", ""))
    if len(fields["input"]) > 1 or space == 0:
        trunk, features = Flat(), width(fields["input"])
    else:
        convolution, pool = ((nn.Conv1d, nn.AvgPool1d), (nn.Conv2d, nn.AvgPool2d), (nn.Conv3d, nn.AvgPool3d))[space - 1]
        channels = field.shape[0] if field.layout.startswith("C") else 1
        layers, cells = [], list(field.shape[-space:])
        while min(c for c in cells if c > 1) >= 8:
            layers += [convolution(channels, 2 * channels + 6, 3, padding=1), nn.SiLU(), pool([2 if c > 1 else 1 for c in cells])]
            channels, cells = 2 * channels + 6, [c // 2 if c > 1 else 1 for c in cells]
        trunk = nn.Sequential(*layers, nn.Flatten())
        features = channels * int(torch.tensor(cells).prod())
    return nn.Sequential(trunk, nn.Linear(features, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, width(fields["target"])))


def prepared(inputs):
    """A field without an axis of channels gets one."""
    if isinstance(inputs, dict) or fields["input"][0].layout.startswith("C"):
        return inputs
    return inputs.unsqueeze(1)


# %% Training
torch.manual_seed(1)
torch.set_num_threads(1)
model = network()
optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
dataset = wflow.torch.IterableDataset(data.train, batch=min(options.batch, len(data.train)), seed=1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs * len(dataset))
flat = Flat()


def loss_of(split):
    """Mean squared error of normalised targets; 1 is what guessing the mean gives."""
    loader = DataLoader(wflow.torch.MapDataset(split), batch_size=options.batch)
    with torch.no_grad():
        errors = [((model(prepared(x)) - flat(y)) ** 2).mean(dim=1) for x, y in loader]
    return float(torch.cat(errors).mean()) if errors else float("nan")


def report(name, epoch, value):
    """To the campaign, where this runs in one (docs/formats/events.md). It keeps a value a step."""
    if "WFLOW_EVENTS" in os.environ:
        with open(os.environ["WFLOW_EVENTS"], "a") as events:
            events.write(json.dumps({"type": "metric", "name": name, "epoch": epoch, "step": epoch * len(dataset), "value": value}) + "\n")


for epoch in range(options.epochs):
    losses = []
    for inputs, targets in DataLoader(dataset, batch_size=None):
        loss = nn.functional.mse_loss(model(prepared(inputs)), flat(targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        dataset.advance()
    validation = loss_of(data.validation)
    report("train_loss", epoch + 1, sum(losses) / len(losses))
    report("validation_loss", epoch + 1, validation)
    print(f"epoch {epoch + 1}: training loss {sum(losses) / len(losses):.4f}, validation loss {validation:.4f}")

# %% What it has learned
model.eval()
print(f"test loss {loss_of(data.test):.4f} (1: the mean guessed)")
example, _ = next(iter(DataLoader(wflow.torch.MapDataset(data.train), batch_size=1)))
torch.jit.trace(model, (prepared(example),), check_trace=False, strict=False).save(options.output)
