// SPDX-License-Identifier: Apache-2.0
#include "cli/export/ro_crate.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/program_file.h"
#include "base/text.h"
#include "cli/campaign/update.h"
#include "specs/plan/versions.h"

namespace wflow::cli {

namespace {

// The SHA-256 of a file, in hexadecimal, for checksums that others check with sha256sum. Throws Error{system}
// where the file can't be read.
std::string sha256_of(const std::filesystem::path& file) {
  if (::sodium_init() < 0) throw Error(ExitCode::system, "libsodium cannot start");
  const FileDescriptor fd = open_file(file, O_RDONLY | O_CLOEXEC);
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  std::string buffer(std::size_t{1} << 20, '\0');
  std::uint64_t offset = 0;
  std::size_t got = 0;
  do {
    got = read_at(fd.get(), offset, buffer.data(), buffer.size(), file);
    crypto_hash_sha256_update(&state, reinterpret_cast<const unsigned char*>(buffer.data()), got);
    offset += got;
  } while (got == buffer.size());
  std::array<unsigned char, crypto_hash_sha256_BYTES> digest{};
  crypto_hash_sha256_final(&state, digest.data());
  std::array<char, 2 * crypto_hash_sha256_BYTES + 1> text{};
  return sodium_bin2hex(text.data(), text.size(), digest.data(), digest.size());
}

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string iso_time(double unix_s) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(unix_s)));
}

Json reference(const std::string& id) {
  return {{"@id", id}};
}

std::string encoding_of(const fs::path& file) {
  const std::string suffix = text::lower(file.extension().string());
  if (suffix == ".yaml") return "application/yaml";
  if (suffix == ".json") return "application/json";
  if (suffix == ".csv") return "text/csv";
  if (suffix == ".tsv") return "text/tab-separated-values";
  if (suffix == ".h5") return "application/x-hdf5";
  return suffix == ".tab" || suffix == ".lines" ? "text/plain" : "application/octet-stream";
}

// The path as part of a URI: percent-encodes every other character.
std::string uri_path(std::string_view path) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
  std::string uri;
  for (const char c : path)
    uri += kPlain.find(c) != std::string_view::npos ? std::string(1, c)
                                                    : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return uri;
}

class Crate {
 public:
  Crate(const specs::Plan& plan, const engine::CampaignStatus& status, fs::path folder)
      : plan_(plan), status_(status), folder_(std::move(folder)) {}

  void write(const std::string& license) {
    add_versions();
    add_samples();
    add_status();
    add_sources();
    add_outputs();
    add_actions();
    add_root(license);
    const Json document = {{"@context",
                            {"https://w3id.org/ro/crate/1.1/context",
                             {{"sha256", "https://w3id.org/ro/terms/workflow-run#sha256"}}}},
                           {"@graph", graph_}};
    write_file_durably(folder_ / "ro-crate-metadata.json",
                       document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  }

 private:
  Json file_entity(const std::string& id, const std::string& name, const fs::path& file) {
    return {{"@id", id},
            {"@type", "File"},
            {"name", name},
            {"contentSize", std::to_string(fs::file_size(file))},
            {"sha256", sha256_of(file)},
            {"encodingFormat", encoding_of(file)}};
  }

  void add_part(Json entity) {
    parts_.push_back(reference(entity.at("@id")));
    graph_.push_back(std::move(entity));
  }

  // Copies a file into the crate.
  Json copied(const fs::path& file, const std::string& to, const std::string& name) {
    fs::create_directories((folder_ / to).parent_path());
    fs::copy_file(file, folder_ / to);
    return file_entity(uri_path(to), name, folder_ / to);
  }

  // Adds an input or output of the run by its path.
  std::optional<std::string> add_place(const fs::path& path, const std::string& name,
                                       const std::string& about) {
    std::error_code none;
    const bool file = fs::is_regular_file(path, none);
    if (!file && !fs::is_directory(path, none)) return std::nullopt;
    const std::string id = "file://" + uri_path(path.string()) + (file || path.filename().empty() ? "" : "/");
    if (!seen_.insert(id).second) return id;
    if (file) {
      Json entity = file_entity(id, name, path);
      if (!about.empty()) entity["description"] = about;
      add_part(std::move(entity));
      return id;
    }
    Json entity = {{"@id", id}, {"@type", "Dataset"}, {"name", name}};
    if (!about.empty()) entity["description"] = about;
    add_part(std::move(entity));
    return id;
  }

  void add_agent(const specs::VersionInfo& version) {
    const std::string id = "#user-" + uri_path(version.user);
    if (!seen_.insert(id).second) return;
    graph_.push_back({{"@id", id}, {"@type", "Person"}, {"name", version.user}});
  }

  void add_versions() {
    graph_.push_back({{"@id", "#yaml"},
                      {"@type", "ComputerLanguage"},
                      {"name", "wflow study"},
                      {"alternateName", "Merlin and Maestro study"}});
    for (const specs::VersionInfo& version :
         specs::versions(plan_.campaign(), recorded_version(plan_.campaign()))) {
      const std::string name = fmt::format("study-{}.yaml", version.number);
      Json entity = copied(specs::version_directory(plan_.campaign(), version.number) / "study.yaml", name,
                           fmt::format("{}, version {} of the study", status_.name, version.number));
      add_agent(version);
      user_ = "#user-" + uri_path(version.user);
      entity["@type"] = {"File", "SoftwareSourceCode", "ComputationalWorkflow"};
      entity["programmingLanguage"] = reference("#yaml");
      entity["author"] = reference(user_);
      entity["dateCreated"] = iso_time(version.time_s);
      if (!version.why.empty()) entity["description"] = version.why;
      workflow_ = name;
      add_part(std::move(entity));
    }
  }

  void add_samples() {
    if (!plan_.study().samples) return;
    for (const specs::SampleFile& file : specs::sample_files(plan_.study().samples->design)) {
      std::error_code none;
      if (!fs::is_regular_file(file.file, none)) continue;
      Json entity = copied(file.file, "samples/" + file.copy, "table of samples");
      inputs_.push_back(reference(entity.at("@id")));
      add_part(std::move(entity));
    }
  }

  void add_status() {
    const fs::path file = folder_ / "status.json";
    write_file_durably(file,
                       engine::to_json(status_).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    Json entity = file_entity("status.json", "status of the campaign, as wflow status --json gives it", file);
    results_.push_back(reference("status.json"));
    add_part(std::move(entity));
  }

  void add_sources() {
    for (const specs::Step& step : plan_.study().steps) {
      for (const std::string& source : step.sources) {
        const fs::path path = (plan_.study().file.parent_path() / source).lexically_normal();
        if (const auto id = add_place(path, source, "source of the step " + step.name))
          inputs_.push_back(reference(*id));
      }
    }
  }

  void add_outputs() {
    for (const auto& artifact : status_.artifacts) {
      const fs::path path = artifact.path;
      const auto id = add_place(path, path.filename().string(),
                                fmt::format("{} of the step {}", artifact.kind, artifact.step));
      if (!id) continue;
      results_.push_back(reference(*id));
      by_step_[artifact.step].push_back(reference(*id));
    }
    if (const auto id =
            add_place(plan_.campaign(), status_.name, "the campaign's directory: what its tasks left"))
      results_.push_back(reference(*id));
  }

  // At rest, an action that is not all done has failed: by tasks, by a stop, or because it was cancelled.
  Json action(const std::string& id, const std::string& name, bool all_done) const {
    const double end_s = status_.time_s > 0 ? status_.time_s : status_.started_s;
    Json entity = {{"@id", id},
                   {"@type", "CreateAction"},
                   {"name", name},
                   {"instrument", reference(workflow_)},
                   {"agent", reference(user_)},
                   {"startTime", iso_time(status_.started_s)}};
    const bool over = engine::is_at_rest(status_.state);
    if (over) entity["endTime"] = iso_time(end_s);
    const char* const ended =
        all_done ? "http://schema.org/CompletedActionStatus" : "http://schema.org/FailedActionStatus";
    entity["actionStatus"] = reference(over ? ended : "http://schema.org/ActiveActionStatus");
    return entity;
  }

  void add_actions() {
    const std::string engine = "#wflow";
    graph_.push_back({{"@id", engine},
                      {"@type", "SoftwareApplication"},
                      {"name", "wflow"},
                      {"softwareVersion", kVersion}});
    Json steps = Json::array();
    bool all_done = true;
    for (const auto& step : status_.steps) {
      const std::string id = "#step-" + uri_path(step.name);
      const auto done = step.count(engine::ElementState::done) + step.count(engine::ElementState::skipped);
      all_done = all_done && done == step.elements;
      Json entity = action(id, "step " + step.name, done == step.elements);
      entity["description"] =
          fmt::format("{} of {} tasks done, {} failed", step.count(engine::ElementState::done), step.elements,
                      step.failed());
      const auto made = by_step_.find(step.name);
      if (made != by_step_.end()) entity["result"] = made->second;
      graph_.push_back(std::move(entity));
      steps.push_back(reference(id));
      actions_.push_back(reference(id));
    }
    Json run = action("#run", "run of " + status_.name, all_done);
    run["object"] = inputs_;
    run["result"] = results_;
    graph_.push_back(std::move(run));
    actions_.push_back(reference("#run"));
    graph_.push_back({{"@id", "#engine-run"},
                      {"@type", "OrganizeAction"},
                      {"name", "run of wflow"},
                      {"instrument", reference(engine)},
                      {"agent", reference(user_)},
                      {"object", std::move(steps)},
                      {"result", reference("#run")},
                      {"startTime", iso_time(status_.started_s)}});
    actions_.push_back(reference("#engine-run"));
  }

  void add_root(const std::string& license) {
    const bool uri = license.find(':') != std::string::npos;
    const std::string id = uri ? license : "https://spdx.org/licenses/" + license;
    graph_.push_back({{"@id", id}, {"@type", "CreativeWork"}, {"name", license}});
    const std::string& about = plan_.study().description;
    Json root = {{"@id", "./"},
                 {"@type", "Dataset"},
                 {"name", status_.name},
                 {"description", about.empty() ? "a campaign of wflow" : about},
                 {"datePublished", iso_time(static_cast<double>(std::time(nullptr)))},
                 {"license", reference(id)},
                 {"author", reference(user_)},
                 {"mainEntity", reference(workflow_)},
                 {"hasPart", parts_},
                 {"mentions", actions_}};
    graph_.insert(graph_.begin(), std::move(root));
    graph_.insert(graph_.begin(), Json{{"@id", "ro-crate-metadata.json"},
                                       {"@type", "CreativeWork"},
                                       {"conformsTo", reference("https://w3id.org/ro/crate/1.1")},
                                       {"about", reference("./")}});
  }

  const specs::Plan& plan_;
  const engine::CampaignStatus& status_;
  fs::path folder_;
  std::vector<Json> graph_;
  Json parts_ = Json::array(), inputs_ = Json::array(), results_ = Json::array(), actions_ = Json::array();
  std::map<std::string, std::vector<Json>> by_step_;
  std::set<std::string> seen_;
  std::string workflow_, user_;
};

}  // namespace

void write_ro_crate(const specs::Plan& plan, const engine::CampaignStatus& status, const std::string& license,
                    const fs::path& crate) {
  std::error_code none;
  if (fs::exists(crate, none))
    throw Error(ExitCode::usage, fmt::format("{} is there already; name a new folder", crate.string()));
  make_directories(crate);
  try {
    Crate(plan, status, crate).write(license);
  } catch (const fs::filesystem_error& error) {
    fs::remove_all(crate, none);
    throw Error(ExitCode::system, fmt::format("cannot write {}: {}", crate.string(), error.what()));
  } catch (...) {
    fs::remove_all(crate, none);
    throw;
  }
}

}  // namespace wflow::cli
