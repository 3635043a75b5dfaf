// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/flat_state.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/error.h"

namespace wflow::trainer {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::int64_t kLineFloats = kLineBytes / sizeof(float);
constexpr std::size_t kMappedBytes = std::size_t{1} << 20;  // buffers from here on

std::int64_t round_up(std::int64_t count) {
  return (count + kLineFloats - 1) / kLineFloats * kLineFloats;
}

}  // namespace

FloatBuffer::FloatBuffer(std::int64_t count) : count_(count) {
  const auto bytes = static_cast<std::size_t>(std::max(round_up(count), kLineFloats)) * sizeof(float);
  if (bytes >= kMappedBytes) {
    void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    data_ = {static_cast<float*>(pages), Free{bytes, true}};
    return;
  }
  data_ = {static_cast<float*>(std::aligned_alloc(kLineBytes, bytes)), Free{0, true}};
  if (data_ == nullptr) throw std::bad_alloc();
  std::fill_n(data_.get(), bytes / sizeof(float), 0.0F);
}

FloatBuffer FloatBuffer::alias_of(FloatBuffer& other) {
  FloatBuffer alias;
  alias.data_ = {other.data(), Free{0, false}};
  alias.count_ = other.size();
  return alias;
}

void FloatBuffer::Free::operator()(float* p) const {
  if (!owns) return;
  if (mapped > 0) {
    ::munmap(p, mapped);
  } else {
    std::free(p);  // NOLINT: the counterpart of aligned_alloc
  }
}

FlatLayout::FlatLayout(const std::vector<ParameterSpec>& specs) {
  for (const ParameterSpec& spec : specs) {
    entries.push_back({spec, size, spec.count()});
    size += round_up(spec.count());
  }
}

const FlatEntry* FlatLayout::find(std::string_view name) const {
  for (const FlatEntry& entry : entries) {
    if (entry.spec.name == name) return &entry;
  }
  return nullptr;
}

FlatState::FlatState(const ModelGraph& graph)
    : parameters_(graph.parameters()),
      buffers_(graph.buffers()),
      values_(parameters_.size),
      buffer_values_(buffers_.size),
      exchange_(kScalarSpace + buffers_.size + parameters_.size) {}

FlatState FlatState::with_values_of(FlatState& other) {
  FlatState state;
  state.parameters_ = other.parameters_;
  state.buffers_ = other.buffers_;
  state.values_ = FloatBuffer::alias_of(other.values_);
  state.buffer_values_ = FloatBuffer::alias_of(other.buffer_values_);
  state.exchange_ = FloatBuffer(other.exchange_.size());
  return state;
}

std::span<float> FlatState::batch_statistics() {
  return exchange_.span().subspan(kScalarSpace, static_cast<std::size_t>(buffers_.size));
}

std::span<float> FlatState::gradients() {
  return exchange_.span().subspan(static_cast<std::size_t>(gradients_begin()));
}

void FlatState::fill_initial_values(std::uint64_t seed) {
  for (const FlatEntry& entry : parameters_.entries) fill_initial(entry.spec, seed, value(entry));
  fill_initial_buffers();
}

void FlatState::fill_initial_buffers() {
  for (const FlatEntry& entry : buffers_.entries) fill_initial(entry.spec, 0, buffer(entry));
}

void FlatState::update_running_statistics(std::int64_t samples, double momentum,
                                          std::span<const FlatEntry> entries) {
  const auto keep = static_cast<float>(1 - momentum);
  const auto take = static_cast<float>(momentum / static_cast<double>(samples));
  for (const FlatEntry& entry : entries) {
    const std::span<const float> batch = batch_statistic(entry);
    const std::span<float> running = buffer(entry);
    for (std::size_t i = 0; i < running.size(); ++i) running[i] = keep * running[i] + take * batch[i];
  }
}

void FlatState::add_to_running_statistics(std::int64_t samples) {
  const std::span<const float> changes = batch_statistics();
  const std::span<float> running = buffer_values_.span();
  for (std::size_t i = 0; i < running.size(); ++i) running[i] += changes[i] / static_cast<float>(samples);
}

NormStatistics::NormStatistics(const FlatLayout& buffers) {
  for (std::size_t i = 0; i + 1 < buffers.entries.size(); i += 2) {
    const FlatEntry& mean = buffers.entries[i];
    const FlatEntry& variance = buffers.entries[i + 1];
    WFLOW_CHECK(mean.count == variance.count);
    for (std::int64_t c = 0; c < mean.count; ++c) {
      pairs_.emplace_back(static_cast<std::size_t>(mean.offset + c),
                          static_cast<std::size_t>(variance.offset + c));
    }
  }
  sums_.assign(2 * pairs_.size() + 1, 0.0);
}

void NormStatistics::add(std::span<const float> batch, std::int64_t samples) {
  const auto weight = static_cast<double>(samples);
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const double mean = batch[pairs_[i].first] / weight;
    sums_[2 * i] += weight * mean;
    sums_[2 * i + 1] += batch[pairs_[i].second] + weight * mean * mean;
  }
  sums_.back() += weight;
}

std::string NormStatistics::take() {
  std::string bytes(reinterpret_cast<const char*>(sums_.data()), sums_.size() * sizeof(double));
  std::fill(sums_.begin(), sums_.end(), 0.0);
  return bytes;
}

void NormStatistics::add(const std::string& bytes) {
  WFLOW_CHECK(bytes.size() == sums_.size() * sizeof(double));
  std::vector<double> other(sums_.size());
  std::memcpy(other.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += other[i];
}

void NormStatistics::write(std::span<float> buffers) const {
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const double mean = sums_[2 * i] / sums_.back();
    buffers[pairs_[i].first] = static_cast<float>(mean);
    buffers[pairs_[i].second] =
        static_cast<float>(std::max(0.0, sums_[2 * i + 1] / sums_.back() - mean * mean));
  }
}

}  // namespace wflow::trainer
