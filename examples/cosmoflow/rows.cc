// SPDX-License-Identifier: Apache-2.0
#include "universe.h"

#include <cctype>
#include <charconv>
#include <map>
#include <set>

#include "cosmology.h"

namespace cola {
namespace {

std::string trimmed(const std::string& text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '"'; };
  std::size_t first = 0, last = text.size();
  while (first < last && blank(text[first])) ++first;
  while (last > first && blank(text[last - 1])) --last;
  return text.substr(first, last - first);
}

// Fields of one line; a comma within quotes does not split.
std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (char c : line) {
    if (c == '"') quoted = !quoted;
    if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  for (std::string& field : fields) field = trimmed(field);
  return fields;
}

// Letters and digits in lower case: what names are compared by.
std::string key_of(const std::string& name) {
  std::string key;
  for (char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c))) key += static_cast<char>(std::tolower(c));
  }
  return key;
}

template <typename Number>
Number parse(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error(ExitCode::usage, "'" + text + "' is not " +
                                     (std::is_integral_v<Number> ? "a whole number in range" : "a number") +
                                     ".");
  }
  return value;
}

using Setter = void (*)(UniverseSpec&, const std::string&);

const std::map<std::string, Setter>& setters() {
  static const std::map<std::string, Setter> table = {
      {"omegam", [](UniverseSpec& s, const std::string& v) { s.cosmology.omega_m = parse<double>(v); }},
      {"sigma8", [](UniverseSpec& s, const std::string& v) { s.cosmology.sigma_8 = parse<double>(v); }},
      {"ns", [](UniverseSpec& s, const std::string& v) { s.cosmology.n_s = parse<double>(v); }},
      {"h", [](UniverseSpec& s, const std::string& v) { s.cosmology.h = parse<double>(v); }},
      {"omegab", [](UniverseSpec& s, const std::string& v) { s.cosmology.omega_b = parse<double>(v); }},
      {"seed", [](UniverseSpec& s, const std::string& v) { s.seed = parse<std::uint64_t>(v); }},
      {"index", [](UniverseSpec& s, const std::string& v) { s.index = parse<std::uint64_t>(v); }},
      {"box", [](UniverseSpec& s, const std::string& v) { s.box = parse<double>(v); }},
      {"particles", [](UniverseSpec& s, const std::string& v) { s.particles = parse<int>(v); }},
      {"mesh", [](UniverseSpec& s, const std::string& v) { s.mesh = parse<int>(v); }},
      {"cells", [](UniverseSpec& s, const std::string& v) { s.cells = parse<int>(v); }},
      {"steps", [](UniverseSpec& s, const std::string& v) { s.steps = parse<int>(v); }},
      {"redshifts", [](UniverseSpec& s, const std::string& v) { s.redshifts = parse_numbers(v); }},
      {"output", [](UniverseSpec& s, const std::string& v) { s.output = v; }},
      {"assign",
       [](UniverseSpec& s, const std::string& v) {
         if (v != "cic" && v != "ngp") throw Error(ExitCode::usage, "'" + v + "' is neither cic nor ngp.");
         s.assign = v == "cic" ? Assign::cic : Assign::ngp;
       }},
  };
  return table;
}

}  // namespace

std::vector<double> parse_numbers(const std::string& text) {
  std::vector<double> values;
  for (const std::string& field : split(text)) values.push_back(parse<double>(field));
  return values;
}

void set_option(UniverseSpec& spec, const std::string& name, const std::string& value) {
  const auto found = setters().find(key_of(name));
  if (found == setters().end()) {
    throw Error(
        ExitCode::usage,
        "there is no option '" + name +
            "'; known are index, seed, omega_m, sigma_8, n_s, h, omega_b, box, particles, mesh, cells, "
            "steps, redshifts, assign and output.");
  }
  try {
    found->second(spec, value);
  } catch (const Error& error) {
    throw Error(ExitCode::usage, name + ": " + error.what());
  }
}

std::vector<UniverseSpec> read_rows(std::istream& file, const std::string& name,
                                    const UniverseSpec& defaults) {
  std::string line;
  int number = 0;
  const auto next_line = [&] {
    while (std::getline(file, line)) {
      ++number;
      if (!trimmed(line).empty()) return true;
    }
    return false;
  };
  const auto at = [&](const std::string& sentence) {
    return Error(ExitCode::input, name + ", line " + std::to_string(number) + ": " + sentence);
  };
  if (!next_line()) throw Error(ExitCode::input, name + " is empty; its first line must name the columns.");
  const std::vector<std::string> header = split(line);
  std::set<std::string> seen;
  for (const std::string& column : header) {
    if (!setters().contains(key_of(column))) {
      UniverseSpec scratch;
      try {
        set_option(scratch, column, "");
      } catch (const Error& error) {
        throw at(error.what());
      }
    }
    if (!seen.insert(key_of(column)).second) throw at("column '" + column + "' stands twice.");
  }

  std::vector<UniverseSpec> specs;
  std::set<std::string> outputs;
  while (next_line()) {
    const std::vector<std::string> fields = split(line);
    if (fields.size() != header.size()) {
      throw at("it has " + std::to_string(fields.size()) + " values, but the header has " +
               std::to_string(header.size()) + " columns.");
    }
    UniverseSpec spec = defaults;
    try {
      for (std::size_t i = 0; i < fields.size(); ++i) set_option(spec, header[i], fields[i]);
      check(spec);
    } catch (const Error& error) {
      throw at(error.what());
    }
    spec.output = expand_output(spec.output, spec.index);
    if (!outputs.insert(spec.output).second) {
      throw at("it would write " + spec.output +
               " again; put {index} in --output and give each row its index.");
    }
    specs.push_back(std::move(spec));
  }
  if (specs.empty()) throw Error(ExitCode::input, name + " has a header but no rows.");
  return specs;
}

std::string expand_output(const std::string& pattern, std::uint64_t index) {
  static const std::string kMark = "{index}";
  std::string result = pattern;
  for (std::size_t at = result.find(kMark); at != std::string::npos; at = result.find(kMark, at)) {
    result.replace(at, kMark.size(), std::to_string(index));
  }
  return result;
}

}  // namespace cola
