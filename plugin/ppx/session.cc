// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <stdexcept>
#include <utility>

namespace wflow::ppx {
namespace {

// For a program that loads its tables before it listens.
constexpr std::chrono::seconds kMostStart{300};
constexpr std::size_t kMostResults = 100;  // values of a run's result that become tags

// wflow has noted a mistake of the simulator, and reports it.
struct Mistaken {};

Request understood(const Bytes& message) {
  try {
    return parse_request(message);
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("has sent a message that wflow cannot take: ") + error.what());
  }
}

// Stands for wflow in a run that only tells what is observed.
class Prior {
 public:
  Prior() : functions_{this, &Prior::sample, nullptr, &Prior::observe, &Prior::tag} {}
  ::wflow_trace& functions() { return functions_; }

 private:
  static double sample(void* run, const char* /*address*/, const ::wflow_distribution* distribution,
                       std::uint32_t /*flags*/) {
    return static_cast<Prior*>(run)->draw(distribution->kind,
                                          {distribution->parameters, distribution->count});
  }
  static double observe(void* /*run*/, const char* /*array*/, std::uint64_t /*index*/,
                        const ::wflow_distribution* /*distribution*/) {
    return 0;
  }
  static void tag(void* /*run*/, const char* /*name*/, double /*value*/) {}

  double gamma(double shape, double rate) {
    return std::gamma_distribution<double>(std::max(shape, 1e-6), 1 / std::max(rate, 1e-300))(random_);
  }
  // Wrong parameters give any number: the runs that count report them.
  double draw(std::uint32_t kind, std::span<const double> p) {
    switch (kind) {
      case WFLOW_NORMAL:
        return p[0] + p[1] * std::normal_distribution<double>()(random_);
      case WFLOW_UNIFORM:
        return p[0] + (p[1] - p[0]) * std::uniform_real_distribution<double>()(random_);
      case WFLOW_CATEGORICAL:
        return static_cast<double>(std::discrete_distribution<int>(p.begin(), p.end())(random_));
      case WFLOW_POISSON:
        return p[0] > 0 ? static_cast<double>(std::poisson_distribution<std::int64_t>(p[0])(random_)) : 0;
      case WFLOW_EXPONENTIAL:
        return gamma(1, p[0]);
      case WFLOW_GAMMA:
        return gamma(p[0], p[1]);
      default: {  // WFLOW_BETA; PPX has no further one
        const double x = gamma(p[0], 1);
        return x / (x + gamma(p[1], 1));
      }
    }
  }

  ::wflow_trace functions_;
  std::mt19937_64 random_;
};

std::string element_name(const std::string& name, std::size_t count, std::size_t i) {
  return count == 1 ? name : name + "[" + std::to_string(i) + "]";
}

::wflow_distribution distribution_of(const Values& values, std::size_t i) {
  const std::vector<double>& p = values.parameters[i];
  return {values.kind, static_cast<std::uint32_t>(p.size()), p.data()};
}

::wflow_array array_of(const std::string& name, std::uint64_t values, std::vector<std::int32_t> shape) {
  ::wflow_array array{name.c_str(), WFLOW_FLOAT64, 0, {}};
  if (shape.empty() || shape.size() > WFLOW_MOST_AXES) shape = {static_cast<std::int32_t>(values)};
  for (const std::int32_t length : shape) array.shape[array.axes++] = static_cast<std::size_t>(length);
  return array;
}

}  // namespace

Session::Session(std::string command, std::string directory)
    : command_(std::move(command)), directory_(std::move(directory)) {}

void Session::start() {
  program_ = std::make_unique<Program>(command_, directory_);
  const Request answer = understood(program_->ask(handshake(), kMostStart));
  if (answer.kind != Request::Kind::handshake_result)
    throw std::runtime_error("has answered the handshake with another message");
  program_->connected();
}

std::vector<::wflow_array> Session::describe() {
  Prior prior;
  run(prior.functions());
  if (observed_.empty()) throw std::runtime_error("the program '" + command_ + "' observes nothing");
  std::vector<::wflow_array> arrays;
  for (const auto& [name, seen] : observed_) names_.push_back(name);
  for (const std::string& name : names_) {
    const Seen& seen = observed_[name];
    arrays.push_back(
        array_of(name, seen.values, seen.messages == 1 ? seen.shape : std::vector<std::int32_t>()));
  }
  return arrays;
}

void Session::run(::wflow_trace& trace) {
  observed_.clear();
  uncontrolled_.clear();
  try {
    if (program_ == nullptr) start();
    follow(trace);
  } catch (const Mistaken&) {
    program_.reset();
  } catch (const std::exception& error) {
    program_.reset();
    throw std::runtime_error("the program '" + command_ + "' " + error.what());
  }
}

void Session::follow(::wflow_trace& trace) {
  Bytes message = ppx::run();
  for (;;) {
    const Request request = understood(program_->ask(message));
    if (request.kind == Request::Kind::run_result) {
      if (request.array.values.size() <= kMostResults &&
          std::ranges::all_of(request.array.values, [](double x) { return std::isfinite(x); }))
        tag("result", request.array, trace);
      return;
    }
    message = answer(request, trace);
  }
}

Bytes Session::answer(const Request& request, ::wflow_trace& trace) {
  switch (request.kind) {
    case Request::Kind::sample:
      return sample_result(sample(request, trace));
    case Request::Kind::observe:
      observe(request, trace);
      return observe_result();
    case Request::Kind::tag:
      tag(request.name, request.array, trace);
      return tag_result();
    case Request::Kind::reset:
      throw std::runtime_error("has not expected wflow's message, and asks for a reset");
    default:
      throw std::runtime_error("has sent a handshake in a run");
  }
}

Array Session::sample(const Request& request, ::wflow_trace& trace) {
  Array array{{}, request.values.shape};
  // wflow_trace.h has one flag for draws that are never steered, and keeps the last one of an address:
  // without `replace`, each gets an address of its own.
  std::string name = request.name;
  if (!request.control && !request.replace) {
    const std::uint64_t count = ++uncontrolled_[name];
    if (count > 1) name += "#" + std::to_string(count);
  }
  const std::uint32_t flags = request.control && !request.replace ? 0 : WFLOW_REPLACE;
  const std::size_t count = request.values.parameters.size();
  for (std::size_t i = 0; i < count; ++i) {
    const ::wflow_distribution d = distribution_of(request.values, i);
    array.values.push_back(wflow_sample(&trace, element_name(name, count, i).c_str(), &d, flags));
    if (std::isnan(array.values.back())) throw Mistaken();
  }
  return array;
}

// A further message under a name goes on where the one before has ended.
void Session::observe(const Request& request, ::wflow_trace& trace) {
  Seen& seen = observed_[request.name];
  if (seen.messages++ == 0) seen.shape = request.values.shape;
  for (std::size_t i = 0; i < request.values.parameters.size(); ++i) {
    const ::wflow_distribution d = distribution_of(request.values, i);
    if (std::isnan(wflow_observe(&trace, request.name.c_str(), seen.values++, &d))) throw Mistaken();
  }
}

void Session::tag(const std::string& name, const Array& array, ::wflow_trace& trace) {
  const std::size_t count = array.values.size();
  for (std::size_t i = 0; i < count; ++i)
    wflow_tag(&trace, element_name(name, count, i).c_str(), array.values[i]);
}

}  // namespace wflow::ppx
