// SPDX-License-Identifier: Apache-2.0
// The loader for other languages. All functions may be called from any thread; none throws.
#pragma once

#include <cstdint>

#define WFLOW_LOADER_API __attribute__((visibility("default")))

extern "C" {

struct WflowLoader;

// Increases with every change that callers must know.
WFLOW_LOADER_API std::int32_t wflow_loader_version();
// The message of the last failed call of this thread.
WFLOW_LOADER_API const char* wflow_loader_error();

// Opens the split "train", "validation" or "test" of a data directory; null if that fails.
WFLOW_LOADER_API WflowLoader* wflow_loader_open(const char* data_directory, const char* split,
                                                std::int32_t threads);
WFLOW_LOADER_API void wflow_loader_close(WflowLoader* loader);
WFLOW_LOADER_API std::int64_t wflow_loader_samples(const WflowLoader* loader);
// The values of a sample of the field with that number in the manifest; -1 if there is none.
WFLOW_LOADER_API std::int64_t wflow_loader_values(const WflowLoader* loader, std::int32_t field);

// Keeps samples in memory after reading, so that later epochs need no file: those of `fields` fields, given
// by their numbers, decoded and scaled if all fit into `bytes`, else compressed up to `bytes`. Negative
// `bytes`: a quarter of the memory that this process could take, limited by its control groups. Call it once,
// before the first batch. 0, or an exit code.
WFLOW_LOADER_API std::int32_t wflow_loader_keep(WflowLoader* loader, std::int64_t bytes, std::int32_t fields,
                                                const std::int32_t* numbers);

// Begins to read `count` samples. For each of `fields` fields: its number, the memory for its float32 values
// ([count, values], which must stay valid until wait), and for `parts[k]` equal parts of a sample factor,
// offset and centre of (stored - centre) * factor + offset, where the difference is float64. Returns the
// batch's number, above 0; -1 if it fails.
WFLOW_LOADER_API std::int64_t wflow_loader_submit(WflowLoader* loader, std::int64_t count,
                                                  const std::int64_t* samples, std::int32_t fields,
                                                  const std::int32_t* numbers, float* const* to,
                                                  const std::int32_t* parts, const double* const* scales);
// 0, or the exit code of wflow for the error.
WFLOW_LOADER_API std::int32_t wflow_loader_wait(WflowLoader* loader, std::int64_t batch);
}
