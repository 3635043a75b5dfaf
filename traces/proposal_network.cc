// SPDX-License-Identifier: Apache-2.0
#include "traces/proposal_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "traces/product_kernel.h"

namespace wflow::traces {
namespace {

constexpr std::size_t kHashText = 32;

double log_add(double a, double b) {
  const double high = std::max(a, b);
  if (std::isinf(high)) return high;
  return high + std::log(std::exp(a - high) + std::exp(b - high));
}

double log_sum(std::span<const double> values) {
  double sum = -std::numeric_limits<double>::infinity();
  for (const double value : values) sum = log_add(sum, value);
  return sum;
}

std::size_t product_of(std::span<const std::int64_t> shape) {
  std::size_t product = 1;
  for (const std::int64_t n : shape) product *= static_cast<std::size_t>(n);
  return product;
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// The normal distributions that a head's values stand for, in the coordinate of the draw.
class Mixture {
 public:
  Mixture(Proposal form, std::span<const float> values) : form_(form), count_(values.size() / 3) {
    logits_ = values.first(count_);
    means_ = values.subspan(count_, count_);
    widths_ = values.subspan(2 * count_, count_);
    std::vector<double> all(logits_.begin(), logits_.end());
    log_total_ = log_sum(all);
  }

  std::size_t count() const { return count_; }
  double log_weight(std::size_t k) const { return static_cast<double>(logits_[k]) - log_total_; }
  // The means begin apart from each other: equal ones would learn the same.
  double mean(std::size_t k) const {
    const double spread = (2 * static_cast<double>(k) + 1) / static_cast<double>(count_) - 1;
    const double raw = static_cast<double>(means_[k]);
    return form_ == Proposal::bounded_mixture ? sigmoid(raw + 2 * spread) : raw + spread;
  }
  double log_width(std::size_t k) const {
    return std::clamp(static_cast<double>(widths_[k]), kLeastLogWidth, kMostLogWidth);
  }

 private:
  Proposal form_;
  std::size_t count_;
  std::span<const float> logits_, means_, widths_;
  double log_total_ = 0;
};

double log_mixture(const Mixture& mixture, Proposal form, const DrawFeatures& draw) {
  double sum = -std::numeric_limits<double>::infinity();
  for (std::size_t k = 0; k < mixture.count(); ++k) {
    const double mean = mixture.mean(k);
    const double log_width = mixture.log_width(k);
    const double width = std::exp(log_width);
    double log_density = 0;
    if (form == Proposal::counts) {
      const double high = (draw.coordinate + draw.half_step - mean) / width;
      const bool is_zero = draw.count_is_zero;
      const double low = is_zero ? -40 : (draw.coordinate - draw.half_step - mean) / width;
      log_density = log_normal_between(std::min(low, high), high);
    } else {
      log_density = log_normal_density((draw.coordinate - mean) / width) - log_width;
      if (form == Proposal::bounded_mixture)
        log_density -= log_normal_between(-mean / width, (1 - mean) / width);
    }
    sum = log_add(sum, mixture.log_weight(k) + log_density);
  }
  return sum + draw.log_jacobian;
}

double drawn_from(const Mixture& mixture, Proposal form, const Distribution& prior, Random& random) {
  double left = random.uniform();
  std::size_t k = 0;
  for (; k + 1 < mixture.count(); ++k) {
    left -= std::exp(mixture.log_weight(k));
    if (left < 0) break;
  }
  const double mean = mixture.mean(k);
  const double width = std::exp(mixture.log_width(k));
  if (form != Proposal::bounded_mixture) {
    const double value = value_of(prior, mean + width * random.normal());
    return form == Proposal::counts ? std::max(0.0, std::round(value)) : value;
  }
  const double low = normal_below(-mean / width);
  const double high = normal_below((1 - mean) / width);
  const double z = normal_quantile(low + random.uniform() * (high - low));
  return value_of(prior, std::clamp(mean + width * z, 1e-12, 1 - 1e-12));
}

std::size_t drawn_category(std::span<const float> logits, Random& random) {
  std::vector<double> all(logits.begin(), logits.end());
  const double total = log_sum(all);
  double left = random.uniform();
  std::size_t k = 0;
  for (; k + 1 < all.size(); ++k) {
    left -= std::exp(all[k] - total);
    if (left < 0) break;
  }
  return k;
}

// [rows, columns] to [columns, rows].
std::vector<float> turned(std::span<const float> values, std::size_t rows, std::size_t columns) {
  std::vector<float> result(values.size());
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) result[j * rows + i] = values[i * columns + j];
  return result;
}

void add_product(std::span<const float> matrix, std::span<const float> x, std::span<float> y) {
#ifdef WFLOW_X86_PRODUCT
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return avx2_product(matrix.data(), x.data(), x.size(), y.data(), y.size());
#endif
  plain_product(matrix.data(), x.data(), x.size(), y.data(), y.size());
}

}  // namespace

Heads heads_of(const AddressTable& table, std::size_t components) {
  Heads all;
  for (const Address& address : table.addresses()) {
    Heads::Head head = {address.proposed ? proposal_of(address.kind) : Proposal::none, all.rows, 0};
    if (head.form == Proposal::categories) {
      head.count = address.categories;
    } else if (head.form != Proposal::none) {
      head.count = 3 * components;
    }
    all.rows += head.count;
    all.heads.push_back(head);
  }
  return all;
}

void write_draw_values(const DrawFeatures* previous, const DrawFeatures& current, std::span<float> to) {
  std::ranges::fill(to, 0.0F);
  if (previous != nullptr) {
    to[0] = static_cast<float>(previous->z);
    if (previous->category >= 0) to[1 + static_cast<std::size_t>(previous->category) % kCategoryValues] = 1;
  }
  to[1 + kCategoryValues] = static_cast<float>(current.place);
  to[2 + kCategoryValues] = static_cast<float>(current.width);
}

double log_proposal(Proposal form, std::span<const float> values, const DrawFeatures& draw,
                    std::size_t categories) {
  const double log_prior = std::log(kPriorShare) + draw.log_prior;
  const double log_share = std::log1p(-kPriorShare);
  if (form != Proposal::categories)
    return log_add(log_share + log_mixture(Mixture(form, values), form, draw), log_prior);
  // A draw may have fewer categories than the head, or more.
  const std::size_t known = std::min(categories, values.size());
  const std::vector<double> logits(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(known));
  const auto category = static_cast<std::size_t>(std::max(0, draw.category));
  if (category >= known) return log_prior;
  return log_add(log_share + logits[category] - log_sum(logits), log_prior);
}

double propose(Proposal form, std::span<const float> values, const Distribution& prior, Random& random) {
  const bool from_prior = random.uniform() < kPriorShare;
  if (form == Proposal::categories) {
    const std::size_t categories = prior.p.size();
    if (from_prior) return std::floor(random.uniform() * static_cast<double>(categories));
    return static_cast<double>(drawn_category(values.first(std::min(categories, values.size())), random));
  }
  if (from_prior) return draw(prior, random);
  return drawn_from(Mixture(form, values), form, prior, random);
}

std::vector<std::vector<std::int64_t>> ProposalNetwork::shapes(const Sizes& sizes,
                                                               const AddressTable& table) {
  const auto units = static_cast<std::int64_t>(sizes.units);
  const auto rows = static_cast<std::int64_t>(heads_of(table, sizes.components).rows);
  return {{static_cast<std::int64_t>(table.size()) + 1, static_cast<std::int64_t>(kAddressValues)},
          {4 * units, static_cast<std::int64_t>(sizes.inputs())},
          {4 * units, units},
          {4 * units},
          {4 * units},
          {units, units},
          {units},
          {rows, units},
          {rows}};
}

std::size_t ProposalNetwork::parameter_count(const Sizes& sizes, const AddressTable& table) {
  std::size_t count = 0;
  for (const std::vector<std::int64_t>& shape : shapes(sizes, table)) count += product_of(shape);
  return count;
}

ProposalNetwork::ProposalNetwork(const Sizes& sizes, AddressTable table, std::span<const float> parameters)
    : sizes_(sizes),
      table_(std::move(table)),
      numbers_(table_.numbers()),
      heads_(heads_of(table_, sizes.components)) {
  std::vector<std::span<const float>> parts;
  for (const std::vector<std::int64_t>& shape : shapes(sizes_, table_)) {
    const std::size_t count = product_of(shape);
    parts.push_back(parameters.first(count));
    parameters = parameters.subspan(count);
  }
  const std::size_t units = sizes_.units;
  address_.assign(parts[0].begin(), parts[0].end());
  weight_ih_ = turned(parts[1], 4 * units, sizes_.inputs());
  weight_hh_ = turned(parts[2], 4 * units, units);
  bias_.assign(parts[3].begin(), parts[3].end());
  for (std::size_t i = 0; i < bias_.size(); ++i) bias_[i] += parts[4][i];
  hidden_weight_ = turned(parts[5], units, units);
  hidden_bias_.assign(parts[6].begin(), parts[6].end());
  head_weight_.assign(parts[7].begin(), parts[7].end());
  head_bias_.assign(parts[8].begin(), parts[8].end());
}

std::string ProposalNetwork::text(const Sizes& sizes, const AddressTable& table,
                                  std::span<const float> parameters) {
  const nlohmann::json header = {
      {"wflow_format", kProposalFormat}, {"embedding", sizes.embedding},    {"units", sizes.units},
      {"components", sizes.components},  {"parameters", parameters.size()}, {"table", table.to_json()}};
  std::string text = header.dump() + "\n";
  text.append(reinterpret_cast<const char*>(parameters.data()), parameters.size_bytes());
  return text + hash_bytes(text);
}

ProposalNetwork ProposalNetwork::parse(const std::string& text, const std::string& name) {
  const auto damaged = [&] {
    return Error(ExitCode::data, fmt::format("{} is damaged or no such file", name));
  };
  if (text.size() < kHashText) throw damaged();
  const std::string_view body = std::string_view(text).substr(0, text.size() - kHashText);
  const std::size_t line = body.find('\n');
  if (line == std::string_view::npos || hash_bytes(body) != std::string_view(text).substr(body.size()))
    throw damaged();
  const nlohmann::json header = nlohmann::json::parse(body.substr(0, line), nullptr, false);
  try {
    if (header.at("wflow_format").get<int>() != kProposalFormat)
      throw Error(ExitCode::data, fmt::format("{} is of another version of wflow", name));
    const Sizes sizes = {header.at("embedding"), header.at("units"), header.at("components")};
    std::vector<float> values(header.at("parameters").get<std::size_t>());
    AddressTable table = parse_address_table(header.at("table").dump(), name);
    if (parameter_count(sizes, table) != values.size() ||
        body.size() - line - 1 != values.size() * sizeof(float))
      throw damaged();
    std::memcpy(values.data(), body.data() + line + 1, values.size() * sizeof(float));
    return {sizes, std::move(table), values};
  } catch (const nlohmann::json::exception&) {
    throw damaged();
  }
}

ProposalNetwork::State ProposalNetwork::first() const {
  State state;
  state.hidden.assign(sizes_.units, 0);
  state.cell.assign(sizes_.units, 0);
  state.address = table_.size();
  return state;
}

std::vector<float> ProposalNetwork::observe(std::span<const float> embedding) const {
  std::vector<float> gates = bias_;
  add_product(std::span(weight_ih_).first(sizes_.embedding * gates.size()), embedding, gates);
  return gates;
}

void ProposalNetwork::step(State& state, std::span<const float> observed, std::size_t address,
                           const DrawFeatures& current) const {
  std::array<float, kDrawValues + 2 * kAddressValues> x{};
  write_draw_values(state.began ? &state.previous : nullptr, current, std::span(x).first(kDrawValues));
  const auto vector_of = [&](std::size_t number) {
    return std::span(address_).subspan(number * kAddressValues, kAddressValues);
  };
  std::ranges::copy(vector_of(state.address), x.begin() + kDrawValues);
  std::ranges::copy(vector_of(address), x.begin() + kDrawValues + kAddressValues);
  std::vector<float> gates(observed.begin(), observed.end());
  add_product(std::span(weight_ih_).subspan(sizes_.embedding * gates.size()), x, gates);
  add_product(weight_hh_, state.hidden, gates);
  const std::size_t units = sizes_.units;
  const auto squashed = [](float value) { return 1 / (1 + std::exp(-value)); };
  for (std::size_t i = 0; i < units; ++i) {
    const float news = squashed(gates[i]) * std::tanh(gates[2 * units + i]);
    state.cell[i] = squashed(gates[units + i]) * state.cell[i] + news;
    state.hidden[i] = squashed(gates[3 * units + i]) * std::tanh(state.cell[i]);
  }
}

std::vector<float> ProposalNetwork::head(const State& state, std::size_t address) const {
  std::vector<float> inner = hidden_bias_;
  add_product(hidden_weight_, state.hidden, inner);
  for (float& value : inner) value = value / (1 + std::exp(-value));
  const Heads::Head& head = heads_.heads[address];
  std::vector<float> values(head.count);
  for (std::size_t i = 0; i < head.count; ++i) {
    const float* row = head_weight_.data() + (head.first + i) * inner.size();
    // Four sums at once: the compiler may not reorder a single one.
    std::array<float, 4> sums{};
    for (std::size_t j = 0; j < inner.size(); ++j) sums[j % 4] += row[j] * inner[j];
    values[i] = head_bias_[head.first + i] + (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  return values;
}

const std::size_t* ProposalNetwork::number_of(std::uint64_t hash) const {
  const auto found = numbers_.find(hash);
  return found == numbers_.end() ? nullptr : &found->second;
}

ProposalSampler::ProposalSampler(const ProposalNetwork& network, std::span<const float> embedding)
    : network_(network), observed_(network.observe(embedding)), state_(network.first()) {}

void ProposalSampler::begin() {
  state_ = network_.first();
  has_next_ = false;
  at_saved_ = false;
}

void ProposalSampler::save() {
  saved_ = state_;
  first_.reset();
  at_saved_ = true;
}

void ProposalSampler::restore() {
  state_ = saved_;
  has_next_ = false;
  at_saved_ = true;
}

// The values of the address's head after the step of a draw, whose state is kept for add().
std::vector<float> ProposalSampler::step_to(std::size_t number, const Site& site) {
  // The prior alone decides what the step reads of this draw: any value will do.
  const Row prior = row_of(site.name.hash, site.prior, mean_of(site.prior), true);
  has_next_ = true;
  if (at_saved_ && first_ && first_->hash == site.name.hash && first_->prior == prior) {
    next_ = first_->state;
    return first_->head;
  }
  next_ = state_;
  network_.step(next_, observed_, number, features_of(prior));
  std::vector<float> values = network_.head(next_, number);
  if (at_saved_) first_ = FirstStep{site.name.hash, prior, next_, values};
  return values;
}

Sampler::Choice ProposalSampler::choose(const Site& site, Random& random) {
  const std::size_t* number = network_.number_of(site.name.hash);
  const bool fits = number != nullptr && network_.head_of(*number).form == proposal_of(site.prior.kind);
  if (!fits) {
    ++unknown_;
    const double value = draw(site.prior, random);
    return {value, log_density(site.prior, value)};
  }
  const std::vector<float> values = step_to(*number, site);
  const Proposal form = network_.head_of(*number).form;
  const double value = propose(form, values, site.prior, random);
  const Row row = row_of(site.name.hash, site.prior, value, true);
  return {value, log_proposal(form, values, features_of(row), site.prior.p.size())};
}

void ProposalSampler::add(std::uint64_t hash, std::span<const double> row) {
  at_saved_ = false;
  const std::size_t* number = network_.number_of(hash);
  if (number == nullptr) return;
  const DrawFeatures features = features_of(row);
  if (has_next_) {
    std::swap(state_, next_);
  } else {
    network_.step(state_, observed_, *number, features);
  }
  has_next_ = false;
  state_.previous = features;
  state_.address = *number;
  state_.began = true;
}

}  // namespace wflow::traces
