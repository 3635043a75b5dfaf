// SPDX-License-Identifier: Apache-2.0
// The main of a fuzz target where there is no libFuzzer: the target gets damaged seeds and random bytes. A
// round depends on its number alone, so that a failing one can be run again.
//
//   TARGET [--rounds N] [--round N] [FILE or FOLDER of seeds...]
#include <sanitizer/common_interface_defs.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostEdits = 8;
constexpr std::uint64_t kMostRandomBytes = 2000;

// For the handlers of a failure.
volatile std::uint64_t current_round = 0;

void print_round() {
  std::fprintf(stderr, "fuzz: failed in round %llu; --round runs it again\n",
               static_cast<unsigned long long>(current_round));
}

class Dice {
 public:
  explicit Dice(std::uint64_t round) : round_(round) {}
  std::uint64_t operator()(std::uint64_t below) {
    return below == 0 ? 0 : wflow::hash64(round_, next_++) % below;
  }

 private:
  std::uint64_t round_;
  std::uint64_t next_ = 0;
};

std::string random_bytes(Dice& dice) {
  std::string bytes(dice(kMostRandomBytes), '\0');
  const std::uint64_t values = 1 + dice(256);
  for (char& byte : bytes) byte = static_cast<char>(dice(values));
  return bytes;
}

// Any byte, or one that means something in texts.
char some_byte(Dice& dice) {
  constexpr std::string_view kMarks = "$(){}[]:,-*&!|>'\"#%@ \n\t\\~0a.\xff";
  return dice(2) == 0 ? kMarks[dice(kMarks.size())] : static_cast<char>(dice(256));
}

void edit(std::string& bytes, const std::string& other, Dice& dice) {
  const std::size_t at = dice(bytes.size() + 1);
  switch (dice(6)) {
    case 0:
      bytes.insert(at, 1, some_byte(dice));
      break;
    case 1:
      bytes.erase(at, 1 + dice(8));
      break;
    case 2:
      if (at < bytes.size()) bytes[at] = some_byte(dice);
      break;
    case 3:
      if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << dice(8)));
      break;
    case 4:
      bytes.insert(at, bytes.substr(dice(bytes.size() + 1), dice(60)));
      break;
    default:
      bytes.insert(at, other.substr(dice(other.size() + 1), dice(60)));
  }
}

std::string input_of(std::uint64_t round, const std::vector<std::string>& seeds) {
  Dice dice(round);
  if (seeds.empty() || dice(8) == 0) return random_bytes(dice);
  std::string bytes = seeds[dice(seeds.size())];
  const std::string& other = seeds[dice(seeds.size())];
  for (std::uint64_t edits = 1 + dice(kMostEdits); edits > 0; --edits) edit(bytes, other, dice);
  return bytes;
}

void read_seeds(const fs::path& path, std::vector<std::string>& seeds) {
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  for (const fs::path& file : files) seeds.push_back(wflow::read_file(file));
}

// Some targets write seeds into this folder when they first run.
void read_seeds_of_target(std::vector<std::string>& seeds) {
  std::string folder = (fs::temp_directory_path() / "wflow-seeds-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return;
  ::setenv("WFLOW_FUZZ_SEEDS", folder.c_str(), 1);
  LLVMFuzzerTestOneInput(nullptr, 0);
  read_seeds(folder, seeds);
  fs::remove_all(folder);
}

void run(std::uint64_t round, const std::vector<std::string>& seeds) {
  current_round = round;
  const std::string bytes = input_of(round, seeds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t rounds = 1000;
  std::optional<std::uint64_t> only;
  std::vector<std::string> seeds;
  read_seeds_of_target(seeds);
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--rounds" && i + 1 < argc) {
      rounds = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--round" && i + 1 < argc) {
      only = std::strtoull(argv[++i], nullptr, 10);
    } else {
      read_seeds(word, seeds);
    }
  }
  __sanitizer_set_death_callback(print_round);
  std::signal(SIGABRT, [](int) { print_round(); });
  if (only) {
    run(*only, seeds);
    return 0;
  }
  for (std::uint64_t round = 0; round < rounds; ++round) run(round, seeds);
  std::printf("fuzz: %llu rounds with %zu seeds\n", static_cast<unsigned long long>(rounds), seeds.size());
  return 0;
}
