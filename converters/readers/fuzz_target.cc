// SPDX-License-Identifier: Apache-2.0
// The target of libFuzzer for the readers of foreign files (converters/readers/README.md): the first byte
// selects the format, the rest is the file.
#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/protobuf.h"
#include "converters/readers/reader.h"
#include "converters/readers/test_files.h"

namespace {

using namespace wflow;
using namespace wflow::converters;

constexpr std::size_t kMostBytes = 64 << 10;

struct Setting {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("wflow-fuzz-" + std::to_string(::getpid()));
  std::vector<TestFile> files;
  Setting() {
    std::filesystem::create_directories(folder);
    files = write_test_files(folder);
    // Seeds for `corpus`, if requested.
    if (const char* corpus = std::getenv("WFLOW_FUZZ_SEEDS")) {
      for (std::size_t k = 0; k < files.size(); ++k)
        write_file_durably(std::filesystem::path(corpus) / ("seed-" + std::to_string(k)),
                           static_cast<char>(k) + read_file(folder / files[k].name));
    }
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Setting setting;
  if (size < 2 || size > kMostBytes) return 0;
  const TestFile& file = setting.files[data[0] % setting.files.size()];
  const auto path = setting.folder / "input";
  {
    const FileDescriptor fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
    const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
    // Checksums would hide the content from the fuzzer: every other input gets correct ones.
    const bool framed = file.selector.format == Format::tfrecord && size % 2 == 0;
    write_all(fd.get(), framed ? tfrecord_of(bytes) : std::string(bytes), path);
  }
  try {
    read_array(path, file.selector);
  } catch (const Error& error) {
    WFLOW_CHECK(error.code() != ExitCode::internal);
  }
  return 0;
}
