// SPDX-License-Identifier: Apache-2.0
// Batches of a split, which the reader's own threads read into the caller's memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "converters/shards/codec.h"
#include "converters/shards/shard_reader.h"

namespace wflow::converters {

// Decoded values of a field for the samples of a split, with one scaling: that of the first caller.
// Thread-safe.
class SampleCache {
 public:
  SampleCache(std::size_t samples, std::size_t values);
  static std::int64_t bytes_of(std::size_t samples, std::size_t values);

  // True if the cache has values with these scales.
  bool accepts(std::span<const Scale> scales);
  // False if it does not have the sample.
  bool copy(std::size_t sample, std::span<float> to) const;
  void keep(std::size_t sample, std::span<const float> values);

 private:
  const std::size_t values_;
  std::mutex mutex_;
  std::optional<std::vector<Scale>> scales_;
  std::vector<std::atomic<const float*>> kept_;  // the pointers for readers
  std::vector<std::unique_ptr<float[]>> owned_;  // the owners of the same memory
};

// A field of every sample of a batch.
struct BatchField {
  std::size_t field = 0;      // index in the manifest
  float* to = nullptr;        // [samples, values of the field]; valid until wait() returns
  std::vector<Scale> scales;  // for equal parts of a sample, or none
};

class BatchReader {
 public:
  // Opens the split. Throws like SplitReader::open.
  BatchReader(const std::filesystem::path& data_directory, std::string_view split, int threads);
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;
  ~BatchReader();  // waits for running reads

  const SplitReader& split() const { return split_; }
  // Keeps samples in memory after reading, up to this number of bytes: decoded and scaled if all of these
  // fields fit, else compressed if they are stored so. Call it once, before the first submit().
  void keep(std::int64_t bytes, const std::vector<std::size_t>& fields);
  // Begins to read a batch and returns its number for wait(). Error{usage} for an unknown sample or field.
  std::uint64_t submit(const std::vector<std::size_t>& samples, std::vector<BatchField> fields);
  // Returns when the batch is complete; call it once for each number. Rethrows the exception of a thread.
  void wait(std::uint64_t batch);

 private:
  struct Batch {
    std::vector<BatchField> fields;
    std::vector<std::size_t> order;  // places in the batch, sorted by sample
    std::vector<std::size_t> samples;
    std::size_t parts_left = 0;
    std::exception_ptr failure;
  };
  struct Part {
    std::shared_ptr<Batch> batch;
    std::size_t field = 0;
    std::size_t begin = 0;  // in `order`
    std::size_t end = 0;
  };

  void work();
  void read(const Part& part);
  std::size_t part_size(std::size_t samples, std::size_t values) const;

  SplitReader split_;
  MemoryBudget stored_{0};
  std::vector<std::unique_ptr<SampleCache>> decoded_;  // by field; null: none
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable has_ended_;
  std::deque<Part> parts_;
  std::map<std::uint64_t, std::shared_ptr<Batch>> batches_;
  std::uint64_t next_ = 1;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace wflow::converters
