// SPDX-License-Identifier: Apache-2.0
#include "engine/usage/step_usage.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/usage/quantile_sketch.h"

namespace wflow::engine {

namespace {

constexpr double kPerMillisecond = 1e3;  // in a second
constexpr double kPerMicrosecond = 1e6;
constexpr std::uint64_t kKiB = 1024;

// Optional fields of a record beyond its times; a default value takes no byte.
enum Flag : unsigned { kBundle = 1, kAttempt = 2, kRead = 4, kWritten = 8, kWorker = 16 };

std::uint64_t units(double seconds, double per_second) {
  return seconds > 0 ? static_cast<std::uint64_t>(std::llround(seconds * per_second)) : 0;
}

std::uint64_t kib(std::uint64_t bytes) {
  return (bytes + kKiB - 1) / kKiB;
}

}  // namespace

void StepUsage::add(const TaskUsage& usage) {
  duration_s.add(usage.duration_s);
  cpu_s.add(usage.cpu_s);
  peak_bytes.add(static_cast<double>(usage.peak_bytes));
  read_bytes.add(static_cast<double>(usage.read_bytes));
  written_bytes.add(static_cast<double>(usage.written_bytes));
}

std::string StepUsage::bytes() const {
  std::string bytes;
  for (const QuantileSketch* sketch : {&duration_s, &cpu_s, &peak_bytes, &read_bytes, &written_bytes})
    sketch->write(bytes);
  return bytes;
}

StepUsage StepUsage::from_bytes(std::string_view bytes) {
  StepUsage usage;
  for (QuantileSketch* sketch :
       {&usage.duration_s, &usage.cpu_s, &usage.peak_bytes, &usage.read_bytes, &usage.written_bytes}) {
    if (!sketch->read(bytes)) return {};
  }
  return usage;
}

void UsageBlock::add(const TaskUsage& usage, std::uint64_t worker) {
  const auto started_ms = static_cast<std::int64_t>(units(usage.started_s, kPerMillisecond));
  const unsigned flags = (usage.count != 1 ? kBundle : 0U) | (usage.attempt != 0 ? kAttempt : 0U) |
                         (usage.read_bytes != 0 ? kRead : 0U) | (usage.written_bytes != 0 ? kWritten : 0U) |
                         (records_ == 0 || worker != worker_ ? kWorker : 0U);
  bytes_.push_back(static_cast<char>(flags));
  put_signed(bytes_, static_cast<std::int64_t>(usage.first - before_));
  put_signed(bytes_, started_ms - before_ms_);
  put_varint(bytes_, units(usage.duration_s, kPerMicrosecond));
  put_varint(bytes_, units(usage.cpu_s, kPerMicrosecond));
  put_varint(bytes_, kib(usage.peak_bytes));
  if ((flags & kBundle) != 0) put_varint(bytes_, usage.count);
  if ((flags & kAttempt) != 0) put_varint(bytes_, usage.attempt);
  if ((flags & kRead) != 0) put_varint(bytes_, kib(usage.read_bytes));
  if ((flags & kWritten) != 0) put_varint(bytes_, kib(usage.written_bytes));
  if ((flags & kWorker) != 0) put_varint(bytes_, worker);
  first_ = records_ == 0 ? usage.first : std::min(first_, usage.first);
  last_ = std::max(last_, usage.first + usage.count - 1);
  before_ = usage.first;
  before_ms_ = started_ms;
  worker_ = worker;
  ++records_;
}

std::vector<UsageBlock::Record> UsageBlock::read(ArrayId array, std::string_view bytes) {
  std::vector<Record> records;
  Record before;
  std::int64_t started_ms = 0;
  while (!bytes.empty()) {
    const auto flags = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    Record record;
    std::int64_t element_step = 0;
    std::int64_t start_step = 0;
    std::array<std::uint64_t, 3> used{};  // duration, CPU, peak
    bool whole = get_signed(bytes, element_step) && get_signed(bytes, start_step);
    for (std::uint64_t& value : used) whole = whole && get_varint(bytes, value);
    std::array<std::uint64_t, 5> others{1, 0, 0, 0, before.worker};  // in the order of the flags
    for (unsigned i = 0; i < others.size(); ++i) {
      if ((flags & (1U << i)) != 0) whole = whole && get_varint(bytes, others[i]);
    }
    if (!whole) return records;
    started_ms += start_step;
    record.usage.array = array;
    record.usage.first = before.usage.first + static_cast<Element>(element_step);
    record.usage.count = others[0];
    record.usage.attempt = static_cast<std::uint32_t>(others[1]);
    // Divided: the nearest number to what was written, which prints in few digits.
    record.usage.started_s = static_cast<double>(started_ms) / kPerMillisecond;
    record.usage.duration_s = static_cast<double>(used[0]) / kPerMicrosecond;
    record.usage.cpu_s = static_cast<double>(used[1]) / kPerMicrosecond;
    record.usage.peak_bytes = used[2] * kKiB;
    record.usage.read_bytes = others[2] * kKiB;
    record.usage.written_bytes = others[3] * kKiB;
    record.worker = others[4];
    records.push_back(record);
    before = record;
  }
  return records;
}

}  // namespace wflow::engine
