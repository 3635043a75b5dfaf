// SPDX-License-Identifier: Apache-2.0
// All numbers of a network in a few flat arrays, and the place of each named array: optimiser, gradient
// exchange and checkpoints work on these, whatever back end computes.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/model/model_graph.h"

namespace wflow::trainer {

// Zeroed floats on a cache line's boundary, with a fixed length. A large buffer takes no memory before it is
// written.
class FloatBuffer {
 public:
  FloatBuffer() = default;
  explicit FloatBuffer(std::int64_t count);
  // The same floats: `other` must outlive it.
  static FloatBuffer alias_of(FloatBuffer& other);
  std::span<float> span() { return {data_.get(), static_cast<std::size_t>(count_)}; }
  std::span<const float> span() const { return {data_.get(), static_cast<std::size_t>(count_)}; }
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  std::int64_t size() const { return count_; }

 private:
  struct Free {
    std::size_t mapped;  // bytes; 0: allocated
    bool owns;
    void operator()(float* p) const;
  };
  std::unique_ptr<float, Free> data_;
  std::int64_t count_ = 0;
};

struct FlatEntry {
  ParameterSpec spec;
  std::int64_t offset = 0;  // in floats, on a cache line's boundary
  std::int64_t count = 0;
};

struct FlatLayout {
  std::vector<FlatEntry> entries;
  std::int64_t size = 0;  // including the gaps, which stay 0

  FlatLayout() = default;
  explicit FlatLayout(const std::vector<ParameterSpec>& specs);
  const FlatEntry* find(std::string_view name) const;
  // Only the arrays that are wanted, at their places.
  template <class IsWanted>
  FlatLayout some(const IsWanted& is_wanted) const {
    FlatLayout layout;
    layout.size = size;
    for (const FlatEntry& entry : entries)
      if (is_wanted(entry)) layout.entries.push_back(entry);
    return layout;
  }
};

// Numbers that a rank adds to the gradient exchange, so that a step has only one collective.
enum class Scalar : std::size_t { loss, absolute_error, stop, alarm, count };
inline constexpr std::int64_t kScalarSpace = 16;

// For a state of which each rank has a share (`shard`): whole arrays while a layer is computed. Arrays are
// named by their numbers in the layout. All ranks call the functions in the same order.
class StateOnUse {
 public:
  virtual ~StateOnUse() = default;
  // Begins to collect weights; does nothing if they are there.
  virtual void start(std::span<const std::size_t> arrays) = 0;
  // Returns when they are there.
  virtual void wait(std::span<const std::size_t> arrays) = 0;
  // Keeps this rank's share of them only.
  virtual void release(std::span<const std::size_t> arrays) = 0;
  // Gradients of these weights will be written.
  virtual void expect_gradients(std::span<const std::size_t> arrays) = 0;
};

// Parameters, gradients and running statistics of the norms of one network.
class FlatState {
 public:
  explicit FlatState(const ModelGraph& graph);
  // A state with gradients of its own, and the values and buffers of `other`, which must outlive it.
  static FlatState with_values_of(FlatState& other);

  const FlatLayout& parameters() const { return parameters_; }
  const FlatLayout& buffers() const { return buffers_; }

  std::span<float> values() { return values_.span(); }
  std::span<const float> values() const { return values_.span(); }
  std::span<float> buffer_values() { return buffer_values_.span(); }
  std::span<const float> buffer_values() const { return buffer_values_.span(); }

  // One array for the all-reduce: scalars, then statistics of this batch (laid out as the buffers,
  // weighted with the rank's number of samples), then gradients in order of the layers.
  std::span<float> exchange() { return exchange_.span(); }
  std::size_t exchange_count() const { return exchange_.span().size(); }
  std::span<float> batch_statistics();
  std::span<float> gradients();
  std::int64_t gradients_begin() const { return kScalarSpace + buffers_.size; }
  float& scalar(Scalar which) { return exchange_.span()[static_cast<std::size_t>(which)]; }

  std::span<float> value(const FlatEntry& entry) { return part(values_, entry, 0); }
  std::span<float> gradient(const FlatEntry& entry) { return part(exchange_, entry, gradients_begin()); }
  std::span<float> buffer(const FlatEntry& entry) { return part(buffer_values_, entry, 0); }
  std::span<float> batch_statistic(const FlatEntry& entry) { return part(exchange_, entry, kScalarSpace); }

  // nullptr: all arrays are there at any time.
  StateOnUse* on_use() const { return on_use_; }
  void set_on_use(StateOnUse* shares) { on_use_ = shares; }

  void fill_initial_values(std::uint64_t seed);
  void fill_initial_buffers();
  // running = (1 - momentum) * running + momentum * (statistics summed over ranks) / samples, for some
  // buffers.
  void update_running_statistics(std::int64_t samples, double momentum, std::span<const FlatEntry> entries);
  // running += (changes summed over ranks) / samples: for a module that updates its own statistics.
  void add_to_running_statistics(std::int64_t samples);

 private:
  FlatState() = default;
  static std::span<float> part(FloatBuffer& buffer, const FlatEntry& entry, std::int64_t begin) {
    return buffer.span().subspan(static_cast<std::size_t>(begin + entry.offset),
                                 static_cast<std::size_t>(entry.count));
  }

  FlatLayout parameters_;
  FlatLayout buffers_;
  FloatBuffer values_;
  FloatBuffer buffer_values_;
  FloatBuffer exchange_;
  StateOnUse* on_use_ = nullptr;
};

// The norms' statistics over many batches: the mean of the batches' means and of their second moments. Sums
// are in double precision and in order of the ranks, so that the same ranks give the same bits.
class NormStatistics {
 public:
  explicit NormStatistics(const FlatLayout& buffers);
  // `batch`: state.batch_statistics() after forward(), each value times the samples.
  void add(std::span<const float> batch, std::int64_t samples);
  std::string take();  // returns the sums as bytes for the other ranks and clears them
  void add(const std::string& bytes);
  void write(std::span<float> buffers) const;

 private:
  std::vector<std::pair<std::size_t, std::size_t>> pairs_;  // positions of a mean and of its variance
  std::vector<double> sums_;                                // per pair: mean, second moment; then the samples
};

}  // namespace wflow::trainer
