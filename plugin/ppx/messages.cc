// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <utility>

#include "ppx_generated.h"
#include "wflow_trace.h"

namespace wflow::ppx {
namespace {

constexpr std::size_t kMostValues = 1'000'000;  // of a message

[[noreturn]] void fail(const std::string& sentence) {
  throw std::runtime_error(sentence);
}

std::string text_of(const flatbuffers::String* text) {
  return text == nullptr ? std::string() : text->str();
}

Array array_of(const Tensor* tensor, const std::string& name) {
  Array array;
  if (tensor == nullptr) return array;
  if (tensor->data() != nullptr) array.values.assign(tensor->data()->begin(), tensor->data()->end());
  if (tensor->shape() != nullptr) array.shape.assign(tensor->shape()->begin(), tensor->shape()->end());
  std::size_t size = 1;
  for (const std::int32_t length : array.shape) {
    if (length < 0 || static_cast<std::size_t>(length) > kMostValues / std::max<std::size_t>(1, size))
      fail("'" + name + "' has an axis of length " + std::to_string(length));
    size *= static_cast<std::size_t>(length);
  }
  if (array.shape.empty()) size = array.values.size();
  if (size != array.values.size() || size > kMostValues)
    fail("'" + name + "' has " + std::to_string(array.values.size()) + " values, and its shape " +
         std::to_string(size));
  return array;
}

// One distribution a value; a parameter of one value stands for all.
Values each(std::uint32_t kind, const std::string& name, std::initializer_list<const Tensor*> tensors) {
  std::vector<Array> arrays;
  for (const Tensor* tensor : tensors) arrays.push_back(array_of(tensor, name));
  const auto most =
      std::ranges::max_element(arrays, {}, [](const Array& array) { return array.values.size(); });
  const std::size_t count = most->values.size();
  Values values{kind, std::vector<std::vector<double>>(count), most->shape};
  for (const Array& array : arrays) {
    if (array.values.empty()) fail("a parameter of the distribution of '" + name + "' is missing");
    if (array.values.size() != 1 && array.values.size() != count)
      fail("parameters of the distribution of '" + name + "' have " + std::to_string(array.values.size()) +
           " and " + std::to_string(count) + " values");
    for (std::size_t i = 0; i < count; ++i)
      values.parameters[i].push_back(array.values[array.values.size() == 1 ? 0 : i]);
  }
  return values;
}

// The last axis has the probabilities of a value.
Values categorical(const std::string& name, const Tensor* probabilities) {
  const Array array = array_of(probabilities, name);
  const std::size_t categories =
      array.shape.empty() ? array.values.size() : static_cast<std::size_t>(array.shape.back());
  if (array.values.empty()) fail("a parameter of the distribution of '" + name + "' is missing");
  Values values{WFLOW_CATEGORICAL, {}, array.shape};
  if (!values.shape.empty()) values.shape.pop_back();
  for (auto begin = array.values.begin(); begin != array.values.end();
       begin += static_cast<std::ptrdiff_t>(categories))
    values.parameters.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(categories));
  return values;
}

Values bernoulli(const std::string& name, const Tensor* probabilities) {
  Values values = each(WFLOW_CATEGORICAL, name, {probabilities});
  for (std::vector<double>& one : values.parameters) one = {1 - one.front(), one.front()};
  return values;
}

// `body` is a Sample or an Observe.
template <class Body>
Values values_of(const Body& body, const std::string& name) {
  if (const auto* d = body.distribution_as_Normal())
    return each(WFLOW_NORMAL, name, {d->mean(), d->stddev()});
  if (const auto* d = body.distribution_as_Uniform()) return each(WFLOW_UNIFORM, name, {d->low(), d->high()});
  if (const auto* d = body.distribution_as_Categorical()) return categorical(name, d->probs());
  if (const auto* d = body.distribution_as_Poisson()) return each(WFLOW_POISSON, name, {d->rate()});
  if (const auto* d = body.distribution_as_Bernoulli()) return bernoulli(name, d->probs());
  if (const auto* d = body.distribution_as_Beta())
    return each(WFLOW_BETA, name, {d->concentration1(), d->concentration0()});
  if (const auto* d = body.distribution_as_Exponential()) return each(WFLOW_EXPONENTIAL, name, {d->rate()});
  if (const auto* d = body.distribution_as_Gamma())
    return each(WFLOW_GAMMA, name, {d->concentration(), d->rate()});
  const auto number = static_cast<std::size_t>(body.distribution_type());
  if (number == 0) fail("'" + name + "' has no distribution");
  if (number > static_cast<std::size_t>(Distribution_MAX))
    fail("'" + name + "' has distribution " + std::to_string(number) + ", which PPX 1.0 does not have");
  fail("'" + name + "' is " + EnumNameDistribution(body.distribution_type()) +
       ", which wflow has not: draw it from another distribution, such as Normal or Gamma, and transform the "
       "value");
}

template <class Body>
Request named(Request::Kind kind, const Body& body, const char* what) {
  Request request;
  request.kind = kind;
  request.name = text_of(body.name());
  if (request.name.empty()) request.name = text_of(body.address());
  if (request.name.empty()) fail(std::string(what) + " has neither name nor address");
  return request;
}

Bytes finish(flatbuffers::FlatBufferBuilder& builder, MessageBody type, flatbuffers::Offset<void> body) {
  FinishMessageBuffer(builder, CreateMessage(builder, type, body));
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

}  // namespace

Request parse_request(std::span<const std::uint8_t> bytes) {
  flatbuffers::Verifier verifier(bytes.data(), bytes.size());
  // Peers leave out the file identifier.
  if (bytes.empty() || !verifier.VerifyBuffer<Message>(nullptr)) fail("it is none of PPX");
  const Message& message = *flatbuffers::GetRoot<Message>(bytes.data());
  Request request;
  if (const auto* sample = message.body_as_Sample()) {
    request = named(Request::Kind::sample, *sample, "a draw");
    request.values = values_of(*sample, request.name);
    request.control = sample->control();
    request.replace = sample->replace();
  } else if (const auto* observe = message.body_as_Observe()) {
    request = named(Request::Kind::observe, *observe, "an observation");
    request.values = values_of(*observe, request.name);
  } else if (const auto* tag = message.body_as_Tag()) {
    request = named(Request::Kind::tag, *tag, "a tag");
    request.array = array_of(tag->value(), request.name);
  } else if (const auto* result = message.body_as_RunResult()) {
    request.kind = Request::Kind::run_result;
    request.array = array_of(result->result(), "result");
  } else if (message.body_as_HandshakeResult() != nullptr) {
    request.kind = Request::Kind::handshake_result;
  } else if (message.body_as_Reset() == nullptr) {
    const auto number = static_cast<int>(message.body_type());
    fail("it is of type " + std::to_string(number) + ", which no simulator sends");
  }
  return request;
}

Bytes handshake() {
  flatbuffers::FlatBufferBuilder builder;
  const auto name = builder.CreateString("wflow");
  const auto body = CreateHandshake(builder, name).Union();
  return finish(builder, MessageBody_Handshake, body);
}

Bytes run() {
  flatbuffers::FlatBufferBuilder builder;
  return finish(builder, MessageBody_Run, CreateRun(builder).Union());
}

Bytes sample_result(const Array& values) {
  flatbuffers::FlatBufferBuilder builder;
  const auto tensor = CreateTensorDirect(builder, &values.values, &values.shape);
  const auto body = CreateSampleResult(builder, tensor).Union();
  return finish(builder, MessageBody_SampleResult, body);
}

Bytes observe_result() {
  flatbuffers::FlatBufferBuilder builder;
  return finish(builder, MessageBody_ObserveResult, CreateObserveResult(builder).Union());
}

Bytes tag_result() {
  flatbuffers::FlatBufferBuilder builder;
  return finish(builder, MessageBody_TagResult, CreateTagResult(builder).Union());
}

}  // namespace wflow::ppx
