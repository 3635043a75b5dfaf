// SPDX-License-Identifier: Apache-2.0
#include "converters/load/loader_c.h"

#include <string>

#include "base/error.h"
#include "base/resources.h"
#include "converters/load/batch_reader.h"

namespace {

constexpr std::int32_t kVersion = 3;

thread_local std::string last_error;

// The exit code of the exception that `function` throws; stores its text.
template <typename Function>
std::int32_t caught(Function function) {
  try {
    function();
    return 0;
  } catch (const wflow::Error& error) {
    last_error = error.what();
    return static_cast<std::int32_t>(error.code());
  } catch (const std::exception& error) {
    last_error = error.what();
    return static_cast<std::int32_t>(wflow::ExitCode::internal);
  }
}

}  // namespace

struct WflowLoader {
  wflow::converters::BatchReader reader;
};

std::int32_t wflow_loader_version() {
  return kVersion;
}

const char* wflow_loader_error() {
  return last_error.c_str();
}

WflowLoader* wflow_loader_open(const char* data_directory, const char* split, std::int32_t threads) {
  WflowLoader* loader = nullptr;
  caught([&] { loader = new WflowLoader{{data_directory, split, threads}}; });  // the caller closes it
  return loader;
}

void wflow_loader_close(WflowLoader* loader) {
  delete loader;
}

std::int64_t wflow_loader_samples(const WflowLoader* loader) {
  return static_cast<std::int64_t>(loader->reader.split().size());
}

std::int64_t wflow_loader_values(const WflowLoader* loader, std::int32_t field) {
  const auto& fields = loader->reader.split().fields();
  if (field < 0 || static_cast<std::size_t>(field) >= fields.size()) return -1;
  return static_cast<std::int64_t>(fields[static_cast<std::size_t>(field)].values());
}

std::int32_t wflow_loader_keep(WflowLoader* loader, std::int64_t bytes, std::int32_t fields,
                               const std::int32_t* numbers) {
  return caught([&] {
    loader->reader.keep(bytes < 0 ? wflow::free_memory() / 4 : bytes,
                        std::vector<std::size_t>(numbers, numbers + fields));
  });
}

std::int64_t wflow_loader_submit(WflowLoader* loader, std::int64_t count, const std::int64_t* samples,
                                 std::int32_t fields, const std::int32_t* numbers, float* const* to,
                                 const std::int32_t* parts, const double* const* scales) {
  std::int64_t batch = -1;
  caught([&] {
    std::vector<wflow::converters::BatchField> wanted;
    for (std::int32_t k = 0; k < fields; ++k) {
      wanted.push_back({static_cast<std::size_t>(numbers[k]), to[k], {}});
      for (std::int32_t part = 0; part < parts[k]; ++part)
        wanted.back().scales.push_back({static_cast<float>(scales[k][3 * part]),
                                        static_cast<float>(scales[k][3 * part + 1]),
                                        scales[k][3 * part + 2]});
    }
    batch = static_cast<std::int64_t>(loader->reader.submit({samples, samples + count}, std::move(wanted)));
  });
  return batch;
}

std::int32_t wflow_loader_wait(WflowLoader* loader, std::int64_t batch) {
  return caught([&] { loader->reader.wait(static_cast<std::uint64_t>(batch)); });
}
