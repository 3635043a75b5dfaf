# SPDX-License-Identifier: Apache-2.0
"""Simulators that are programs of their own: in Python with wflow.trace, or peers that speak PPX with flatbuffers' own code, or break it."""

import json
import os
import signal
import subprocess
from pathlib import Path

import h5py
import numpy

from traces_test import DATA_SET, KINDS, MODELS, STUDY, TRAIN, Traces
from wflow_test import DATA, SOURCE, SPEC, TASKS_FAILED, USAGE, CampaignTest, read_text, wait_for

PYTHON = "/usr/bin/python3"
COMMAND_STUDY = STUDY.replace("library: {library}, symbol: {symbol}", "command: '{command}'")

# gaussian, branching and replacing are those of plugin/testdata/trace_models.c.
MODELS_IN_PYTHON = f"""
import sys
sys.path.insert(0, "{SOURCE}/python")
from wflow import trace

def gaussian():
    mu = trace.sample("mu", trace.normal(1, 5 ** 0.5))
    for _ in range(2):
        trace.observe("y", trace.normal(mu, 2 ** 0.5))
    trace.tag("square", mu * mu)

def branching():
    if trace.sample("branch", trace.categorical([0.4, 0.6])) == 0:
        total = trace.sample("a", trace.normal(0, 1))
    else:
        total = trace.sample("b", trace.normal(1, 1))
        total += trace.sample("c", trace.uniform(0, 4))
    trace.observe("y", trace.normal(total, 0.5))
    trace.tag("sum", total)

def replacing():
    bound = trace.sample("bound", trace.uniform(-1, 1.5))
    x = bound
    while not x > bound:
        x = trace.sample("x", trace.normal(0, 1), replace=True)
    trace.observe("y", trace.normal(x, 0.3))

def kinds():
    trace.sample("normal", trace.normal([0, 10], 1))
    trace.sample("uniform", trace.uniform(0, 1), control=False)
    trace.sample("uniform", trace.uniform(5, 6), control=False)
    trace.sample("categorical", trace.categorical([[1, 0], [0, 1], [1, 0]]))
    trace.sample("poisson", trace.poisson(3))
    trace.sample("exponential", trace.exponential(2))
    trace.sample("gamma", trace.gamma(2, 1))
    share = trace.sample("beta", trace.beta(2, 3))
    trace.observe("y", trace.normal([[1, 2, 3], [4, 5, 6]], 1e-9))
    return [share, 1 - share]

trace.serve(globals()[sys.argv[1]])
"""

# The code of flatbuffers' own packages, as pyprob's: without a file identifier, and names only where there are some.
PEER = """
import sys
sys.path.insert(0, sys.argv[1])
import flatbuffers
import zmq
from wflow.ppx import Bernoulli, HandshakeResult, Message, MessageBody, Normal, Observe, RunResult, Sample, SampleResult, Tag, Tensor
from wflow.ppx.Distribution import Distribution

socket = zmq.Context().socket(zmq.REP)
socket.bind(sys.argv[2])

def tensor(builder, values, shape):
    Tensor.TensorStartDataVector(builder, len(values))
    for value in reversed(values):
        builder.PrependFloat64(value)
    data = builder.EndVector()
    Tensor.TensorStartShapeVector(builder, len(shape))
    for length in reversed(shape):
        builder.PrependInt32(length)
    shape = builder.EndVector()
    Tensor.TensorStart(builder)
    Tensor.TensorAddData(builder, data)
    Tensor.TensorAddShape(builder, shape)
    return Tensor.TensorEnd(builder)

def send(builder, kind, body):
    Message.MessageStart(builder)
    Message.MessageAddBodyType(builder, kind)
    Message.MessageAddBody(builder, body)
    builder.Finish(Message.MessageEnd(builder))
    socket.send(bytes(builder.Output()))

def receive():
    message = Message.Message.GetRootAs(socket.recv(), 0)
    return message.BodyType(), message.Body()

def normal(builder, mean, deviation):
    mean, deviation = tensor(builder, mean, []), tensor(builder, [deviation], [1])
    Normal.NormalStart(builder)
    Normal.NormalAddMean(builder, mean)
    Normal.NormalAddStddev(builder, deviation)
    return Normal.NormalEnd(builder)

def draw(address, name, kind, make):
    builder = flatbuffers.Builder(64)
    distribution = make(builder)
    address = builder.CreateString(address)
    name = builder.CreateString(name)
    Sample.SampleStart(builder)
    Sample.SampleAddAddress(builder, address)
    Sample.SampleAddName(builder, name)
    Sample.SampleAddDistributionType(builder, kind)
    Sample.SampleAddDistribution(builder, distribution)
    send(builder, MessageBody.MessageBody.Sample, Sample.SampleEnd(builder))
    kind, body = receive()
    assert kind == MessageBody.MessageBody.SampleResult
    result = SampleResult.SampleResult()
    result.Init(body.Bytes, body.Pos)
    return result.Result().DataAsNumpy(), result.Result().ShapeLength()

def bernoulli(builder):
    probs = tensor(builder, [0.0, 1.0, 1.0], [3])
    Bernoulli.BernoulliStart(builder)
    Bernoulli.BernoulliAddProbs(builder, probs)
    return Bernoulli.BernoulliEnd(builder)

def run():
    x, axes = draw("[main+0x12]", "", Distribution.Normal, lambda builder: normal(builder, [2.0], 0.5))
    assert len(x) == 1 and axes == 0
    coins, axes = draw("[main+0x34]", "coin", Distribution.Bernoulli, bernoulli)
    assert list(coins) == [0, 1, 1] and axes == 1
    builder = flatbuffers.Builder(64)
    distribution = normal(builder, [x[0]], 1.0)
    name = builder.CreateString("y")
    value = tensor(builder, [7.0], [])
    Observe.ObserveStart(builder)
    Observe.ObserveAddName(builder, name)
    Observe.ObserveAddDistributionType(builder, Distribution.Normal)
    Observe.ObserveAddDistribution(builder, distribution)
    Observe.ObserveAddValue(builder, value)
    send(builder, MessageBody.MessageBody.Observe, Observe.ObserveEnd(builder))
    assert receive()[0] == MessageBody.MessageBody.ObserveResult
    builder = flatbuffers.Builder(64)
    name = builder.CreateString("twice")
    value = tensor(builder, [2 * x[0]], [])
    Tag.TagStart(builder)
    Tag.TagAddName(builder, name)
    Tag.TagAddValue(builder, value)
    send(builder, MessageBody.MessageBody.Tag, Tag.TagEnd(builder))
    assert receive()[0] == MessageBody.MessageBody.TagResult

while True:
    kind, body = receive()
    builder = flatbuffers.Builder(64)
    if kind == MessageBody.MessageBody.Handshake:
        system, model = builder.CreateString("peer"), builder.CreateString("model")
        HandshakeResult.HandshakeResultStart(builder)
        HandshakeResult.HandshakeResultAddSystemName(builder, system)
        HandshakeResult.HandshakeResultAddModelName(builder, model)
        send(builder, MessageBody.MessageBody.HandshakeResult, HandshakeResult.HandshakeResultEnd(builder))
    else:
        assert kind == MessageBody.MessageBody.Run
        run()
        builder = flatbuffers.Builder(64)
        RunResult.RunResultStart(builder)
        send(builder, MessageBody.MessageBody.RunResult, RunResult.RunResultEnd(builder))
"""

# Each odd run breaks the protocol in a way of its own, in the middle; the number of runs is kept in a file.
BREAKER = f"""
import os, signal, sys
sys.path.insert(0, "{SOURCE}/python")
from wflow import _ppx, trace

def send(data):
    socket = trace._engine.socket
    socket.send(data)
    socket.recv()

def close():
    trace._engine.socket.close()
    signal.pause()

def several_parts():
    trace._engine.socket.send_multipart([b"a", b"b"])
    trace._engine.socket.recv()

tensor = _ppx.tensor([1.0], [])
FAULTS = [
    lambda: sys.exit(3),
    lambda: os.kill(os.getpid(), signal.SIGKILL),
    close,
    lambda: send(b"no message of flatbuffers at all"),
    several_parts,
    lambda: send(_ppx.message(_ppx.RESET)),
    lambda: send(_ppx.message(_ppx.HANDSHAKE_RESULT)),
    lambda: send(_ppx.message(13)),
    lambda: send(_ppx.message(_ppx.SAMPLE, _ppx.Table({{0: "w", 2: 11, 3: _ppx.Table({{0: tensor, 1: tensor}})}}))),
    lambda: send(_ppx.message(_ppx.SAMPLE, _ppx.Table({{0: "u", 2: 99, 3: _ppx.Table({{}})}}))),
    lambda: send(_ppx.message(_ppx.SAMPLE, _ppx.Table({{2: 4, 3: _ppx.Table({{0: tensor}})}}))),
    lambda: send(_ppx.message(_ppx.SAMPLE, _ppx.Table({{0: "s", 2: 4, 3: _ppx.Table({{0: _ppx.tensor([1.0], [5])}})}}))),
    lambda: trace.sample("deviation", trace.normal(0, -1)),
    lambda: trace.observe("z", trace.normal(0, 1)),
    lambda: trace.tag("t", float("nan")),
    lambda: trace.sample("several", trace.normal([1, 2], [1, 2, 3])),
]

def model():
    with open("runs", "a+") as file:
        file.seek(0)
        number = len(file.read())
        file.write("x")
    x = trace.sample("x", trace.normal(0, 1))
    if number % 2 == 1 and number // 2 < len(FAULTS):
        FAULTS[number // 2]()
    trace.observe("y", trace.normal(x, 1))

trace.serve(model)
"""
SENTENCES = ["has ended with exit code 3", "was killed by signal 9", "has closed its end of the socket", "has sent a message that wflow cannot take: it is none of PPX",
             "has sent a message of several parts", "asks for a reset", "has sent a handshake in a run", "it is of type 13",
             "'w' is Weibull, which wflow has not", "'u' has distribution 99", "a draw has neither name nor address",
             "'s' has 1 values, and its shape 5", "'deviation' is normal: its standard deviation is -1",
             "'z' is observed, and the plugin has no such array", "the tag 't' is nan", "have 2 and 3 values"]

HANGING = f"""
import os, signal, sys
sys.path.insert(0, "{SOURCE}/python")
from wflow import trace

def model():
    x = trace.sample("x", trace.normal(0, 1))
    trace.observe("y", trace.normal(x, 1))
    runs.append(x)
    if len(runs) == 3 and not os.path.exists("hangs"):
        with open("hangs.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename("hangs.new", "hangs")
        signal.pause()

runs = []
trace.serve(model)
"""


class Ppx(CampaignTest):
    campaign = Traces.campaign
    observe = Traces.observe
    record_library = Traces.record

    def record(self, command, count, steps="", bundle=1000, code=0):
        self.wflow("run", self.study(COMMAND_STUDY.format(command=command, count=count, bundle=bundle, seed=1) + steps), "-j", "2", "--new", code=code)
        return self.campaign()

    def program(self, text):
        (self.folder / "simulator.py").write_text(text)
        return f"{PYTHON} simulator.py"

    def addresses(self, campaign):
        found = [json.loads(path.read_text()) for path in sorted(campaign.glob("simulate/**/addresses.*.json"))]
        return found[0] if len(found) == 1 else found

    def failures(self):
        return {failure["task"]: failure["detail"] for failure in self.status()["failures"]}

    def test_traces_are_those_of_the_same_model_in_c(self):
        command = self.program(MODELS_IN_PYTHON)
        for model in ("gaussian", "branching", "replacing"):
            compiled = self.record_library(model, 60, bundle=40)
            by_program = self.record(f"{command} {model}", 60, bundle=40)
            self.assertNotEqual(compiled, by_program)
            self.assertEqual(self.addresses(compiled), self.addresses(by_program))
            traces = Traces.traces_of(compiled), Traces.traces_of(by_program)
            self.assertEqual(len(traces[0]), 60)
            for one, other in zip(*traces, strict=True):
                numpy.testing.assert_array_equal(one, other)
            for path in sorted(compiled.glob("simulate/**/y.npy")):
                numpy.testing.assert_array_equal(numpy.load(path), numpy.load(by_program / path.relative_to(compiled)))

    def test_all_distributions_and_arrays(self):
        campaign = self.record(f"{self.program(MODELS_IN_PYTHON)} kinds", 30)
        table = self.addresses(campaign)
        kinds = {one["address"]: one["kind"] for one in table["addresses"]}
        self.assertEqual(kinds, {"normal[0]": "normal", "normal[1]": "normal", "uniform": "uniform", "uniform#2": "uniform", "poisson": "poisson",
                                 **{f"categorical[{i}]": "categorical" for i in range(3)},
                                 "exponential": "exponential", "gamma": "gamma", "beta": "beta"})
        self.assertEqual(table["tags"], ["result[0]", "result[1]"])
        for rows in Traces.traces_of(campaign):
            self.assertEqual(rows[:, 2].tolist(), [KINDS["normal"]] * 2 + [KINDS["uniform"] + 100] * 2 + [KINDS["categorical"]] * 3
                             + [KINDS[kind] for kind in ("poisson", "exponential", "gamma", "beta")])
            self.assertGreater(rows[1, 3], 5)
            self.assertGreaterEqual(rows[3, 3], 5)
            self.assertEqual(rows[4:7, 3].tolist(), [0, 1, 0])
        [path] = campaign.glob("simulate/**/y.npy")
        numpy.testing.assert_allclose(numpy.load(path), numpy.broadcast_to([[1, 2, 3], [4, 5, 6]], (30, 2, 3)), atol=1e-6)

    def test_the_posterior_is_that_of_the_library_and_the_closed_form(self):
        """mu ~ N(1, sqrt 5), two observations with deviation sqrt 2: the posterior of (8, 9) is N(7.25, 0.913)."""
        command = f"{self.program(MODELS_IN_PYTHON)} gaussian"
        training = self.record_library("gaussian", 6000, DATA_SET + TRAIN) / "train"
        observed = self.observe(8, 9)
        for method, traces in (("ic", 2000), ("is", 2000), ("rmh", 400)):
            found = []
            for number, simulator in enumerate((("--command", command), ("--simulator", "libwflow_ppx.so", "--command", command),
                                                ("--simulator", MODELS, "--symbol", "gaussian"))):
                if method != "ic" and number == 1:
                    continue
                folder = self.folder / f"{method}-{number}"
                self.wflow("infer", training, *simulator, "--observe", observed, "--traces", traces, "--method", method, "-j", "2", "-o", folder)
                with h5py.File(folder / "posterior.h5") as file:
                    found.append((file["log_weight"][:], file["draws/mu"][:], file["draws/square"][:]))
                summary = json.loads((folder / "inference.json").read_text())
            for one in found[:-1]:
                for mine, compiled in zip(one, found[-1], strict=True):
                    numpy.testing.assert_array_equal(mine, compiled)
            if method == "ic":
                mu = summary["posteriors"][0]["parameters"][0]
                self.assertAlmostEqual(mu["mean"], 7.25, delta=0.15)
                self.assertAlmostEqual(mu["deviation"], 0.913, delta=0.1)
        self.assertIn("--method needs --simulator or --command", self.wflow("infer", training, "--method", "is", code=USAGE).err)
        self.assertIn("there is no such file", self.wflow("infer", training, "--simulator", "libnone.so", code=USAGE).err)
        self.assertIn("exit code 7", self.wflow("infer", training, "--command", "exit 7", "--observe", observed, code=DATA).err)

    def test_a_peer_with_the_code_of_flatbuffers(self):
        subprocess.run(["flatc", "--python", "-o", self.folder / "generated", SOURCE / "plugin/ppx/ppx.fbs"], check=True)
        campaign = self.record(f"{self.program(PEER)} generated $WFLOW_PPX_ADDRESS", 20)
        table = self.addresses(campaign)
        self.assertEqual([one["address"] for one in table["addresses"]], ["[main+0x12]", "coin[0]", "coin[1]", "coin[2]"])
        self.assertEqual(table["tags"], ["twice"])
        drawn = numpy.array([rows[0, 3] for rows in Traces.traces_of(campaign)])
        self.assertLess(abs(drawn.mean() - 2), 0.5)
        [path] = campaign.glob("simulate/**/y.npy")
        y = numpy.load(path)
        self.assertEqual(y.shape, (20, 1))
        self.assertFalse((y == 7).any())  # drawn, whatever value the peer has for it

    def test_what_breaks_the_protocol_is_a_sentence_and_the_next_sample_runs(self):
        count = 2 * len(SENTENCES)
        self.record(self.program(BREAKER), count, bundle=count, code=TASKS_FAILED)
        reasons = self.failures()
        for number, sentence in enumerate(SENTENCES):
            self.assertIn(sentence, reasons[f"simulate/{2 * number}"])
            self.assertNotIn("\n", reasons[f"simulate/{2 * number}"])
        self.assertEqual(len(reasons), len(SENTENCES))
        self.assertEqual(len(read_text(self.folder / "runs")), count + 1)

    def test_a_program_that_does_not_start(self):
        for command, sentence in (("exit 3", "libwflow_ppx.so cannot begin: the program 'exit 3' has ended with exit code 3 before it could be connected to"),
                                  ("./none", "has ended with exit code 127")):
            self.record(command, 2, code=TASKS_FAILED)
            self.assertIn(sentence, str(self.failures()))
        library = STUDY.replace(", symbol: {symbol}", "").format(library="libwflow_ppx.so", count=2, bundle=2, seed=1)
        self.wflow("run", self.study(library), "--new", code=TASKS_FAILED)
        self.assertIn("it needs 'command', a program that speaks PPX", str(self.failures()))
        neither = self.wflow("validate", self.study(library.replace("library: libwflow_ppx.so, ", "")), code=SPEC)
        self.assertIn("has no 'library' and no 'command'", neither.err)

    def test_the_program_goes_with_the_process_that_has_started_it(self):
        study = self.study(COMMAND_STUDY.format(command=f"echo begins; {self.program(HANGING)}", count=6, bundle=6, seed=1))
        process = self.start("run", study, "-j", "1")
        pid = int(self.wait(lambda: read_text(self.folder / "hangs"), "a run that hangs", during=process))
        hosts = [each for each in self.processes() if read_text(f"/proc/{each}/comm").startswith("wflow-plugin-ho")]
        host = min(hosts)  # the other is the program's guard
        self.assertTrue(Path(f"/proc/{pid}").exists())
        os.kill(host, signal.SIGKILL)
        wait_for(lambda: pid not in self.processes(), "the end of the simulator")
        process.wait()
        self.assertLessEqual(set(self.failures()), {"simulate/1"})  # it ran in the process that was killed

    def test_the_example_of_the_manual(self):
        section = read_text(SOURCE / "docs/traces.md").split("## Programs that speak PPX, and Python", 1)[1]
        model, study = (section.split(f"```{language}\n", 1)[1].split("```", 1)[0] for language in ("python", "yaml"))
        self.program(f"import sys\nsys.path.insert(0, '{SOURCE}/python')\n{model}")
        study = study.replace("python3 ", f"{PYTHON} ").replace("5000", "300")
        self.wflow("run", self.study(study), "-j", "2")
        [campaign] = self.folder.glob("light_*")
        self.assertEqual([one["address"] for one in self.addresses(campaign)["addresses"]], ["energy", "escapes", "share"])

    def test_examples_in_the_module(self):
        done = subprocess.run([PYTHON, "-c", "import doctest, wflow.trace; print(doctest.testmod(wflow.trace))"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(SOURCE / "python")}, check=True)
        self.assertIn("failed=0, attempted=4", done.stdout)
        done = subprocess.run([PYTHON, "-c", "import wflow.trace; wflow.trace.serve(print)"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(SOURCE / "python")})
        self.assertIn("there is no $WFLOW_PPX_ADDRESS", done.stderr)


if __name__ == "__main__":
    import unittest
    unittest.main()
