# SPDX-License-Identifier: Apache-2.0
"""The durable formats as the sources have them, and the stored campaigns: shared by `make` and tests/e2e/formats_test.py."""

import re
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
CAMPAIGNS = HERE / "campaigns"
ARCHIVE = "campaign.tar.xz"

# Each constant that says of which version a durable file is: where it is written down, and a stored file that has it.
DURABLE = {
    "database": ("engine/store/schema.h", r"kSchemaVersion = (\d+)", ".wflow/campaign.db"),
    "study copy": ("specs/plan/workspace.cc", r"kFormatVersion = (\d+)", ".wflow/studies/1/options.json"),
    "split order": ("specs/study/study.h", r"split_version = (\d+)", ".wflow/studies/1/options.json"),
    "keys": ("engine/wire/keys.cc", r"kKeysFormat = (\d+)", ".wflow/keys.json"),
    "worker journal": ("engine/wire/worker_journal.cc", r'kMark = "(\w+)"', ".wflow/workers/*.journal"),
    "packed output": ("steps/packed_output.cc", r'kMagic = "(\w+)"', "refine/packed/*.index"),
    "manifest, block record": ("converters/shards/manifest.h", r"kFormatVersion = (\d+)", "data/manifest.json"),
    "shard": ("converters/shards/manifest.h", r"kFormatVersion = (\d+)", "data/train/shard-00000.h5"),
    "shard (Python)": ("python/wflow/_shard.py", r"(?m)^FORMAT = (\d+)", "data/train/shard-00000.h5"),
    "checkpoint, magic": ("trainer/training/checkpoint.cc", r'kMagic = "(\w+)"', "long/checkpoints/*.wfck"),
    "checkpoint": ("trainer/training/checkpoint.h", r"kCheckpointVersion = (\d+)", "long/checkpoints/*.wfck"),
    "predictions.h5": ("trainer/training/prediction_file.h", r"kPredictionFormat = (\d+)", "quick/predictions.h5"),
    "result.json": ("trainer/training/results.cc", r'"wflow_format", (\d+)', "quick/member-1/result.json"),
    "result.json of an ensemble": ("trainer/training/members.cc", r'"wflow_format", (\d+)', "quick/result.json"),
    "search.json": ("trainer/training/search.cc", r'"wflow_format", (\d+)', "tune/search.json"),
}

# Constants that look like those above, of what no later program reads from a disk.
NOT_DURABLE = {
    ("engine/monitor/status.h", "kStatusVersion"),  # answers to programs: docs/formats/status.md
    ("cli/commands/usage.cc", "kUsageVersion"),
    ("cli/observe/hooks.cc", "version"),
    ("engine/wire/messages.h", "kProtocol"),  # messages; a journal's records have the mark of the journal
    ("engine/wire/keys.cc", "format"),        # the address of a living coordinator
    ("converters/load/loader_c.cc", "kVersion"),  # a library's interface
    ("python/wflow/_loader.py", "_VERSION"),
    ("trainer/model/model_export.h", "kOnnxVersion"),  # formats of others
    ("trainer/training/tensorboard_log.cc", "kFileVersion"),
    ("trainer/training/pass_times.cc", "kPassTimesFormat"),  # a cache: a file of another format is measured again
    ("trainer/analysis/analysis.h", "kAnalysisFormat"),  # `wflow analyze` makes it again; a report without it is a report
    ("trainer/inference/infer.h", "kInferenceFormat"),  # `wflow infer` makes it again
    ("traces/address_table.h", "kAddressFormat"),  # durable; the next stored campaign is to have a training on traces
    ("traces/proposal_network.h", "kProposalFormat"),
    ("traces/inference.h", "kRequestFormat"),  # `wflow infer` makes it again
    ("base/npy.cc", "kMagic"),
    ("engine/batch/slurm.cc", "kMark"),  # texts, not formats
    ("base/file.cc", "kTemporaryMark"),
    ("cli/campaign/campaigns.cc", "kExecMark"),  # an empty file
    ("trainer/training/pictures.cc", "wflow_format"),  # a report without these pictures is a report
}

CONSTANT = re.compile(r'\b(k\w*(?:Format|Version|Magic|Mark|Protocol)|\w+_version|_?(?:FORMAT|VERSION)) = (?:"[^"]*"|\d)'
                      r'|\{"(wflow_format|format|version)", \d')
MODULES = ("base", "cli", "converters", "engine", "plugin", "python/wflow", "specs", "steps", "traces", "trainer", "workers")


def formats_now():
    """The durable formats by name, as the sources have them."""
    found = {}
    for name, (file, pattern, _) in DURABLE.items():
        match = re.search(pattern, (SOURCE / file).read_text())
        if not match:
            raise LookupError(f"{file} has no {pattern}: correct DURABLE in tests/formats/stored.py")
        found[name] = match[1]
    return found


def unlisted_constants():
    """Those of the sources that neither DURABLE nor NOT_DURABLE names, as "file: text"."""
    found = []
    for path in (path for module in MODULES for path in (SOURCE / module).rglob("*")):
        if path.suffix not in (".h", ".cc", ".py") or re.search(r"_test\.|fuzz|test_", path.name):
            continue
        file = str(path.relative_to(SOURCE))
        for line in path.read_text().splitlines():
            match = CONSTANT.search(line)
            durable = any(file == at and re.search(pattern, line) for at, pattern, _ in DURABLE.values())
            if match and not durable and (file, match[1] or match[2]) not in NOT_DURABLE:
                found.append(f"{file}: {line.strip()}")
    return found


def stored_versions():
    """The folders of the stored campaigns, the newest last."""
    folders = [path.parent for path in CAMPAIGNS.glob(f"*/{ARCHIVE}")]
    return sorted(folders, key=lambda folder: [int(number) for number in re.findall(r"\d+", folder.name)])


def unpack(version, folder):
    """The campaign of a stored version, below `folder`."""
    subprocess.run(["tar", "-xJf", str(version / ARCHIVE), "-C", str(folder), "--no-same-owner"], check=True)
    return next(folder.glob("stored_*"))
