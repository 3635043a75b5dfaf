// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/ensemble_export.h"

#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/version.h"

namespace wflow::trainer {
namespace {

// How the outputs of all members, [members, samples, channels, ...], become the ensemble's: mean and
// deviation of their mixture.
const char* combination(LossName loss) {
  if (is_classification(loss)) return "    return each.mean([0])\n";
  if (loss != LossName::gaussian) return "    return torch.cat([each.mean([0]), each.std([0], False)], 1)\n";
  // The variance that the members expect, and that of their means.
  return "    half = each.size(2) // 2\n"
         "    means = each.narrow(2, 0, half)\n"
         "    deviations = each.narrow(2, half, half)\n"
         "    variance = (deviations * deviations).mean([0]) + means.var([0], False)\n"
         "    return torch.cat([means.mean([0]), variance.sqrt()], 1)\n";
}

std::string ensemble_source(std::size_t members, std::size_t inputs, LossName loss) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < inputs; ++i) names.push_back(fmt::format("x{}", i));
  std::vector<std::string> outputs;
  for (std::size_t k = 0; k < members; ++k)
    outputs.push_back(fmt::format("self.member_{}.forward({})", k + 1, text::join(names, ", ")));
  const std::string arguments = text::join(names, ", ");
  return fmt::format(
      "def members(self, {0}):\n    return torch.stack([{1}])\n"
      "def forward(self, {0}):\n    each = self.members({0})\n{2}",
      arguments, text::join(outputs, ", "), combination(loss));
}

}  // namespace

void export_ensemble(const std::vector<std::filesystem::path>& members, LossName loss,
                     const std::filesystem::path& path) {
  try {
    torch::jit::Module ensemble("WflowEnsemble");
    for (std::size_t k = 0; k < members.size(); ++k) {
      const torch::jit::Module member = torch::jit::load(members[k].string(), c10::kCPU);
      ensemble.register_module(fmt::format("member_{}", k + 1), member);
      if (k > 0) continue;
      for (const char* name : {"inputs", "targets"})
        ensemble.register_attribute(name, c10::ListType::ofStrings(), member.attr(name));
      ensemble.register_attribute("columns", c10::ListType::create(c10::ListType::ofStrings()),
                                  member.attr("columns"));
      ensemble.register_attribute("shapes", c10::ListType::create(c10::ListType::ofInts()),
                                  member.attr("shapes"));
      ensemble.register_attribute("ranges", c10::ListType::create(c10::ListType::ofFloats()),
                                  member.attr("ranges"));
      ensemble.register_attribute("target_grid", c10::ListType::ofInts(), member.attr("target_grid"));
      ensemble.register_attribute("target_has_channels", c10::BoolType::get(),
                                  member.attr("target_has_channels"));
      ensemble.register_attribute("units", c10::StringType::get(), member.attr("units"));
    }
    const LossName outputs = is_classification(loss) ? loss : LossName::gaussian;
    ensemble.register_attribute("loss", c10::StringType::get(), std::string(name_of(outputs)));
    ensemble.register_attribute("wflow", c10::StringType::get(), std::string(kVersion));
    ensemble.define(ensemble_source(members.size(), ensemble.attr("inputs").toListRef().size(), loss));
    ensemble.eval();
    DurableFile file(path);
    ensemble.save(file.temporary().string());
    file.publish();
  } catch (const c10::Error& error) {
    throw Error(ExitCode::internal, fmt::format("cannot export the ensemble to {}: {}", path.string(),
                                                error.what_without_backtrace()));
  }
}

}  // namespace wflow::trainer
