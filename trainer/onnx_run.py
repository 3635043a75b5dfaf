# SPDX-License-Identifier: Apache-2.0
"""Runs an ONNX model with Debian's python3-onnx and torch: each operator as onnx's documentation of operator set 17 defines it."""

import json

import numpy
import onnx
import onnx.numpy_helper
import onnx.shape_inference
import torch
from torch.nn import functional


def attributes(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def padded(x, pads, value):
    half = len(pads) // 2
    both = [p for low, high in reversed(list(zip(pads[:half], pads[half:]))) for p in (low, high)]
    return functional.pad(x, both, value=value) if any(pads) else x


def convolution(x, w, b=None, *, kernel_shape, strides, pads, dilations=(1, 1, 1), group=1):
    assert list(w.shape[2:]) == list(kernel_shape)
    return functional.conv3d(padded(x, pads, 0), w, b, strides, 0, dilations, group)


def transposed_convolution(x, w, b=None, *, kernel_shape, strides, pads):
    assert list(w.shape[2:]) == list(kernel_shape)
    y = functional.conv_transpose3d(x, w, b, strides)
    for axis in range(3):
        y = y.narrow(2 + axis, pads[axis], y.shape[2 + axis] - pads[axis] - pads[3 + axis])
    return y


def resize_linear(x, sizes):
    """onnx's formula, axis by axis: the centre of an output cell among those of the input's cells, which end at the edge."""
    for axis, size in enumerate(sizes.tolist()):
        n = x.shape[axis]
        at = ((torch.arange(size, dtype=torch.float64) + 0.5) * n / size - 0.5).clamp(0, n - 1)
        low = at.floor().long()
        high = (low + 1).clamp(max=n - 1)
        part = (at - low).to(x.dtype).reshape([-1] + [1] * (x.dim() - axis - 1))
        x = x.index_select(axis, low) * (1 - part) + x.index_select(axis, high) * part
    return x


def resize(x, roi, scales, sizes=None, *, mode, coordinate_transformation_mode, nearest_mode=None):
    if mode == b"linear":
        assert roi is None and scales is None and coordinate_transformation_mode == b"half_pixel"
        return resize_linear(x, sizes)
    assert roi is None and (mode, coordinate_transformation_mode, nearest_mode) == (b"nearest", b"asymmetric", b"floor")
    for axis, scale in enumerate(scales.tolist()):
        cells = torch.arange(int(x.shape[axis] * scale))
        x = x.index_select(axis, torch.floor(cells / scale).long())
    return x


def reshape(x, shape):
    return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(shape.tolist())])


def sliced(x, starts, ends, axes):
    for start, end, axis in zip(starts.tolist(), ends.tolist(), axes.tolist()):
        x = x.narrow(axis, start, end - start)
    return x


def gather(x, indices, *, axis):
    return x.index_select(axis, indices.flatten()).reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]])


def instance_normalization(x, scale, bias, *, epsilon):
    axes = tuple(range(2, x.dim()))
    normal = (x - x.mean(axes, keepdim=True)) / torch.sqrt(x.var(axes, unbiased=False, keepdim=True) + epsilon)
    shape = [1, -1] + [1] * len(axes)
    return normal * scale.reshape(shape) + bias.reshape(shape)


def directions(x, w, r, b, lengths, gates, step):
    """Runs `step` for each direction: the reverse one begins at the last step of each sample. Outputs after its end are 0."""
    steps, samples, _ = x.shape
    units = r.shape[2]
    lengths = [steps] * samples if lengths is None else lengths.tolist()
    y = torch.zeros(steps, w.shape[0], samples, units)
    last = torch.zeros(w.shape[0], samples, units)
    for d in range(w.shape[0]):
        for n in range(samples):
            state = (torch.zeros(units), torch.zeros(units))
            for t in range(lengths[n]) if d == 0 else reversed(range(lengths[n])):
                bias_w, bias_r = b[d].split(gates * units)
                state = step(x[t, n] @ w[d].T + bias_w, state[0], r[d], bias_r, state[1])
                y[t, d, n] = state[0]
            last[d, n] = state[0]
    return y, last


def lstm(x, w, r, b, lengths=None, *, hidden_size, direction):
    assert r.shape[2] == hidden_size and w.shape[0] == {b"forward": 1, b"bidirectional": 2}[direction]

    def step(x, h, r, b, c):
        i, o, f, g = (x + h @ r.T + b).split(hidden_size)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
    return directions(x, w, r, b, lengths, 4, step)


def gru(x, w, r, b, lengths=None, *, hidden_size, direction, linear_before_reset):
    assert r.shape[2] == hidden_size and w.shape[0] == {b"forward": 1, b"bidirectional": 2}[direction] and linear_before_reset

    def step(x, h, r, b, _):
        (xz, xr, xh), (hz, hr, hh) = x.split(hidden_size), (h @ r.T + b).split(hidden_size)
        z = torch.sigmoid(xz + hz)
        return (1 - z) * torch.tanh(xh + torch.sigmoid(xr + hr) * hh) + z * h, h
    return directions(x, w, r, b, lengths, 3, step)


TYPES = {onnx.TensorProto.FLOAT: torch.float32, onnx.TensorProto.DOUBLE: torch.float64, onnx.TensorProto.INT32: torch.int32,
         onnx.TensorProto.INT64: torch.int64}

OPERATORS = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div, "Log": torch.log, "Exp": torch.exp, "Erf": torch.erf,
    "Sigmoid": torch.sigmoid, "Tanh": torch.tanh, "Relu": torch.relu, "Softplus": functional.softplus, "Elu": functional.elu,
    "Identity": lambda x: x, "Cast": lambda x, to: x.to(TYPES[to]),
    "MatMul": torch.matmul, "Max": torch.maximum, "Greater": torch.gt, "LSTM": lstm, "GRU": gru,
    "Unsqueeze": lambda x, axes: x.unsqueeze(*axes.tolist()),
    "ReduceSum": lambda x, axes, keepdims: x.sum(axes.tolist(), keepdim=bool(keepdims)),
    "LeakyRelu": lambda x, alpha: functional.leaky_relu(x, alpha),
    "Softmax": lambda x, axis: torch.softmax(x, axis),
    "Gemm": lambda a, b, c, transB: a @ b.T + c,
    "Conv": convolution, "ConvTranspose": transposed_convolution, "Resize": resize, "Reshape": reshape,
    "AveragePool": lambda x, kernel_shape, strides: functional.avg_pool3d(x, kernel_shape, strides),
    "MaxPool": lambda x, kernel_shape, strides: functional.max_pool3d(x, kernel_shape, strides),
    "BatchNormalization": lambda x, s, b, m, v, epsilon: functional.batch_norm(x, m, v, s, b, False, 0, epsilon),
    "InstanceNormalization": instance_normalization,
    "LayerNormalization": lambda x, s, b, axis, epsilon: functional.layer_norm(x, [x.shape[axis]], s, b, epsilon),
    "Transpose": lambda x, perm: x.permute(perm),
    "Expand": lambda x, shape: x.expand(*(max(a, b) for a, b in zip(x.shape, shape.tolist()))),
    "Flatten": lambda x, axis: x.flatten(axis),
    "ReduceMean": lambda x, axes, keepdims: x.mean(axes, keepdim=bool(keepdims)),
    "ReduceMax": lambda x, axes, keepdims: x.amax(axes, keepdim=bool(keepdims)),
    "Shape": lambda x, start, end: torch.tensor(x.shape[start:end]), "Slice": sliced, "Gather": gather, "Round": torch.round,
    "Squeeze": lambda x, axes: x.squeeze(*axes.tolist()),
    "Concat": lambda *parts, axis: torch.cat(parts, axis),
    "Split": lambda x, sizes, axis: torch.split(x, sizes.tolist(), axis),
}


class Model:
    """Loads a model after libonnx has checked it, types and shapes included."""

    def __init__(self, path):
        self.proto = onnx.load(path)
        onnx.checker.check_model(self.proto)
        inferred = onnx.shape_inference.infer_shapes(self.proto, check_type=True, strict_mode=True, data_prop=True)
        metadata = {entry.key: entry.value for entry in self.proto.metadata_props}
        self.inputs = json.loads(metadata["inputs"])
        self.targets = json.loads(metadata["targets"])
        assert [value.name for value in inferred.graph.input] == self.inputs

    def __call__(self, *inputs):
        graph = self.proto.graph
        values = dict(zip(self.inputs, inputs))
        for constant in graph.initializer:
            values[constant.name] = torch.from_numpy(numpy.array(onnx.numpy_helper.to_array(constant)))
        for node in graph.node:
            out = OPERATORS[node.op_type](*[values[name] if name else None for name in node.input], **attributes(node))
            values.update(zip(node.output, out if isinstance(out, tuple) else (out,)))
        outputs = tuple(values[output.name] for output in graph.output)
        return outputs[0] if len(outputs) == 1 else outputs
