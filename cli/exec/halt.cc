// SPDX-License-Identifier: Apache-2.0
#include "cli/exec/halt.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace wflow::cli {

namespace {

std::optional<HaltRule> rule_of(std::string_view text) {
  using When = HaltRule::When;
  if (text == "never" || text == "0") return HaltRule{};
  if (text == "1") return HaltRule{.when = When::soon};
  if (text == "2") return HaltRule{.when = When::now};
  const std::vector<std::string> parts = text::split(std::string(text), ',');
  if (parts.size() != 2 || (parts[0] != "soon" && parts[0] != "now")) return std::nullopt;
  HaltRule rule{.when = parts[0] == "soon" ? When::soon : When::now};
  const std::size_t equals = parts[1].find('=');
  if (equals == std::string::npos) return std::nullopt;
  const std::string what = parts[1].substr(0, equals);
  if (what != "fail" && what != "success" && what != "done") return std::nullopt;
  rule.what = what == "fail"      ? HaltRule::What::fail
              : what == "success" ? HaltRule::What::success
                                  : HaltRule::What::done;
  std::string number = parts[1].substr(equals + 1);
  const bool percent = number.ends_with('%');
  if (percent) number.pop_back();
  const auto value = text::to_integer(number);
  if (!value || *value < 1 || (percent && *value > 100)) return std::nullopt;
  percent ? void(rule.percent = static_cast<double>(*value))
          : void(rule.count = static_cast<std::uint64_t>(*value));
  return rule;
}

}  // namespace

HaltRule read_halt(std::string_view text) {
  if (const auto rule = rule_of(text)) return *rule;
  throw Error(ExitCode::usage,
              fmt::format("--halt {}: write never, or soon or now, a comma and fail=N, success=N, done=N or "
                          "fail=N%, as in --halt soon,fail=1",
                          text));
}

std::string max_failures_of(const HaltRule& rule) {
  if (rule.when == HaltRule::When::never || rule.what != HaltRule::What::fail) return "none";
  return rule.percent > 0 ? fmt::format("{} %", rule.percent) : std::to_string(rule.count);
}

bool is_met(const HaltRule& rule, const engine::CampaignStatus& status) {
  if (rule.when == HaltRule::When::never) return false;
  const std::uint64_t failed = status.failed();
  const std::uint64_t done = status.ended() - failed - status.cancelled();
  const std::uint64_t have = rule.what == HaltRule::What::fail      ? failed
                             : rule.what == HaltRule::What::success ? done
                                                                    : done + failed;
  if (rule.percent == 0) return have >= rule.count;
  constexpr double kWhole = 100;
  return have > 0 &&
         kWhole * static_cast<double>(have) >= rule.percent * static_cast<double>(status.elements());
}

}  // namespace wflow::cli
