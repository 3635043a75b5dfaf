// SPDX-License-Identifier: Apache-2.0
#include "converters/load/batch_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace wflow::converters {

BatchReader::BatchReader(const std::filesystem::path& data_directory, std::string_view split, int threads)
    : split_(SplitReader::open(data_directory, read_manifest(data_directory), split)) {
  for (int k = 0; k < std::max(1, threads); ++k) threads_.emplace_back([this] { work(); });
}

BatchReader::~BatchReader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    parts_.clear();
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// A part for each thread, but enough samples to benefit from reading together: at least two, and 256 KiB.
std::size_t BatchReader::part_size(std::size_t samples, std::size_t values) const {
  constexpr std::size_t kLeastValues = 64 << 10;
  const std::size_t even = (samples + threads_.size() - 1) / threads_.size();
  const std::size_t least = std::max<std::size_t>(2, kLeastValues / std::max<std::size_t>(1, values));
  constexpr std::size_t kMostLarge = 16;
  return std::max(least, std::min(even, kMostLarge));
}

std::uint64_t BatchReader::submit(const std::vector<std::size_t>& samples, std::vector<BatchField> fields) {
  for (const std::size_t i : samples) {
    if (i >= split_.size())
      throw Error(ExitCode::usage,
                  fmt::format("the split has {} samples, so there is no sample {}", split_.size(), i));
  }
  for (const BatchField& field : fields) {
    if (field.field >= split_.fields().size())
      throw Error(ExitCode::usage, fmt::format("there is no field {}", field.field));
    const std::size_t values = split_.fields()[field.field].values();
    if (!field.scales.empty() && values % field.scales.size() != 0)
      throw Error(ExitCode::usage,
                  fmt::format("{} scales do not divide {} values", field.scales.size(), values));
  }
  auto batch = std::make_shared<Batch>();
  batch->fields = std::move(fields);
  batch->samples = samples;
  batch->order.resize(samples.size());
  std::iota(batch->order.begin(), batch->order.end(), std::size_t{0});
  std::sort(batch->order.begin(), batch->order.end(),
            [&](std::size_t a, std::size_t b) { return samples[a] < samples[b]; });
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = next_++;
    batches_[number] = batch;
    for (std::size_t k = 0; k < batch->fields.size(); ++k) {
      const std::size_t step = part_size(samples.size(), split_.fields()[batch->fields[k].field].values());
      for (std::size_t begin = 0; begin < samples.size(); begin += step) {
        parts_.push_back({batch, k, begin, std::min(samples.size(), begin + step)});
        ++batch->parts_left;
      }
    }
  }
  has_work_.notify_all();
  return number;
}

void BatchReader::wait(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  const auto found = batches_.find(number);
  if (found == batches_.end()) throw Error(ExitCode::usage, fmt::format("no batch {} is being read", number));
  const std::shared_ptr<Batch> batch = found->second;
  batches_.erase(found);
  has_ended_.wait(lock, [&] { return batch->parts_left == 0; });
  if (batch->failure) std::rethrow_exception(batch->failure);
}

void BatchReader::keep(std::int64_t bytes, const std::vector<std::size_t>& fields) {
  std::int64_t decoded = 0;
  for (const std::size_t k : fields) {
    if (k >= split_.fields().size()) throw Error(ExitCode::usage, fmt::format("there is no field {}", k));
    decoded += SampleCache::bytes_of(split_.size(), split_.fields()[k].values());
  }
  if (decoded > bytes) {
    stored_.give_back(std::max<std::int64_t>(0, bytes));
    return;
  }
  decoded_.resize(split_.fields().size());
  for (const std::size_t k : fields) {
    if (!decoded_[k]) decoded_[k] = std::make_unique<SampleCache>(split_.size(), split_.fields()[k].values());
  }
}

void BatchReader::read(const Part& part) {
  const BatchField& field = part.batch->fields[part.field];
  const std::size_t values = split_.fields()[field.field].values();
  std::vector<std::size_t> samples;
  std::vector<std::span<float>> to;
  SampleCache* cache = field.field < decoded_.size() ? decoded_[field.field].get() : nullptr;
  if (cache != nullptr && !cache->accepts(field.scales)) cache = nullptr;
  for (std::size_t k = part.begin; k < part.end; ++k) {
    const std::size_t place = part.batch->order[k];
    const std::span<float> wanted(field.to + place * values, values);
    if (cache != nullptr && cache->copy(part.batch->samples[place], wanted)) continue;
    samples.push_back(part.batch->samples[place]);
    to.push_back(wanted);
  }
  if (samples.empty()) return;
  split_.read_fields(field.field, samples, to, field.scales, &stored_);
  for (std::size_t k = 0; cache != nullptr && k < samples.size(); ++k) cache->keep(samples[k], to[k]);
}

void BatchReader::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    has_work_.wait(lock, [&] { return stopping_ || !parts_.empty(); });
    if (stopping_) return;
    const Part part = std::move(parts_.front());
    parts_.pop_front();
    const bool failed = part.batch->failure != nullptr;
    lock.unlock();
    std::exception_ptr failure;
    try {
      if (!failed) read(part);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure && !part.batch->failure) part.batch->failure = failure;
    if (--part.batch->parts_left == 0) has_ended_.notify_all();
  }
}

SampleCache::SampleCache(std::size_t samples, std::size_t values)
    : values_(values), kept_(samples), owned_(samples) {}

std::int64_t SampleCache::bytes_of(std::size_t samples, std::size_t values) {
  constexpr std::size_t kEach = 2 * sizeof(void*) + 16;  // pointers, and the overhead of an allocation
  return static_cast<std::int64_t>(samples * (values * sizeof(float) + kEach));
}

bool SampleCache::accepts(std::span<const Scale> scales) {
  const std::lock_guard lock(mutex_);
  if (!scales_) scales_.emplace(scales.begin(), scales.end());
  return std::equal(scales_->begin(), scales_->end(), scales.begin(), scales.end(),
                    [](const Scale& a, const Scale& b) { return a == b; });
}

bool SampleCache::copy(std::size_t sample, std::span<float> to) const {
  const float* const from = kept_[sample].load(std::memory_order_acquire);
  if (from == nullptr) return false;
  std::copy_n(from, to.size(), to.begin());
  return true;
}

void SampleCache::keep(std::size_t sample, std::span<const float> values) {
  WFLOW_CHECK(values.size() == values_);
  if (kept_[sample].load(std::memory_order_relaxed) != nullptr) return;  // twice in a batch
  auto copy = std::make_unique_for_overwrite<float[]>(values.size());
  std::copy(values.begin(), values.end(), copy.get());
  const float* expected = nullptr;
  // Two threads may have read the same sample: the copy of the first stays.
  if (kept_[sample].compare_exchange_strong(expected, copy.get(), std::memory_order_acq_rel))
    owned_[sample] = std::move(copy);
}

}  // namespace wflow::converters
