#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`wflow schema`: the studies of this repository keep to it, and it knows exactly the keys that the readers know."""
import copy
import glob
import json
import os
import re
import subprocess
import tempfile
import unittest

import jsonschema
import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WFLOW = os.path.join(os.environ.get("WFLOW_BIN", os.path.join(ROOT, "build/dev/bin")), "wflow")

SCHEMA = json.loads(subprocess.run([WFLOW, "schema"], check=True, capture_output=True, text=True).stdout)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def load(path):
    with open(path, encoding="utf-8") as file:
        return yaml.load(file, yaml.CSafeLoader)


def resolve(schema):
    """Without references, and of several forms the one with properties."""
    if "$ref" in schema:
        return resolve(SCHEMA["$defs"][schema["$ref"].split("/")[-1]])
    for form in schema.get("anyOf", []):
        if "properties" in resolve(form):
            return resolve(form)
    if "properties" not in schema and isinstance(schema.get("items"), dict):
        return resolve(schema["items"])
    return schema


def at(*path):
    """The schema of a place in the study; None is any key of a mapping."""
    schema = SCHEMA
    for key in path:
        schema = resolve(schema)
        schema = schema["additionalProperties"] if key is None else schema["properties"][key]
    return resolve(schema)


def properties(schema, found=None):
    """All names of properties below, however deep."""
    found = set() if found is None else found
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "properties":
                found.update(value)
                for inner in value.values():
                    properties(inner, found)
            elif key not in ("default", "examples"):
                properties(value, found)
    elif isinstance(schema, list):
        for item in schema:
            properties(item, found)
    return found


class Studies(unittest.TestCase):
    def test_is_a_schema(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)

    def test_every_key_is_described(self):
        def look(schema, path):
            if not isinstance(schema, dict):
                return
            for name, value in schema.get("properties", {}).items():
                self.assertTrue("description" in value or "$ref" in value, f"{path}/{name} has no description")
                look(value, f"{path}/{name}")
            for key in ("additionalProperties", "items"):
                look(schema.get(key), path)
            for form in schema.get("anyOf", []):
                look(form, path)
            for name, value in schema.get("$defs", {}).items():
                look(value, name)
        look(SCHEMA, "")

    def test_takes_studies_that_run(self):
        paths = glob.glob(f"{ROOT}/examples/*/*.yaml") + glob.glob(f"{ROOT}/specs/testdata/plans/*.yaml")
        paths += glob.glob(f"{ROOT}/tests/conformance/cases/*/*.yaml")
        studies = [path for path in sorted(paths) if "study" in (load(path) or {})]
        self.assertGreater(len(studies), 8)
        for path in studies:
            strict = subprocess.run([WFLOW, "validate", "--strict", path], capture_output=True, text=True,
                                    cwd=os.path.dirname(path), check=False)
            if "conformance" in path and strict.returncode != 0:
                continue  # wrong on purpose, or with keys that are warned of
            self.assertEqual(strict.returncode, 0, f"{path}: {strict.stderr}")
            errors = [f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
                      for error in VALIDATOR.iter_errors(load(path))]
            self.assertEqual(errors, [], path)

    def test_refuses_what_the_readers_refuse(self):
        for name, place in {"unknown_keys": None, "step_words": ["study", 0, "run", "priority"],
                            "outputs": ["study", 0, "run", "outputs"], "missing_study": [], "step_without_kind": ["study", 0]}.items():
            study = load(f"{ROOT}/specs/testdata/errors/{name}.yaml")
            places = [list(error.absolute_path) for error in VALIDATOR.iter_errors(study)]
            self.assertTrue(places, name)
            if place is not None:
                self.assertTrue(any(found[: len(place)] == place for found in places), f"{name}: {places}")


STEP = {"name": "a", "run": {"cmd": "x $(a)"}}
STUDY = {"description": {"name": "n"}, "samples": {"design": "uniform", "count": 9, "parameters": {"a": [0, 1]}},
         "study": [STEP]}
CONVERT = {"name": "c", "convert": {"from": "a", "file": "x.h5"}}


def study_with(path, value):
    """STUDY with `value` in that place."""
    study = copy.deepcopy(STUDY)
    place = study
    for key, following in zip(path, path[1:]):
        if isinstance(place, list):
            while len(place) <= key:
                place.append({})
            place = place[key]
        else:
            place = place.setdefault(key, [] if isinstance(following, int) else {})
    if isinstance(place, list):
        place.append(value)
    else:
        place[path[-1]] = value
    return study


# Schema, place in the study, and the least that must stand there in each variant of it.
PLACES = [
    (at(), [], [STUDY]),
    (at("description"), ["description"], [{"name": "n"}]),
    (at("env"), ["env"], [{}]),
    (at("env", "dependencies"), ["env", "dependencies"], [{}]),
    (at("env", "dependencies", "paths"), ["env", "dependencies", "paths"], [{"name": "p", "path": "/"}]),
    (at("env", "dependencies", "git"), ["env", "dependencies", "git"], [{"name": "p", "path": "/", "url": "u"}]),
    (at("batch"), ["batch"], [{}]),
    (at("parameters", None), ["parameters", "P"], [{"values": [1]}]),
    (at("samples"), ["samples"], [
        STUDY["samples"], {"design": "grid", "parameters": {"a": [0, 1]}},
        {"design": "list", "columns": ["a"], "values": [[1]]},
        {"file": "none.csv", "column_labels": ["a"], "generate": {"cmd": "x"}}]),
    (at("samples", "generate"), ["samples"], None),
    (at("samples", "parameters", None), ["samples", "parameters", "a"], [
        {"low": 0, "high": 1}]),
    (at("workers", None), ["workers", "w"], [{}]),
    (at("workers", None, "batch"), ["workers", "w", "batch"], [{}]),
    (at("iterate"), ["iterate"], [{"max": 3}]),
    (at("merlin"), ["merlin"], [{}]),
    (at("merlin", "resources"), ["merlin", "resources"], [{}]),
    (at("study"), ["study", 0], [STEP]),
    (at("study", "run"), ["study", 0, "run"], [STEP["run"]]),
    (at("study", "run", "batch"), ["study", 0, "run", "batch"], [{}]),
    (at("study", "outputs"), ["study", 0, "outputs"], [{"file": "x"}]),
    (at("study", "convert"), ["study", 1, "convert"], [CONVERT["convert"]]),
    (at("study", "convert", "raw"), ["study", 1, "convert", "raw"], [{"dtype": "int8"}]),
    (at("study", "convert", "gadget"), ["study", 1, "convert", "gadget"], [{"grid": 8}]),
    (resolve(at("study", "convert")["properties"]["inputs"]["anyOf"][0]["additionalProperties"]),
     ["study", 1, "convert", "inputs", "u"], [{"file": "u.npy"}]),
    (at("study", "convert", "split"), ["study", 1, "convert", "split"], [{}]),
    (at("study", "propose"), ["study", 1, "propose"], [{"from": "a"}]),
    (at("study", "plugin"), ["study", 1, "plugin"], [{"library": "x.so"}, {"command": "./x"}]),
    (at("study", "train"), ["study", 2, "train"], [{"data": "c"}]),
    (at("study", "train", "model"), ["study", 2, "train", "model"], [{}, {"layers": ["flatten"]}, {"name": "cycle"}, {"name": "inference"}]),
    (at("study", "train", "model", "layers"), ["study", 2, "train", "model", "layers", 0], [
        {"convolution": 4}, {"embedding": 4}, {"slice": [0, 1]}, {"lstm": 4}, {"spectral_convolution": 4}, {"positions": None}, {"trace_density": 4, "from": ["a", "b"]}]),
    (at("study", "train", "loss"), ["study", 2, "train", "loss"], [{}, {"name": "focal"}, {"name": "quantile"}, {"name": "mixture"}, {"name": "detection"}]),
    (at("study", "train", "heads"), ["study", 2, "train", "heads", 0], [{"name": "a", "targets": ["b"]}]),
    (at("study", "train", "alternate"), ["study", 2, "train", "alternate", 0], [{"heads": ["a"]}]),
    (at("study", "train", "alternate", "gradient_penalty"), ["study", 2, "train", "alternate", 0, "gradient_penalty"], [{"of": "a", "from": "b"}]),
    (resolve(at("study", "train")["properties"]["parts"]["additionalProperties"]), ["study", 2, "train", "parts", "encoder"], [{}]),
    (at("study", "train", "stage"), ["study", 2, "train", "stage"], [{"local": "/scratch"}]),
    (at("study", "train", "augment"), ["study", 2, "train", "augment"], [{"noise": 0.01}]),
    (at("study", "train", "transform"), ["study", 2, "train", "transform"], [{"log": 0.1}]),
    (at("study", "train", "optimizer"), ["study", 2, "train", "optimizer"], [{}]),
    (at("study", "train", "gradients"), ["study", 2, "train", "gradients"], [{}]),
    (at("study", "train", "schedule"), ["study", 2, "train", "schedule"], [{}]),
    (at("study", "train", "checkpoint"), ["study", 2, "train", "checkpoint"], [{}]),
    (at("study", "train", "search"), ["study", 2, "train", "search"], [{"rungs": [1, 2]}]),
    (at("study", "train", "guard"), ["study", 2, "train", "guard"], [{}]),
    (at("study", "train", "deterministic"), ["study", 2, "train", "deterministic"], [{}]),
    (at("study", "train", "tournament"), ["study", 2, "train", "tournament"], [{"trainers": 2}]),
    (at("study", "train", "groups"), ["study", 2, "train", "groups"], [{"steps": 2}]),
    (at("study", "train", "follow"), ["study", 2, "train", "follow"], [{"stages": 2}]),
    (at("study", "train", "groups", "outer"), ["study", 2, "train", "groups", "outer"], [{}]),
]


class Keys(unittest.TestCase):
    def refused(self, path, least, keys):
        """The keys of the schema that the readers call unknown in that place. A key without a value is absent, but
        must be a known one."""
        value = {key: None for key in keys}
        value.update(copy.deepcopy(least))
        for kind in ("convert", "train", "plugin", "propose"):
            if path == ["study", 0]:
                value.pop(kind, None)
        study = study_with(path, value) if path else value
        if "study" in study and len(path) > 1 and path[0] == "study" and path[1] > 0 and not {"plugin", "propose"} & set(path):
            study["study"][1].setdefault("name", "c")
            study["study"][1].setdefault("convert", {})
            for key, default in CONVERT["convert"].items():
                study["study"][1]["convert"].setdefault(key, default)
            if path[1] > 1:
                study["study"][2].setdefault("name", "t")
                study["study"][2]["train"].setdefault("data", "c")
        if "propose" in path:
            study["study"][1].setdefault("name", "p")
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/study.yaml", "w", encoding="utf-8") as file:
                json.dump(study, file)
            done = subprocess.run([WFLOW, "validate", "--strict", f"{folder}/study.yaml"], capture_output=True, text=True,
                                  check=False)
        self.assertIn(done.returncode, (0, 3), done.stderr)
        return set(re.findall(r"unknown key '([^']*)'", done.stderr))

    def test_readers_know_every_key_of_the_schema(self):
        for schema, path, variants in PLACES:
            if variants is None:
                continue
            keys = set(schema["properties"])
            unknown = set(keys)
            for least in variants:
                if path == ["samples", "parameters", "a"]:
                    keys = keys - {"points"}  # the grid's, in its own variant
                unknown &= self.refused(path, least, keys - set(least))
            self.assertEqual(unknown, set(), f"{path}: in the schema, but unknown to wflow validate")

    def test_readers_do_call_keys_unknown(self):
        for schema, path, variants in PLACES:
            if variants is not None and path != ["parameters", "P"]:
                self.assertEqual(self.refused(path, variants[0], {"nosuchkey"}), {"nosuchkey"}, path)

    # Readers ask for keys by name, besides those of their tables; these must be in the schema, too.
    CALLS = re.compile(r"(?:\.|->)(?:find|required|required_string|string|strings|integer|integers|real|reals|boolean|choice|"
                       r"seconds|bytes|has|mark_of)\(\s*\"([^\"]+)\"|\b(?:items|place_of_key)\(\"([^\"]+)\"")
    LISTS = re.compile(r"(?:for \(const (?:char\*|std::string_view) \w+ :|kOtherKeys =)\s*\{([^}]*)\}")
    # Asked of something else than a mapping of the study.
    NOT_KEYS = {"%%", "$(", "OUTPUT_PATH", "walltime", "WORKSPACE"}
    # The plan asks the train block for them (blocks.cc), and writes the second one itself.
    NOT_KEYS |= {"search", "rung"}

    def asked(self, paths):
        found = set()
        for path in paths:
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for match in self.CALLS.finditer(text):
                found.update(key for key in match.groups() if key)
            for match in self.LISTS.finditer(text):
                found.update(re.findall(r"\"([^\"]+)\"", match.group(1)))
        return found - self.NOT_KEYS

    def test_the_schema_knows_every_key_of_the_readers(self):
        definitions = SCHEMA["$defs"]
        study = {key: value for key, value in SCHEMA.items() if key != "$defs"}
        study["defs"] = {key: value for key, value in definitions.items() if key not in ("convert", "train")}
        sources = glob.glob(f"{ROOT}/specs/study/read_*.cc") + [f"{ROOT}/specs/study/study.cc", f"{ROOT}/specs/study/blocks.cc"]
        known = properties(study)
        asked = self.asked(sources) - {"split", "order"}  # blocks.cc completes the convert block of an older campaign
        self.assertGreater(len(asked), 15, sources)
        self.assertEqual(asked - known, set(), f"{sources}: read, but not in the schema")



class Editors(unittest.TestCase):
    """`wflow schema --vscode` and `--modeline`."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write("lens.yaml", "study:\n- name: a\n")
        self.write("other.yaml", "a: 1\n")

    def write(self, name, text):
        os.makedirs(os.path.dirname(os.path.join(self.folder, name)), exist_ok=True)
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def schema(self, *words, code=0):
        done = subprocess.run([WFLOW, "schema", *words], capture_output=True, text=True, cwd=self.folder, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_vscode(self):
        self.schema("--vscode")
        settings = json.loads(self.read(".vscode/settings.json"))
        self.assertEqual(settings, {"yaml.schemas": {"./.vscode/wflow.schema.json": ["study.yaml", "lens.yaml"]}})
        self.assertEqual(json.loads(self.read(".vscode/wflow.schema.json")), SCHEMA)
        self.assertIn("already names", self.schema("--vscode"))

    def test_settings_of_the_user_stay(self):
        self.write(".vscode/settings.json", '{"z": 1, "yaml.schemas": {"mine.json": "a.yaml"}, "a": [2]}')
        self.schema("--vscode", "runs/*.yaml")
        settings = json.loads(self.read(".vscode/settings.json"))
        self.assertEqual(list(settings), ["z", "yaml.schemas", "a"])
        self.assertEqual(settings["yaml.schemas"], {"mine.json": "a.yaml", "./.vscode/wflow.schema.json": ["runs/*.yaml"]})
        for text in ('{\n  // mine\n  "a": 1\n}\n', "[1]", '{"yaml.schemas": 3}'):
            self.write(".vscode/settings.json", text)
            self.assertIn('"yaml.schemas": {"./.vscode/wflow.schema.json":["study.yaml","lens.yaml"]}', self.schema("--vscode"))
            self.assertEqual(self.read(".vscode/settings.json"), text)

    def test_modeline(self):
        line = "# yaml-language-server: $schema=wflow.schema.json\n"
        self.schema("--modeline", "lens.yaml")
        self.assertEqual(self.read("lens.yaml"), line + "study:\n- name: a\n")
        self.assertEqual(json.loads(self.read("wflow.schema.json")), SCHEMA)
        self.assertIn("has the line already", self.schema("--modeline", "lens.yaml"))
        self.assertEqual(self.read("lens.yaml").count(line), 1)
        self.assertIn("name the studies", self.schema("--modeline", code=2))
        self.assertIn("files go with --vscode or --modeline", self.schema("lens.yaml", code=2))


if __name__ == "__main__":
    unittest.main()
