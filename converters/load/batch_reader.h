// SPDX-License-Identifier: Apache-2.0
// Batches of a split, read by threads of their own into the caller's memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "converters/load/sample_cache.h"
#include "converters/shards/shard_reader.h"

namespace wflow::converters {

// A field of every sample of a batch.
struct BatchField {
  std::size_t field = 0;      // of the manifest
  float* to = nullptr;        // [samples, values of the field]; valid until wait() returns
  std::vector<Scale> scales;  // of equal parts of a sample, or none
};

class BatchReader {
 public:
  // Opens the split. Error as SplitReader::open.
  BatchReader(const std::filesystem::path& data_directory, std::string_view split, int threads);
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;
  ~BatchReader();  // waits for what is being read

  const SplitReader& split() const { return split_; }
  // Samples that were read stay in memory, up to so many bytes: decoded and scaled where all of these fields
  // fit, else compressed as far as they are stored so. Before the first submit(), once.
  void keep(std::int64_t bytes, const std::vector<std::size_t>& fields);
  // Begins to read; the number to wait for. Error{usage} where there is no such sample or field.
  std::uint64_t submit(const std::vector<std::size_t>& samples, std::vector<BatchField> fields);
  // Returns once the batch is whole; each number once. Rethrows what a thread threw.
  void wait(std::uint64_t batch);

 private:
  struct Batch {
    std::vector<BatchField> fields;
    std::vector<std::size_t> order;  // places in the batch, by sample
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
