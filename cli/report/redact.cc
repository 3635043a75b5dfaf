// SPDX-License-Identifier: Apache-2.0
#include "cli/report/report.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <cctype>

#include "base/process.h"

namespace wflow::cli::report {

namespace {

bool is_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
         (static_cast<unsigned char>(c) & 0x80U) != 0;
}

bool ends_path(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("\"'`()[]{}<>;,|").find(c) != std::string_view::npos;
}

// True if a path begins here. It must begin like a word: "samples/s" and "1/2" contain no path.
bool begins_path(std::string_view text, std::size_t i) {
  if (text[i] == '~') return i + 1 < text.size() && text[i + 1] == '/' && (i == 0 || !is_letter(text[i - 1]));
  if (text[i] != '/' || i + 1 == text.size()) return false;
  // In "-I/home/ada" the letter belongs to an option.
  const bool option =
      i >= 2 && text[i - 2] == '-' && is_letter(text[i - 1]) && (i == 2 || !is_letter(text[i - 3]));
  if (i > 0 && !option &&
      (is_letter(text[i - 1]) || text[i - 1] == '.' || text[i - 1] == '-' || text[i - 1] == '*'))
    return false;
  return is_letter(text[i + 1]) || text[i + 1] == '.' || text[i + 1] == '/';
}

std::string without_paths(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!begins_path(text, i)) {
      out.push_back(text[i]);
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && !ends_path(text[end])) ++end;
    // A full stop or a colon at the end does not belong to the path.
    while (end > i + 1 && (text[end - 1] == '.' || text[end - 1] == ':')) --end;
    out += "<path>";
    i = end - 1;
  }
  return out;
}

// The length of an IP address (four numbers with dots between them) at the beginning, or 0.
std::size_t address_length(std::string_view text) {
  std::size_t at = 0;
  for (int part = 0; part < 4; ++part) {
    std::size_t digits = 0;
    while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0 && digits < 4) {
      ++at;
      ++digits;
    }
    if (digits == 0 || digits > 3) return 0;
    if (part == 3) return at;
    if (at == text.size() || text[at] != '.') return 0;
    ++at;
  }
  return 0;
}

std::string without_addresses(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = i == 0 || (!is_letter(text[i - 1]) && text[i - 1] != '.');
    if (const std::size_t length = begins ? address_length(text.substr(i)) : 0; length > 0) {
      out += "<address>";
      i += length - 1;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::string user_name() {
  const passwd* entry = ::getpwuid(::geteuid());
  return entry == nullptr ? "" : entry->pw_name;
}

}  // namespace

void Redactor::replace(const std::string& word, const std::string& with) {
  if (!word.empty()) words_[word.size()].try_emplace(word, with);
}

// Replaces the longest word that begins at each place. Dotted parts after a host's name are its domain.
std::string Redactor::without_words(std::string_view text) const {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t taken = 0;
    if (i == 0 || !is_letter(text[i - 1])) {
      for (const auto& [length, words] : words_) {
        if (i + length > text.size() || (i + length < text.size() && is_letter(text[i + length]))) continue;
        const auto found = words.find(text.substr(i, length));
        if (found == words.end()) continue;
        out += found->second;
        taken = length;
        while (i + taken + 1 < text.size() && text[i + taken] == '.' && is_letter(text[i + taken + 1])) {
          ++taken;
          while (i + taken < text.size() && (is_letter(text[i + taken]) || text[i + taken] == '-')) ++taken;
        }
        break;
      }
    }
    if (taken == 0) out.push_back(text[i++]);
    i += taken;
  }
  return out;
}

std::string Redactor::operator()(std::string_view text) const {
  return without_addresses(without_words(without_paths(text)));
}

Redactor redactor_for(const ReportData& data) {
  Redactor redactor;
  std::size_t workers = 0;
  std::map<std::string, std::string> hosts;
  const auto host = [&](const std::string& name) {
    if (name.empty() || name == "localhost") return;
    const auto [at, is_new] = hosts.try_emplace(name, fmt::format("node {}", hosts.size() + 1));
    redactor.replace(name, at->second);
    // "n1.cluster.site" is also written "n1".
    if (const std::size_t dot = name.find('.'); dot != std::string::npos)
      redactor.replace(name.substr(0, dot), at->second);
  };
  for (const engine::wire::WorkerView& worker : data.workers) {
    redactor.replace(worker.id, fmt::format("worker {}", ++workers));
    host(worker.host);
  }
  for (const engine::wire::WorkerStatus& worker : data.status.workers) host(worker.host);
  for (const engine::wire::AllocationView& allocation : data.allocations.allocations)
    for (const std::string& name : allocation.node_names) host(name);
  host(data.status.coordinator.substr(0, data.status.coordinator.find(' ')));
  host(host_name());
  // "root" names no user, and is also an ordinary word.
  const auto user = [&](const std::string& name) {
    if (name != "root") redactor.replace(name, "<user>");
  };
  for (const specs::VersionInfo& version : data.versions) {
    host(version.host);
    user(version.user);
  }
  user(user_name());
  return redactor;
}

}  // namespace wflow::cli::report
