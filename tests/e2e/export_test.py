# SPDX-License-Identifier: Apache-2.0
"""`wflow export --ro-crate`: the properties that RO-Crate 1.1 requires, references that resolve, checksums that are right."""

import csv
import hashlib
import json
import unittest
from pathlib import Path
from urllib.parse import unquote

from wflow_test import TASKS_FAILED, USAGE, CampaignTest, Gate, gated_study

STUDY = """description: {{name: a crate, description: what was run}}
env: {{variables: {{OUTPUT_PATH: "{folder}"}}}}
samples: {{file: table.csv}}
study:
  - name: work
    sources: [model.py]
    run: {{cmd: "test $(x) != 2 && echo $(x) > result.txt && wflow event artifact kind=model path=result.txt", max_retries: 0}}
"""
TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"
CONTEXT_TYPES = {"CreativeWork", "Dataset", "File", "SoftwareSourceCode", "ComputationalWorkflow", "ComputerLanguage", "Person",
                 "SoftwareApplication", "CreateAction", "OrganizeAction"}


def as_list(value):
    return value if isinstance(value, list) else [value]


class RoCrate(CampaignTest):
    def references(self, value):
        if isinstance(value, dict):
            return [value["@id"]] if set(value) == {"@id"} else [i for v in value.values() for i in self.references(v)]
        return [i for v in value for i in self.references(v)] if isinstance(value, list) else []

    def check_tables(self):
        """Each task stands beside the values of its sample."""
        folder = self.folder / "tables"
        self.wflow("export", code=USAGE)
        self.wflow("export", "--csv", folder)
        tables = {path.stem: list(csv.DictReader(path.read_text().splitlines())) for path in folder.iterdir()}
        self.assertEqual(set(tables), {"tasks", "samples", "steps"})
        self.assertEqual([row["x"] for row in tables["samples"]], ["1", "2", "3"])
        values = {row["task"]: row["x"] for row in tables["tasks"] if row["x"]}
        self.assertEqual(sorted(values.values()), ["1", "2", "3"])
        self.assertTrue(tables["steps"])

    def test_the_crate(self):
        (self.folder / "table.csv").write_text("x\n1\n2\n3\n")
        (self.folder / "model.py").write_text("print(1)\n")
        self.wflow("run", self.study(STUDY.format(folder=self.folder)), "-j", "2", code=TASKS_FAILED)
        crate = self.folder / "crate"
        self.wflow("export", "--ro-crate", crate, "--license", "CC-BY-4.0")
        self.wflow("export", "--ro-crate", crate, code=USAGE)
        document = json.loads((crate / "ro-crate-metadata.json").read_text())
        self.assertIn("https://w3id.org/ro/crate/1.1/context", document["@context"])
        graph = {entity["@id"]: entity for entity in document["@graph"]}
        self.assertEqual(len(graph), len(document["@graph"]), "an identifier stands twice")
        for entity in graph.values():
            self.assertTrue(set(as_list(entity["@type"])) <= CONTEXT_TYPES, entity)
            for reference in self.references({k: v for k, v in entity.items() if k != "@id"}):
                known = reference in graph or reference.startswith(("https://w3id.org/ro/crate/", "http://schema.org/"))
                self.assertTrue(known, f"{entity['@id']} names {reference}")
        self.check_tables()
        descriptor, root = graph["ro-crate-metadata.json"], graph["./"]
        self.assertEqual((descriptor["conformsTo"]["@id"], descriptor["about"]["@id"]), ("https://w3id.org/ro/crate/1.1", "./"))
        self.assertEqual((root["name"], root["description"], root["license"]["@id"]),
                         ("a crate", "what was run", "https://spdx.org/licenses/CC-BY-4.0"))
        self.assertRegex(root["datePublished"], TIME)
        self.check_files(crate, graph, root)
        run = graph["#run"]
        self.assertEqual(run["actionStatus"]["@id"], "http://schema.org/FailedActionStatus")
        self.assertRegex(run["startTime"] + run["endTime"], TIME[:-1] + TIME[1:])
        self.assertEqual(graph[run["agent"]["@id"]]["@type"], "Person")
        self.assertIn("ComputationalWorkflow", graph[run["instrument"]["@id"]]["@type"])
        self.assertEqual({Path(i["@id"]).name for i in run["object"]}, {"table.csv", "model.py"})
        self.assertEqual(graph["#step-work"]["description"], "2 of 3 tasks done, 1 failed")
        self.assertEqual(len([i for i in run["result"] if i["@id"].endswith("result.txt")]), 2)

    def test_a_cancelled_run_is_not_complete(self):
        gate = Gate(self.folder, 0)
        run = self.start("run", self.study(gated_study(gate, 6)), "-j", "1")
        self.wait_for_campaign(run)
        self.wait(lambda: gate.waiting() == 1, "the first task runs", run)
        self.wflow("cancel", "--step", "work", "--range", "4:")
        gate.open()
        run.wait()
        crate = self.folder / "crate"
        self.wflow("export", self.campaign(), "--ro-crate", crate)
        graph = {entity["@id"]: entity for entity in json.loads((crate / "ro-crate-metadata.json").read_text())["@graph"]}
        self.assertEqual(graph["#step-work"]["description"], "4 of 6 tasks done, 0 failed")
        for action in ("#run", "#step-work"):
            self.assertEqual(graph[action]["actionStatus"]["@id"], "http://schema.org/FailedActionStatus")

    def check_files(self, crate, graph, root):
        parts = {part["@id"] for part in root["hasPart"]}
        files = [entity for entity in graph.values() if "File" in as_list(entity["@type"])]
        self.assertGreaterEqual(len(files), 6)
        for entity in files:
            self.assertIn(entity["@id"], parts)
            path = unquote(entity["@id"])
            data = (Path(path.removeprefix("file://")) if path.startswith("file://") else crate / path).read_bytes()
            self.assertEqual(entity["contentSize"], str(len(data)))
            self.assertEqual(entity["sha256"], hashlib.sha256(data).hexdigest(), entity["@id"])
        inside = {str(path.relative_to(crate)) for path in crate.rglob("*") if path.is_file()} - {"ro-crate-metadata.json"}
        self.assertEqual(inside, {unquote(part) for part in parts if not part.startswith("file://")})


if __name__ == "__main__":
    unittest.main()
