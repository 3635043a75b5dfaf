// SPDX-License-Identifier: Apache-2.0
#include "traces/inference.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "traces/address_table.h"

namespace wflow::traces {
namespace {

constexpr const char* kMethods[] = {"is", "ic", "rmh"};

void append(const Row& row, std::vector<double>& rows) {
  rows.insert(rows.end(), row.begin(), row.end());
}

void append_replicas(const RunResult& result, std::span<const Observed> arrays, std::vector<double>& rows) {
  std::map<std::string, std::span<const double>> by_name;
  std::size_t count = 0;
  for (std::size_t k = 0; k < result.replicas.size(); ++k) {
    by_name[arrays[k].name] = result.replicas[k];
    count += result.replicas[k].size();
  }
  if (count > kMostReplicas) return;
  std::size_t written = 0;
  for (const auto& [name, values] : by_name) {
    for (const double value : values) {
      if (written++ % kReplicasInRow == 0) append({0, 0, kReplicaKind, 0, 0, 0, 0, 0}, rows);
      rows[rows.size() - kReplicasInRow + (written - 1) % kReplicasInRow] = value;
    }
  }
}

}  // namespace

const char* name_of(Method method) {
  return kMethods[static_cast<std::size_t>(method)];
}

std::optional<Method> method_called(const std::string& name) {
  for (const Method method : {Method::importance, Method::compiled, Method::chains})
    if (name == name_of(method)) return method;
  return std::nullopt;
}

std::string to_text(const Request& request) {
  nlohmann::json json = {{"wflow_format", kRequestFormat}, {"method", name_of(request.method)},
                         {"samples", request.samples},     {"network", request.network},
                         {"steps", request.steps},         {"burn_in", request.burn_in},
                         {"thin", request.thin},           {"observations", nlohmann::json::array()}};
  for (const Observation& one : request.observations)
    json["observations"].push_back({{"values", one.values}, {"embedding", one.embedding}});
  return json.dump(1) + "\n";
}

Request parse_request(const std::string& text, const std::string& name) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    const auto method = method_called(json.at("method"));
    if (json.at("wflow_format").get<int>() != kRequestFormat || !method)
      throw Error(ExitCode::data, fmt::format("{} is of another version of wflow", name));
    Request request = {
        *method,        {}, json.at("samples"), json.at("network"), json.at("steps"), json.at("burn_in"),
        json.at("thin")};
    for (const nlohmann::json& one : json.at("observations"))
      request.observations.push_back({one.at("values"), one.at("embedding")});
    return request;
  } catch (const nlohmann::json::exception&) {
    throw Error(ExitCode::data, fmt::format("{} is no request of wflow infer", name));
  }
}

void append_rows(const RunResult& result, std::span<const Observed> arrays, std::uint64_t sample,
                 std::vector<double>& rows) {
  append({0, 0, kBeginKind, result.log_weight(), result.log_prior, result.log_likelihood,
          static_cast<double>(sample), result.log_likelihood_of_replicas},
         rows);
  for (const TraceDraw& draw : result.draws) append(draw.row, rows);
  for (const auto& [name, value] : result.tags) {
    const std::uint64_t hash = address_hash(name);
    append({high_half(hash), low_half(hash), kTagKind, value, 0, 0, 0, 0}, rows);
  }
  append_replicas(result, arrays, rows);
}

}  // namespace wflow::traces
