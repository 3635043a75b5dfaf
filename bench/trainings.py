# SPDX-License-Identifier: Apache-2.0
"""What the benches of the trainer share: small boxes as data, runs of wflow-train, checkpoints as arrays."""

import json
import os
import pathlib
import subprocess

import numpy

ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def make_boxes(root, convert, train, validation=6, test=6, cells=8, channels=1, dtype="f4"):
    """Noisy boxes whose amplitude and slope are to be learned, converted to root/shards. As "u1", they are scaled to bytes."""
    rng = numpy.random.default_rng(1)
    rows = ["id,file,amplitude,slope"]
    ramp = numpy.linspace(-1, 1, cells, dtype="f4")[:, None, None]
    for i in range(train + validation + test):
        amplitude, slope = rng.uniform(0.5, 1.5), rng.uniform(-1, 1)
        noise = rng.standard_normal(size=(channels, cells, cells, cells), dtype="f4")
        box = amplitude * noise + slope * ramp
        numpy.save(root / f"{i}.npy", numpy.clip(100 + 20 * box, 0, 255).astype("u1") if dtype == "u1" else box.astype(dtype))
        rows.append(f"{i},{root}/{i}.npy,{amplitude},{slope}")
    (root / "table.csv").write_text("\n".join(rows) + "\n")
    (root / "convert.yaml").write_text(
        f"samples: {root}/table.csv\ntargets: [amplitude, slope]\nshard_samples: 64\n"
        f"split: {{train: {train}, validation: {validation}, test: {test}, seed: 3}}\noutput: {root}/shards\nname: boxes\n")
    subprocess.run([convert, root / "convert.yaml"], check=True, stdout=subprocess.DEVNULL)


class Training:
    """One configuration of wflow-train with a folder of its own."""

    def __init__(self, root, train, name, ranks=1, **keys):
        self.output, self.path, self.ranks, self.program = root / name, root / f"{name}.yaml", ranks, train
        settings = {"data": str(root / "shards"), "ranks": ranks, **keys, "output": str(self.output)}
        self.path.write_text(json.dumps(settings))

    def command(self, *options):
        # Ranks that are bound to cores would share them with the other programs' ranks.
        launcher = ["mpirun.openmpi", "-n", str(self.ranks), "--oversubscribe", "--bind-to", "none"] if self.ranks > 1 else []
        return [*launcher, str(self.program), str(self.path), *options]

    def run(self, *options):
        done = subprocess.run(self.command(*options), capture_output=True, text=True, env=ENVIRONMENT)
        if done.returncode != 0:
            raise RuntimeError(f"{self.path}: {done.stdout}{done.stderr}")
        return done

    def checkpoints(self):
        """{step: path} of what is there now."""
        folder = self.output / "checkpoints"
        return {int(path.name[5:17]): path for path in folder.glob("step-*.wfck")} if folder.exists() else {}

    def result(self):
        return json.loads((self.output / "result.json").read_text())

    def losses(self):
        """A sample's loss at each step of a first epoch, but its last step, from checkpoints of every step."""
        sums = [(0, 0)]
        for _, path in sorted(self.checkpoints().items()):
            header, _ = read_checkpoint(path)
            if header["epoch"] == 0:
                sums.append((header["epoch_loss"], header["epoch_samples"]))
        return numpy.diff([total for total, _ in sums]) / numpy.diff([samples for _, samples in sums])


def read_checkpoint(path):
    """Its header, and its arrays as {(kind, name): values}."""
    data = pathlib.Path(path).read_bytes()
    length = int.from_bytes(data[16:24], "little")
    header = json.loads(data[24:24 + length])
    begin = (24 + length + 63) // 64 * 64
    return header, {(a["kind"], a["name"]): numpy.frombuffer(data, "<f4", int(numpy.prod(a["shape"])), begin + a["offset"])
                    for a in header["arrays"]}
