# SPDX-License-Identifier: Apache-2.0
"""Simulators whose random draws wflow makes, records and steers (docs/traces.md). A simulator is a function:

    from wflow import trace

    def model():
        mu = trace.sample("mu", trace.normal(1, 2))
        trace.observe("y", trace.normal([mu, mu], 0.5))       # two values
        trace.tag("square", mu * mu)

    if __name__ == "__main__":
        trace.serve(model)

`plugin: {command: "python3 simulator.py"}` in a study records it, and `wflow infer --command "python3 simulator.py"`
steers it. They are connected by PPX over ZeroMQ: serve() needs the package zmq.

Without serve(), a model draws from numpy's random numbers, so that it can be tried:

    >>> isinstance(sample("x", normal(0, 1)), float)
    True
    >>> sample("n", categorical([0, 1]))
    1
    >>> sample("v", uniform([0, 10], [1, 11])).shape
    (2,)
    >>> truncated_normal(0, 1, -1, 1)
    Traceback (most recent call last):
    wflow._errors.Error: PPX has no truncated normal: draw it in a plugin in C (wflow_truncated_normal of wflow_trace.h), or repeat sample("x", normal(...), replace=True) until the value is inside
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence, Union

import numpy

from wflow import _ppx
from wflow._errors import Error

__all__ = ["Distribution", "beta", "categorical", "exponential", "gamma", "normal", "observe", "poisson", "sample", "serve", "tag",
           "truncated_normal", "uniform"]

Numbers = Union[float, Sequence[Any], numpy.ndarray]


@dataclass(frozen=True)
class Distribution:
    """Made by normal() and the others. Parameters that are arrays stand for an array of values, each drawn by itself."""

    kind: int
    parameters: tuple[numpy.ndarray, ...]
    draw: Callable[..., Any]
    whole: bool = False

    def table(self) -> _ppx.Table:
        return _ppx.Table({i: _tensor(value) for i, value in enumerate(self.parameters)})

    def value(self, drawn: Any) -> Any:
        array = numpy.asarray(drawn)
        if self.whole:
            array = array.astype(int)
        return array if array.shape else array.item()


def _distribution(kind: int, draw: Callable[..., Any], *parameters: Numbers, whole: bool = False) -> Distribution:
    return Distribution(kind, tuple(numpy.asarray(value, dtype=float) for value in parameters), draw, whole)


def _tensor(array: numpy.ndarray) -> _ppx.Table:
    return _ppx.tensor(array.ravel().tolist(), array.shape)


def normal(mean: Numbers, deviation: Numbers) -> Distribution:
    return _distribution(_ppx.NORMAL, lambda random, *p: random.normal(*p), mean, deviation)


def uniform(low: Numbers, high: Numbers) -> Distribution:
    return _distribution(_ppx.UNIFORM, lambda random, *p: random.uniform(*p), low, high)


def categorical(weights: Numbers) -> Distribution:
    """0, 1, ...: with these weights along the last axis, which need no sum of 1."""
    def draw(random: numpy.random.Generator, weights: numpy.ndarray) -> numpy.ndarray:
        sums = numpy.cumsum(weights, axis=-1)
        return (random.uniform(size=(*weights.shape[:-1], 1)) * sums[..., -1:] >= sums).sum(axis=-1)

    return _distribution(_ppx.CATEGORICAL, draw, weights, whole=True)


def poisson(rate: Numbers) -> Distribution:
    return _distribution(_ppx.POISSON, lambda random, rate: random.poisson(rate), rate, whole=True)


def exponential(rate: Numbers) -> Distribution:
    return _distribution(_ppx.EXPONENTIAL, lambda random, rate: random.exponential(1 / rate), rate)


def gamma(shape: Numbers, rate: Numbers) -> Distribution:
    return _distribution(_ppx.GAMMA, lambda random, shape, rate: random.gamma(shape, 1 / rate), shape, rate)


def beta(a: Numbers, b: Numbers) -> Distribution:
    return _distribution(_ppx.BETA, lambda random, *p: random.beta(*p), a, b)


def truncated_normal(mean: Numbers, deviation: Numbers, low: Numbers, high: Numbers) -> Distribution:
    """Not to be had: PPX has none, and the error says what to do."""
    raise Error("PPX has no truncated normal: draw it in a plugin in C (wflow_truncated_normal of wflow_trace.h), "
                'or repeat sample("x", normal(...), replace=True) until the value is inside')


def sample(address: str, distribution: Distribution, *, replace: bool = False, control: bool = True) -> Any:
    """A draw: a number, or an array where the distribution's parameters are arrays.

    The address names the place in the program, and must not depend on what was drawn. A second draw at an address has the
    name "address#2". `replace`: in a loop that repeats until it accepts, only the last draw counts. `control=False`: the
    draw is recorded, and never steered."""
    return distribution.value(_engine.sample(address, distribution, control, replace))


def observe(name: str, distribution: Distribution) -> None:
    """The distribution of what is observed, given the draws: the array `name` of the data set. A further call with the name
    continues the array. Every run observes the same arrays with as many values."""
    _engine.ask(_ppx.OBSERVE, {0: name, 1: name, 2: distribution.kind, 3: distribution.table()})


def tag(name: str, value: Numbers) -> None:
    """A number that follows from the draws: results have its distribution, too."""
    _engine.ask(_ppx.TAG, {0: name, 1: name, 2: _tensor(numpy.asarray(value, dtype=float))})


def serve(model: Callable[[], Any], address: Optional[str] = None) -> None:
    """Runs the model whenever wflow asks for it, until wflow ends the program. `address`: where to listen, as ZeroMQ
    writes it; by default $WFLOW_PPX_ADDRESS, which wflow sets. Numbers that the model returns are tagged `result`."""
    address = address or os.environ.get("WFLOW_PPX_ADDRESS")
    if not address:
        raise Error("there is no $WFLOW_PPX_ADDRESS: wflow starts this program, by plugin: {command: ...} in a study or by "
                    "wflow infer --command")
    try:
        import zmq
    except ImportError as error:
        raise Error("wflow.trace.serve needs the package zmq: apt install python3-zmq, or pip install pyzmq") from error
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        socket.linger = 0
        socket.bind(address)
        _engine.socket = socket
        try:
            while True:
                _answer(_engine, model)
        finally:
            _engine.socket = None


def _answer(engine: _Engine, model: Callable[[], Any]) -> None:
    kind = _ppx.read_message(engine.socket.recv())[0]
    if kind == _ppx.HANDSHAKE:
        name = getattr(model, "__name__", "model")
        engine.socket.send(_ppx.message(_ppx.HANDSHAKE_RESULT, _ppx.Table({0: "wflow.trace", 1: name})))
    elif kind == _ppx.RUN:
        result = model()
        array = numpy.asarray([] if result is None else result, dtype=float)
        engine.socket.send(_ppx.message(_ppx.RUN_RESULT, _ppx.Table({0: _tensor(array)})))
    else:
        engine.socket.send(_ppx.message(_ppx.RESET))


class _Engine:
    """wflow, at the other end of the socket; without one, numpy's random numbers."""

    def __init__(self) -> None:
        self.socket: Any = None
        self._random = numpy.random.default_rng()

    def ask(self, kind: int, fields: dict[int, Any]) -> tuple[Sequence[float], Sequence[int]]:
        if self.socket is None:
            return (), ()
        self.socket.send(_ppx.message(kind, _ppx.Table(fields)))
        answer, values, shape = _ppx.read_message(self.socket.recv())
        if answer != kind + 1:  # as the schema numbers them
            raise Error(f"wflow has answered message {kind} of PPX by message {answer}")
        return values, shape

    def sample(self, address: str, distribution: Distribution, control: bool, replace: bool) -> Any:
        if self.socket is None:
            return distribution.draw(self._random, *distribution.parameters)
        values, shape = self.ask(_ppx.SAMPLE, {0: address, 1: address, 2: distribution.kind, 3: distribution.table(),
                                               4: int(control), 5: int(replace)})
        return numpy.reshape(values, shape)


_engine = _Engine()
