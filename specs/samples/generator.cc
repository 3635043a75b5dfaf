// SPDX-License-Identifier: Apache-2.0
// --pgen FILE: the function get_custom_generator(env, **kwargs) of a Python file makes the parameters, as
// with Maestro. The system's python3 runs it through a driver, which replaces the part of maestrowf
// that such files import if that is not installed.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "specs/study/reading.h"

namespace wflow::specs {

namespace {

// Takes a JSON object {file, variables, arguments}; prints {"parameters": {NAME: {values, label, name}}} or
// {"error": ...}. The generator's own output goes to standard error.
constexpr const char* kDriver = R"py(
import importlib.util, json, os, sys, traceback, types

request = json.loads(sys.argv[1])
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


class ParameterGenerator:
    def __init__(self, token="$", ltoken="%%"):
        self.parameters, self.labels, self.names = {}, {}, {}
        self.token, self.label_token = token, ltoken

    def add_parameter(self, key, values, label=None, name=None):
        if key in self.parameters:
            raise ValueError("the parameter '%s' is added twice" % key)
        self.parameters[key] = list(values)
        self.labels[key] = label if label else "%s.%s" % (key, self.label_token)
        self.names[key] = name if name else key


class Variable:
    def __init__(self, name, value):
        self.name, self.value, self.token = name, value, "$"


class Environment:
    def __init__(self, variables):
        self.substitutions = {name: Variable(name, value) for name, value in variables}

    def find(self, key):
        return self.substitutions.get(key)


def stand_in():
    names = ["maestrowf", "maestrowf.datastructures", "maestrowf.datastructures.core"]
    modules = [types.ModuleType(name) for name in names]
    for module in modules:
        module.__path__ = []
        sys.modules[module.__name__] = module
    modules[0].datastructures = modules[1]
    modules[1].core = modules[2]
    parameters = types.ModuleType(names[2] + ".parameters")
    sys.modules[parameters.__name__] = parameters
    modules[2].parameters = parameters
    for module in (modules[2], parameters):
        module.ParameterGenerator = ParameterGenerator


def run():
    try:
        import maestrowf.datastructures.core
    except ImportError:
        stand_in()
    path = request["file"]
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("wflow_generator", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_custom_generator"):
        raise AttributeError("it has no function get_custom_generator(env, **kwargs)")
    made = module.get_custom_generator(Environment(request["variables"]), **request["arguments"])
    if not hasattr(made, "parameters") or not hasattr(made, "labels"):
        raise TypeError("get_custom_generator() gave %r, no ParameterGenerator" % type(made).__name__)
    result = {}
    for key, values in made.parameters.items():
        label = made.labels[key]
        result[str(key)] = {
            "values": [str(value) for value in values],
            "label": [str(one) for one in label] if isinstance(label, (list, tuple)) else str(label),
            "name": str(getattr(made, "names", {}).get(key, key)),
        }
    return result


try:
    response = {"parameters": run()}
except BaseException as error:
    said = traceback.format_exception_only(type(error), error)[-1].strip()
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == request["file"]]
    response = {"error": said, "line": lines[-1] if lines else getattr(error, "lineno", None) or 0}
json.dump(response, answer)
answer.flush()
)py";

nlohmann::json arguments_of(const ReadOptions& options) {
  nlohmann::json arguments = nlohmann::json::object();
  for (const std::string& argument : options.generator_arguments) {
    const std::size_t colon = argument.find(':');
    if (colon == std::string::npos || text::trim(argument.substr(0, colon)).empty())
      throw Error(ExitCode::usage, fmt::format("--pargs takes KEY:VALUE, found '{}'", argument));
    arguments[std::string(text::trim(argument.substr(0, colon)))] = text::trim(argument.substr(colon + 1));
  }
  return arguments;
}

// The "parameters" object that the driver prints, as text.
std::string run_generator(const Study& study) {
  const auto here = (study.options.directory / study.options.generator).lexically_normal();
  std::error_code ignored;
  const std::string file = std::filesystem::exists(here, ignored)
                               ? here.string()
                               : locate(study, study.options.generator).string();
  nlohmann::json variables = nlohmann::json::array();
  for (const auto& [name, value] : study.variables) variables.push_back({name, value});
  const bool has_output_path =
      std::any_of(study.variables.begin(), study.variables.end(),
                  [](const auto& variable) { return variable.first == "OUTPUT_PATH"; });
  if (!has_output_path) variables.push_back({"OUTPUT_PATH", study.output_path.string()});
  variables.push_back({"SPECROOT", study.file.parent_path().string()});
  const nlohmann::json request = {
      {"file", file}, {"variables", variables}, {"arguments", arguments_of(study.options)}};
  const auto python = find_program("python3");
  if (!python) throw Error(ExitCode::system, "--pgen needs python3, which is not in PATH");
  SpawnRequest spawn;
  spawn.argv = {*python, "-c", kDriver,
                request.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
  const CommandResult result = run_command(spawn);
  const nlohmann::json answer = nlohmann::json::parse(result.out, nullptr, false);
  if (!answer.is_object()) {
    throw Error(ExitCode::spec,
                fmt::format("the parameter generator {} ended with exit code {} and no parameters{}", file,
                            result.status, result.err.empty() ? "" : ":\n" + text::tail(result.err, 400)));
  }
  if (const auto error = answer.find("error"); error != answer.end()) {
    const int line = answer.value("line", 0);
    throw Error(ExitCode::spec,
                fmt::format("{}{}: error: the parameter generator failed: {}", file,
                            line > 0 ? fmt::format(":{}", line) : "", error->get<std::string>()));
  }
  return answer.at("parameters").dump();
}

yaml::Node node_of(const nlohmann::json& json) {
  if (json.is_array()) {
    std::vector<yaml::Node> items;
    for (const auto& item : json) items.push_back(node_of(item));
    return yaml::sequence(std::move(items));
  }
  return yaml::scalar(json.is_string() ? json.get<std::string>() : json.dump());
}

}  // namespace

void generate_parameters(Reading& reading) {
  ReadOptions& options = reading.study.options;
  if (options.generator.empty()) {
    if (!options.generator_arguments.empty()) throw Error(ExitCode::usage, "--pargs is for --pgen");
    return;
  }
  if (reading.diagnostics.has_errors()) return;  // the generator would get wrong variables
  if (options.parameters.empty()) options.parameters = run_generator(reading.study);
  const nlohmann::json made = nlohmann::json::parse(options.parameters, nullptr, false);
  if (!made.is_object()) throw Error(ExitCode::data, "the recorded parameters of --pgen do not read");
  std::vector<std::pair<std::string, yaml::Node>> entries;
  for (const auto& [name, parameter] : made.items()) {
    std::vector<std::pair<std::string, yaml::Node>> keys;
    for (const auto& [key, value] : parameter.items()) {
      if (key != "name" || value != name) keys.emplace_back(key, node_of(value));
    }
    entries.emplace_back(name, yaml::map(std::move(keys)));
  }
  std::erase_if(reading.root.entries, [](const auto& entry) {
    return entry.first.text == "global.parameters" || entry.first.text == "parameters";
  });
  reading.root.entries.emplace_back(yaml::scalar("global.parameters"), yaml::map(std::move(entries)));
}

}  // namespace wflow::specs
