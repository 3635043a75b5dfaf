// SPDX-License-Identifier: Apache-2.0
#include "converters/exchange/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "converters/convert/conversion.h"
#include "converters/input/hdf5_handle.h"
#include "converters/look/look.h"
#include "converters/readers/tfrecord.h"
#include "converters/shards/encode.h"
#include "converters/shards/manifest.h"

namespace wflow::converters {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kChannels = 4;
constexpr std::size_t kMostPrinted = 10;  // limit of printed unusable files

struct ImportFile {
  fs::path path;
  std::optional<std::size_t> split;
};

bool is_tfrecord(const fs::path& path) {
  const std::string name = text::lower(path.filename().string());
  return name.ends_with(".tfrecord") || name.ends_with(".tfrecords") || name.ends_with(".tfrecord.gz");
}
bool is_hdf5(const fs::path& path) {
  const std::string suffix = text::lower(path.extension().string());
  return suffix == ".hdf5" || suffix == ".h5";
}

// The nearest folder, up to `root`, whose name is that of a split.
std::optional<std::size_t> split_of_folder(fs::path folder, const fs::path& root) {
  for (;; folder = folder.parent_path()) {
    const std::string name = text::lower(folder.filename().string());
    if (name == "train" || name == "training") return 0;
    if (name == "validation" || name == "valid" || name == "val") return 1;
    if (name == "test" || name == "testing") return 2;
    if (folder == root || !folder.has_relative_path()) return std::nullopt;
  }
}

std::vector<ImportFile> find_import_files(const ImportOptions& options) {
  std::vector<ImportFile> files;
  for (const fs::path& source : options.sources) {
    const fs::path path = absolute_path(source).lexically_normal();
    const fs::path root = path.has_filename() ? path : path.parent_path();
    if (!fs::exists(root)) throw Error(ExitCode::data, fmt::format("{} is not there", source.string()));
    if (!fs::is_directory(root)) {
      files.push_back({root, split_of_folder(root.parent_path(), root.parent_path())});
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (entry.is_regular_file() && (is_tfrecord(entry.path()) || is_hdf5(entry.path())))
        files.push_back({entry.path(), split_of_folder(entry.path().parent_path(), root)});
    }
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  const auto same = [](const auto& a, const auto& b) { return a.path == b.path; };
  files.erase(std::unique(files.begin(), files.end(), same), files.end());
  if (files.empty()) {
    const std::vector<std::string> searched(options.sources.begin(), options.sources.end());
    throw Error(ExitCode::data,
                fmt::format("there is no .hdf5, .h5 or .tfrecord file in {}", fmt::join(searched, ", ")));
  }
  const auto placed = static_cast<std::size_t>(
      std::count_if(files.begin(), files.end(), [](const auto& file) { return file.split.has_value(); }));
  if (placed > 0 && placed < files.size()) {
    const auto other = std::find_if(files.begin(), files.end(), [](const auto& file) { return !file.split; });
    throw Error(
        ExitCode::usage,
        fmt::format("{} lies in no folder train, validation or test, as other files do; import them apart",
                    other->path.string()));
  }
  return files;
}

// Cubes of a universe (NAME_000, NAME_001, ...) are similar: they stay in one split.
std::uint64_t universe_of(const fs::path& path) {
  std::string name = path.filename().string();
  name = name.substr(0, name.find(".tfrecord"));
  const std::size_t line = name.rfind('_');
  const bool numbered = line != std::string::npos && line + 1 < name.size() &&
                        std::all_of(name.begin() + static_cast<std::ptrdiff_t>(line) + 1, name.end(),
                                    [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
  return identity_of(numbered && is_tfrecord(path) ? name.substr(0, line) : name);
}

// A damaged file has one row, and reading it reports the error.
std::uint64_t records_of(const fs::path& path) {
  try {
    return std::max<std::uint64_t>(1, count_tfrecords(path));
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) throw;
    return 1;
  }
}

// The names in namePar, if it is a list of texts of fixed or variable length.
std::vector<std::string> names_in_file(const fs::path& path) {
  const Hdf5Section section;
  const FileId file = open_hdf5(path, H5F_ACC_RDONLY);
  const DatasetId dataset(H5Dopen2(file.get(), "/namePar", H5P_DEFAULT));
  if (!dataset) return {};
  const TypeId type(H5Dget_type(dataset.get()));
  const SpaceId space(H5Dget_space(dataset.get()));
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  constexpr hssize_t kMostNames = 64;
  constexpr std::size_t kMostLetters = 256;
  if (H5Tget_class(type.get()) != H5T_STRING || count < 1 || count > kMostNames) return {};
  if (H5Tis_variable_str(type.get()) > 0) {
    std::vector<char*> texts(static_cast<std::size_t>(count), nullptr);
    if (H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, texts.data()) < 0) return {};
    std::vector<std::string> names;
    for (const char* text : texts) names.emplace_back(text == nullptr ? "" : text);
    H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, texts.data());
    return names;
  }
  const std::size_t width = H5Tget_size(type.get());
  if (width == 0 || width > kMostLetters) return {};
  std::string texts(static_cast<std::size_t>(count) * width, '\0');
  if (H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, texts.data()) < 0) return {};
  std::vector<std::string> names;
  for (std::size_t k = 0; k < static_cast<std::size_t>(count); ++k) {
    std::string name = texts.substr(k * width, width);
    name.resize(std::min(name.find('\0'), name.size()));
    while (!name.empty() && name.back() == ' ') name.pop_back();
    names.push_back(std::move(name));
  }
  return names;
}

// The layout of the volume in the bytes of x: as given, else a cube of four channels of int16 or float32. The
// size decides, because 2 a^3 = 4 b^3 has no solution in whole numbers.
RawForm form_of_bytes(const ImportOptions& options, const fs::path& file, std::size_t bytes) {
  RawForm raw;
  raw.shape = options.shape;
  raw.dtype = options.dtype.value_or(DType::int16);
  for (const DType dtype : {DType::int16, DType::float32}) {
    if (!raw.shape.empty() || (options.dtype && *options.dtype != dtype)) continue;
    const std::size_t cells = bytes / (kChannels * dtype_size(dtype));
    const auto edge = static_cast<std::size_t>(std::llround(std::cbrt(static_cast<double>(cells))));
    if (edge == 0 || edge * edge * edge * kChannels * dtype_size(dtype) != bytes) continue;
    raw.shape = {edge, edge, edge, kChannels};
    raw.dtype = dtype;
  }
  if (raw.shape.empty())
    throw Error(ExitCode::data,
                fmt::format("x of {} has {} bytes, which is no cube of 4 channels of int16 or "
                            "float32; --shape D,H,W,C and --dtype say what it is",
                            file.string(), bytes));
  return raw;
}

// The layout in the first readable file.
template <typename Look>
auto look_at_first(const std::vector<ImportFile>& files, Look look) {
  for (std::size_t k = 0;; ++k) {
    try {
      return look(files[k].path);
    } catch (const Error& error) {
      if (error.code() != ExitCode::data || k + 1 == files.size()) throw;
    }
  }
}

ConvertConfig import_config(const ImportOptions& options, const std::vector<ImportFile>& files,
                            bool tfrecord) {
  FieldConfig x;
  x.name = "x";
  x.layout = "DHWC";
  x.narrow = true;  // counts of particles, most of them small
  FieldConfig y;
  y.name = "y";
  y.role = Role::target;
  y.layout = "C";
  y.channels = options.labels;
  std::size_t labels = kChannels;
  if (tfrecord) {
    x.selector.format = y.selector.format = Format::tfrecord;
    x.selector.dataset = "x";
    y.selector.dataset = "y";
    x.selector.raw = look_at_first(files, [&](const fs::path& file) {
      const FeatureSize size = feature_size(file, "x");
      labels = feature_size(file, "y").values;
      if (!size.is_bytes)
        throw Error(ExitCode::data, fmt::format("x of {} is a list of numbers, not bytes", file.string()));
      return form_of_bytes(options, file, size.bytes);
    });
    if (x.selector.raw.shape.size() != 4) x.layout.clear();
  } else {
    x.selector.format = y.selector.format = Format::hdf5;
    x.selector.dataset = "/full";
    y.selector.dataset = options.physical ? "/physPar" : "/unitPar";
    if (y.channels.empty())
      y.channels = look_at_first(files, [](const fs::path& file) { return names_in_file(file); });
  }
  if (y.channels.empty() && labels == kChannels) y.channels = {"omega_m", "sigma_8", "n_s", "h_0"};
  if (options.subcubes > 0)
    x.transforms.push_back({Transform::Kind::subcubes, static_cast<double>(options.subcubes), 0});
  ConvertConfig config;
  config.short_form = false;
  config.fields = {x, y};
  config.stacked = tfrecord;
  config.compression = Compression::automatic;
  config.split.parts = options.split;
  config.split.seed = options.seed;
  config.split.order = SplitOrder::hash;  // by universe, which stays in one split
  config.name = "cosmoflow";
  return config;
}

std::vector<SampleRow> import_rows(const std::vector<ImportFile>& files, bool tfrecord) {
  std::vector<SampleRow> rows;
  for (const ImportFile& file : files) {
    const std::uint64_t records = tfrecord ? records_of(file.path) : 1;
    const SharedPath path = file.path;
    for (std::uint64_t record = 0; record < records; ++record) {
      SampleRow row;
      row.number = rows.size();
      row.id = static_cast<std::int64_t>(rows.size());
      row.file = path;
      row.identity = universe_of(file.path);
      row.split = file.split;
      if (tfrecord && records > 1) row.row = record;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// Records the file of each sample, for `sample --lineage`.
void write_sources(const fs::path& out, const std::vector<SampleRow>& rows) {
  std::string text = "id,record,file\n";
  for (const SampleRow& row : rows)
    text += fmt::format("{},{},{}\n", row.id, row.row.value_or(0), row.file->string());
  write_file_durably(out / kSourcesName, text);
}

// Continues blocks of an earlier import, and refuses any other content.
void check_out(const fs::path& out) {
  if (!fs::exists(out)) return;
  const bool ours = fs::is_directory(out) && (fs::is_empty(out) || fs::is_directory(out / "blocks"));
  if (ours && !fs::exists(out / kManifestName)) return;
  throw Error(ExitCode::usage,
              fmt::format("{} is there already; remove it, or name another folder", out.string()));
}

}  // namespace

void import_mlperf(const ImportOptions& options) {
  check_out(options.out);
  const std::vector<ImportFile> files = find_import_files(options);
  const bool tfrecord = is_tfrecord(files.front().path);
  for (const ImportFile& file : files) {
    if (is_tfrecord(file.path) != tfrecord)
      throw Error(ExitCode::usage, fmt::format("{} and {} are of two formats; import them apart",
                                               files.front().path.string(), file.path.string()));
  }
  const std::vector<SampleRow> rows = import_rows(files, tfrecord);
  Conversion conversion;
  conversion.config = import_config(options, files, tfrecord);
  conversion.output = options.out;
  conversion.threads = options.threads;
  conversion.given_splits = files.front().split.has_value();
  ConvertConfig& config = conversion.config;
  config.output = options.out.string();
  config.count = rows.size();
  config.shard_samples = options.shard_samples;
  if (config.shard_samples == 0) {
    std::uint64_t bytes = 0;
    if (const auto form = find_form(config, {}, rows)) {
      for (const FieldForm& field : *form) bytes += field.values() * field.pieces * dtype_size(field.dtype);
    }
    config.shard_samples = shard_samples_of(config, config.count, bytes);
  }
  std::size_t unusable = 0;
  BlockObserver observer;
  observer.missing = [&](const MissingSample& sample) {
    if (++unusable <= kMostPrinted)
      fmt::print(stderr, "sample {} is left out: {}\n", sample.id, sample.reason);
    if (unusable == kMostPrinted)
      fmt::print(stderr,
                 "(further ones are not listed; `wflow shards ls` and `wflow-convert inspect` tell)\n");
  };
  const Blocks blocks = blocks_of(config);
  for (std::uint64_t block = 0; block < blocks.count(config.count); ++block) {
    const BlockRange range = blocks.items(block, config.count);
    const std::vector<SampleRow> part(rows.begin() + static_cast<std::ptrdiff_t>(range.first),
                                      rows.begin() + static_cast<std::ptrdiff_t>(range.end));
    convert_block(conversion, block, part, observer);
  }
  write_sources(options.out, rows);
  const Manifest manifest = finish_conversion(conversion);
  for (const FieldInfo& field : manifest.fields) fmt::print("{}\n", describe_field(field));
  fmt::print("{}: {} train, {} validation, {} test samples, {} missing\n", options.out.string(),
             manifest.split("train").samples, manifest.split("validation").samples,
             manifest.split("test").samples, manifest.missing.size());
}

}  // namespace wflow::converters
