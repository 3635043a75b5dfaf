// SPDX-License-Identifier: Apache-2.0
// The loader for other languages. All functions may be called from any thread; none throws.
#pragma once

#include <cstdint>

#define WFLOW_LOADER_API __attribute__((visibility("default")))

extern "C" {

struct WflowLoader;

// Rises with every change that a caller must know of.
WFLOW_LOADER_API std::int32_t wflow_loader_version();
// What the last failed call of this thread says.
WFLOW_LOADER_API const char* wflow_loader_error();

// Of a data directory and "train", "validation" or "test"; null where it fails.
WFLOW_LOADER_API WflowLoader* wflow_loader_open(const char* data_directory, const char* split,
                                                std::int32_t threads);
WFLOW_LOADER_API void wflow_loader_close(WflowLoader* loader);
WFLOW_LOADER_API std::int64_t wflow_loader_samples(const WflowLoader* loader);
// Of a sample of the field with that number in the manifest; -1 where there is none.
WFLOW_LOADER_API std::int64_t wflow_loader_values(const WflowLoader* loader, std::int32_t field);

// Keeps samples in memory as they are read, so that later epochs need no file: those of `fields` fields by
// their numbers decoded and scaled where all fit into `bytes`, else compressed ones as far as `bytes` go.
// With fewer than 0 bytes: a quarter of what this process could take, which the limits of its control groups
// bound. Once, before the first batch. 0, or an exit code.
WFLOW_LOADER_API std::int32_t wflow_loader_keep(WflowLoader* loader, std::int64_t bytes, std::int32_t fields,
                                                const std::int32_t* numbers);

// Begins to read `count` samples. For each of `fields` fields: its number, where its float32 values go
// ([count, values], the caller's until the batch has been waited for), and for `parts[k]` equal parts of a
// sample factor, offset and centre of (stored - centre) * factor + offset, where the difference is float64.
// The batch's number, above 0; -1 where it fails.
WFLOW_LOADER_API std::int64_t wflow_loader_submit(WflowLoader* loader, std::int64_t count,
                                                  const std::int64_t* samples, std::int32_t fields,
                                                  const std::int32_t* numbers, float* const* to,
                                                  const std::int32_t* parts, const double* const* scales);
// 0, or the exit code of wflow that names what went wrong.
WFLOW_LOADER_API std::int32_t wflow_loader_wait(WflowLoader* loader, std::int64_t batch);
}
