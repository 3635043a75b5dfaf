// SPDX-License-Identifier: Apache-2.0
// The layer trace_density by libtorch's operations: the network of traces/proposal_network.h for all steps of
// all traces of a batch at once.
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "traces/proposal_network.h"
#include "trainer/model/torch_layers.h"

namespace wflow::trainer {
namespace {

using TensorList = TorchLayer::Tensors;
using traces::Proposal;

// A draw that a network proposes: where it is in the batch, and the coordinate of its value.
struct BatchDraw {
  std::size_t address = 0;
  std::int64_t step = 0;
  std::int64_t sample = 0;
  std::int64_t categories = 0;
  traces::DrawFeatures features;
};

// The traces of a batch.
struct BatchTraces {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  at::Tensor values;             // [steps, samples, kDrawValues]
  at::Tensor previous;           // [steps, samples], numbers of addresses
  at::Tensor current;            // the same
  std::vector<BatchDraw> draws;  // by address
};

at::Tensor tensor_of(const std::vector<float>& values) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, at::kFloat);
  std::ranges::copy(values, tensor.data_ptr<float>());
  return tensor;
}

at::Tensor tensor_of(const std::vector<std::int64_t>& values) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
  std::ranges::copy(values, tensor.data_ptr<std::int64_t>());
  return tensor;
}

// Reads the rows of traces: what a layer needs of its dictionary.
class TraceRows {
 public:
  explicit TraceRows(const Layer& layer)
      : name_(layer.name),
        components_(layer.components),
        numbers_(layer.addresses->numbers()),
        heads_(traces::heads_of(*layer.addresses, static_cast<std::size_t>(layer.components))) {}

  std::int64_t components() const { return components_; }
  const traces::Heads::Head& head(std::size_t address) const { return heads_.heads[address]; }

  // `rows`: [samples, 8, steps]; a row of zeros is padding.
  BatchTraces read(const at::Tensor& rows) const {
    BatchTraces batch;
    batch.samples = rows.size(0);
    const std::int64_t longest = rows.size(2);
    const float* from = rows.data_ptr<float>();
    const auto at = [&](std::int64_t n, std::int64_t t, std::size_t column) {
      return from[(n * static_cast<std::int64_t>(traces::kRowValues) + static_cast<std::int64_t>(column)) *
                      longest +
                  t];
    };
    for (std::int64_t n = 0; n < batch.samples; ++n) {
      std::int64_t steps = 0;
      while (steps < longest && at(n, steps, traces::kKind) != 0) ++steps;
      batch.steps = std::max(batch.steps, steps);
    }
    batch.values = at::zeros({batch.steps, batch.samples, static_cast<std::int64_t>(traces::kDrawValues)});
    const auto none = static_cast<std::int64_t>(heads_.heads.size());
    batch.previous = at::full({batch.steps, batch.samples}, none, at::kLong);
    batch.current = at::full({batch.steps, batch.samples}, none, at::kLong);
    float* values = batch.values.data_ptr<float>();
    auto* previous = batch.previous.data_ptr<std::int64_t>();
    auto* current = batch.current.data_ptr<std::int64_t>();
    for (std::int64_t n = 0; n < batch.samples; ++n) {
      traces::DrawFeatures before;
      for (std::int64_t t = 0; t < batch.steps && at(n, t, traces::kKind) != 0; ++t) {
        traces::Row row{};
        for (std::size_t k = 0; k < row.size(); ++k) row[k] = static_cast<double>(at(n, t, k));
        const std::size_t address = number_of(row);
        const traces::DrawFeatures features = traces::features_of(row);
        const std::int64_t place = t * batch.samples + n;
        traces::write_draw_values(
            t == 0 ? nullptr : &before, features,
            {values + place * static_cast<std::int64_t>(traces::kDrawValues), traces::kDrawValues});
        if (t > 0) previous[place] = current[place - batch.samples];
        current[place] = static_cast<std::int64_t>(address);
        if (heads_.heads[address].form != Proposal::none)
          batch.draws.push_back(
              {address, t, n, static_cast<std::int64_t>(row[traces::kParameters]), features});
        before = features;
      }
    }
    std::ranges::stable_sort(batch.draws, {}, &BatchDraw::address);
    return batch;
  }

 private:
  std::size_t number_of(const traces::Row& row) const {
    const auto found = numbers_.find(traces::hash_of_halves(row[traces::kHigh], row[traces::kLow]));
    if (found != numbers_.end()) return found->second;
    throw Error(ExitCode::data,
                fmt::format("the layer '{}' reads a draw at an address that {} of the data set does not have",
                            name_, traces::kAddressFile));
  }

  std::string name_;
  std::int64_t components_;
  std::map<std::uint64_t, std::size_t> numbers_;
  traces::Heads heads_;
};

// A number of each draw, [draws, 1].
at::Tensor column(std::span<const BatchDraw> draws, double traces::DrawFeatures::*member) {
  std::vector<float> values;
  for (const BatchDraw& draw : draws) values.push_back(static_cast<float>(draw.features.*member));
  return tensor_of(values).unsqueeze(1);
}

// Twice the normal distribution function.
at::Tensor twice_below(const at::Tensor& z) {
  return at::erfc(z * (-1 / std::numbers::sqrt2));
}

// The logarithm of the probability between two values of a standard normal variable.
at::Tensor log_between(const at::Tensor& low, const at::Tensor& high) {
  const at::Tensor upper = low.gt(0);
  const at::Tensor a = at::where(upper, -high, low);
  const at::Tensor b = at::where(upper, -low, high);
  return (twice_below(b) - twice_below(a)).mul(0.5).clamp_min(1e-30).log();
}

// Log density of a mixture, [draws, 1]: traces::log_proposal() without the prior's share.
at::Tensor log_mixture(Proposal form, const at::Tensor& values, std::span<const BatchDraw> draws,
                       std::int64_t components, const at::Device& device) {
  const auto part = [&](std::int64_t k) { return values.narrow(1, k * components, components); };
  std::vector<float> spreads;
  for (std::int64_t k = 0; k < components; ++k)
    spreads.push_back((2 * static_cast<float>(k) + 1) / static_cast<float>(components) - 1);
  const at::Tensor spread = tensor_of(spreads).to(device).unsqueeze(0);
  const at::Tensor x = column(draws, &traces::DrawFeatures::coordinate).to(device);
  const at::Tensor log_width = part(2).clamp(traces::kLeastLogWidth, traces::kMostLogWidth);
  const at::Tensor narrow = (-log_width).exp();
  const bool bounded = form == Proposal::bounded_mixture;
  const at::Tensor mean = bounded ? (part(1) + 2 * spread).sigmoid() : part(1) + spread;
  at::Tensor log_density;
  if (form == Proposal::counts) {
    const at::Tensor half = column(draws, &traces::DrawFeatures::half_step).to(device);
    std::vector<float> zeros;
    for (const BatchDraw& draw : draws) zeros.push_back(draw.features.count_is_zero ? 1 : 0);
    const at::Tensor is_zero = tensor_of(zeros).to(device).unsqueeze(1).gt(0.5);
    const at::Tensor high = (x + half - mean) * narrow;
    const at::Tensor low = at::where(is_zero, at::full({}, -40, high.options()), (x - half - mean) * narrow);
    log_density = log_between(low.minimum(high), high);
  } else {
    const at::Tensor z = (x - mean) * narrow;
    log_density = z.square() * -0.5 - log_width - 0.5 * std::log(2 * std::numbers::pi);
    if (bounded) log_density = log_density - log_between(-mean * narrow, (1 - mean) * narrow);
  }
  const at::Tensor sum = (part(0).log_softmax(1) + log_density).logsumexp({1}, true);
  return sum + column(draws, &traces::DrawFeatures::log_jacobian).to(device);
}

at::Tensor log_categories(const at::Tensor& logits, std::span<const BatchDraw> draws,
                          const at::Device& device) {
  constexpr double kExcluded = -1e30;
  std::vector<std::int64_t> chosen;
  std::vector<std::int64_t> known;
  for (const BatchDraw& draw : draws) {
    chosen.push_back(draw.features.category);
    known.push_back(draw.categories);
  }
  const at::Tensor numbers = at::arange(logits.size(1), at::kLong).to(device).unsqueeze(0);
  const at::Tensor excluded = numbers.ge(tensor_of(known).to(device).unsqueeze(1));
  return logits.masked_fill(excluded, kExcluded)
      .log_softmax(1)
      .gather(1, tensor_of(chosen).to(device).unsqueeze(1));
}

// The log density of each draw at one address, [draws].
at::Tensor log_density_at(const TraceRows& rows, std::span<const BatchDraw> draws, const at::Tensor& inner,
                          const TensorList& p) {
  const traces::Heads::Head& head = rows.head(draws.front().address);
  const auto first = static_cast<std::int64_t>(head.first);
  const auto count = static_cast<std::int64_t>(head.count);
  const at::Tensor values = at::linear(inner, p[7].narrow(0, first, count), p[8].narrow(0, first, count));
  const at::Device device = inner.device();
  const at::Tensor found = head.form == Proposal::categories
                               ? log_categories(values, draws, device)
                               : log_mixture(head.form, values, draws, rows.components(), device);
  // Values that float32 has moved out of the prior's support have a log density of -infinity.
  const at::Tensor prior = column(draws, &traces::DrawFeatures::log_prior).to(device).clamp_min(-1e4);
  return at::logaddexp(found + std::log1p(-traces::kPriorShare), prior + std::log(traces::kPriorShare))
      .squeeze(1);
}

// [samples, 1]
at::Tensor trace_density(const TraceRows& rows, const TensorList& in, const TensorList& p) {
  const at::Device device = in[0].device();
  const std::int64_t samples = in[0].size(0);
  const BatchTraces batch =
      rows.read(in[1]
                    .detach()
                    .to(at::kCPU)
                    .reshape({samples, static_cast<std::int64_t>(traces::kRowValues), -1})
                    .contiguous());
  at::Tensor result = at::zeros({samples}, in[0].options());
  if (batch.draws.empty()) {  // every value takes part in the gradient
    for (const at::Tensor& value : p) result = result + 0 * value.sum();
    return (result + 0 * in[0].sum()).unsqueeze(1);
  }
  const at::Tensor x =
      at::cat({in[0].unsqueeze(0).expand({batch.steps, samples, in[0].size(1)}), batch.values.to(device),
               at::embedding(p[0], batch.previous.to(device)), at::embedding(p[0], batch.current.to(device))},
              2);
  const std::int64_t units = p[2].size(1);
  const at::Tensor state = at::zeros({1, samples, units}, x.options());
  const bool train = c10::GradMode::is_enabled();
  const at::Tensor hidden =
      std::get<0>(at::lstm(x, {state, state}, {p[1], p[2], p[3], p[4]}, true, 1, 0, train, false, false));
  std::vector<std::int64_t> places;
  std::vector<std::int64_t> owners;
  for (const BatchDraw& draw : batch.draws) {
    places.push_back(draw.step * samples + draw.sample);
    owners.push_back(draw.sample);
  }
  const at::Tensor chosen = hidden.reshape({-1, units}).index_select(0, tensor_of(places).to(device));
  const at::Tensor inner = at::silu(at::linear(chosen, p[5], p[6]));
  TensorList found;
  const std::span<const BatchDraw> all = batch.draws;
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin;
    while (end < all.size() && all[end].address == all[begin].address) ++end;
    const auto first = static_cast<std::int64_t>(begin);
    found.push_back(log_density_at(rows, all.subspan(begin, end - begin),
                                   inner.narrow(0, first, static_cast<std::int64_t>(end) - first), p));
    begin = end;
  }
  return result.index_add(0, tensor_of(owners).to(device), at::cat(found), -1).unsqueeze(1);
}

}  // namespace

LayerFunction trace_function(const Layer& layer) {
  return [rows = std::make_shared<const TraceRows>(layer)](const TensorList& in, const TensorList& p) {
    return trace_density(*rows, in, p);
  };
}

}  // namespace wflow::trainer
