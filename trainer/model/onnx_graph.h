// SPDX-License-Identifier: Apache-2.0
// Collects the nodes and constants of an ONNX graph.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/protobuf.h"
#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// Numbers of onnx.proto: fields of messages, types of elements and attributes.
enum Element { kFloat = 1, kInt32 = 6, kInt64 = 7, kDouble = 11 };
enum AttributeType { kReal = 1, kInteger = 2, kText = 3, kIntegers = 7 };

class Attributes {
 public:
  Attributes& integer(const char* name, std::int64_t value) {
    ProtobufMessage attribute = named(name, kInteger);
    attribute.integer(3, value);
    return add(attribute);
  }
  Attributes& real(const char* name, double value) {
    ProtobufMessage attribute = named(name, kReal);
    attribute.real(2, static_cast<float>(value));
    return add(attribute);
  }
  Attributes& text(const char* name, const char* value) {
    ProtobufMessage attribute = named(name, kText);
    attribute.text(4, value);
    return add(attribute);
  }
  Attributes& integers(const char* name, std::span<const std::int64_t> values) {
    ProtobufMessage attribute = named(name, kIntegers);
    for (const std::int64_t value : values) attribute.integer(8, value);
    return add(attribute);
  }
  const std::vector<ProtobufMessage>& list() const { return list_; }

 private:
  static ProtobufMessage named(const char* name, AttributeType type) {
    ProtobufMessage attribute;
    attribute.text(1, name);
    attribute.integer(20, type);
    return attribute;
  }
  Attributes& add(const ProtobufMessage& attribute) {
    list_.push_back(attribute);
    return *this;
  }
  std::vector<ProtobufMessage> list_;
};

using OnnxNames = std::vector<std::string>;

// Collects nodes and constants; values are called v0, v1, ... as in the graph, others after them.
class OnnxGraph {
 public:
  // Adds a node and returns the name of its output.
  std::string node(const char* type, const OnnxNames& inputs, const Attributes& attributes = {}) {
    const std::string output = fmt::format("t{}", ++values_);
    node_with_outputs(type, inputs, {output}, attributes);
    return output;
  }
  void node_with_outputs(const char* type, const OnnxNames& inputs, const OnnxNames& outputs,
                         const Attributes& attributes) {
    ProtobufMessage message;
    for (const std::string& input : inputs) message.text(1, input);
    for (const std::string& output : outputs) message.text(2, output);
    message.text(3, outputs.front());
    message.text(4, type);
    for (const ProtobufMessage& attribute : attributes.list()) message.message(5, attribute);
    graph_.message(1, message);
  }
  OnnxNames outputs(std::size_t count) {
    OnnxNames names;
    for (std::size_t i = 0; i < count; ++i) names.push_back(fmt::format("t{}", ++values_));
    return names;
  }
  // Parts of `sizes` along an axis.
  OnnxNames split(const std::string& value, const std::vector<std::int64_t>& sizes, std::int64_t axis) {
    const OnnxNames parts = outputs(sizes.size());
    node_with_outputs("Split", {value, integers(sizes)}, parts, Attributes().integer("axis", axis));
    return parts;
  }
  std::string reals(const std::string& name, std::span<const std::int64_t> shape,
                    std::span<const float> values) {
    return tensor(name, kFloat, shape,
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  std::string reals(std::span<const std::int64_t> shape, std::span<const double> values) {
    const std::vector<float> list(values.begin(), values.end());
    return reals(fmt::format("c{}", ++constants_), shape, list);
  }
  std::string real(double value) { return reals(std::span<const std::int64_t>(), {&value, 1}); }
  std::string reals(std::span<const std::int64_t> shape, std::span<const double> values, Element type) {
    if (type != kDouble) return reals(shape, values);
    return tensor(fmt::format("c{}", ++constants_), kDouble, shape,
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
  }
  std::string real(double value, Element type) {
    return reals(std::span<const std::int64_t>(), {&value, 1}, type);
  }
  std::string reshape(const std::string& value, const std::vector<std::int64_t>& shape) {
    return node("Reshape", {value, integers(shape)});
  }
  std::string transpose(const std::string& value, const std::vector<std::int64_t>& order) {
    return node("Transpose", {value}, Attributes().integers("perm", order));
  }
  std::string concat(const OnnxNames& values, std::int64_t axis) {
    return values.size() == 1 ? values.front() : node("Concat", values, Attributes().integer("axis", axis));
  }
  std::string cast(const std::string& value, Element from, Element to) {
    return from == to ? value : cast_to(value, to);
  }
  std::string cast_to(const std::string& value, Element to) {
    return node("Cast", {value}, Attributes().integer("to", to));
  }
  std::string integers(const std::vector<std::int64_t>& values) {
    const std::int64_t count[] = {static_cast<std::int64_t>(values.size())};
    return tensor(fmt::format("c{}", ++constants_), kInt64, count,
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::int64_t)});
  }
  // An array that is not copied: it stays until write().
  void weights(const std::string& name, std::span<const std::int64_t> shape, std::span<const float> values) {
    ProtobufMessage described = description(name, kFloat, shape);
    described.begin(9, values.size_bytes());
    ProtobufMessage framed;
    framed.begin(5, described.bytes().size() + values.size_bytes());
    weights_.push_back({framed.bytes() + described.bytes(),
                        {reinterpret_cast<const char*>(values.data()), values.size_bytes()}});
  }
  ProtobufMessage& message() { return graph_; }

  std::uint64_t size() const {
    std::uint64_t bytes = graph_.bytes().size();
    for (const Weights& one : weights_) bytes += one.head.size() + one.values.size();
    return bytes;
  }
  // The graph's message, piece by piece.
  template <class Write>
  void write(const Write& write) const {
    write(graph_.bytes());
    for (const Weights& one : weights_) {
      write(one.head);
      write(one.values);
    }
  }

 private:
  struct Weights {
    std::string head;
    std::string_view values;
  };

  static ProtobufMessage description(const std::string& name, Element type,
                                     std::span<const std::int64_t> shape) {
    ProtobufMessage message;
    for (const std::int64_t n : shape) message.integer(1, n);
    message.integer(2, type);
    message.text(8, name);
    return message;
  }
  std::string tensor(const std::string& name, Element type, std::span<const std::int64_t> shape,
                     std::string_view bytes) {
    ProtobufMessage message = description(name, type, shape);
    message.text(9, bytes);
    graph_.message(5, message);
    return name;
  }
  ProtobufMessage graph_;
  std::vector<Weights> weights_;
  int values_ = 0;
  int constants_ = 0;
};

// Adds the nodes of a recurrent, attention or spectral layer (onnx_sequence.cc) and returns its output; empty
// for other kinds. `inputs`: the values that the layer reads.
std::string sequence_nodes(const Layer& layer, const OnnxNames& inputs, OnnxGraph& onnx);

}  // namespace wflow::trainer
