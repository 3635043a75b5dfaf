// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/read_options.h"

#include <optional>
#include <string>

namespace wflow::cli {

void add_read_options(CLI::App& command, specs::ReadOptions& options) {
  command.add_option("--vars", options.variables, "NAME=value: overrides a variable of the study")
      ->take_all();
  command.add_option("--samplesfile", options.samples_file,
                     "use this table of samples instead of the study's");
  command.add_option("--pgen", options.generator,
                     "a Python file whose get_custom_generator(env, **kwargs) makes the parameters");
  command.add_option("--pargs", options.generator_arguments, "KEY:VALUE: an argument of it; may be repeated")
      ->take_all();
  command.add_flag("--strict", options.strict, "unknown keys are errors in Merlin's files too");
  const auto add = [&](const char* name, std::optional<specs::Dialect>& dialect, const char* description) {
    return command
        .add_option_function<std::string>(
            name, [&dialect](const std::string& text) { dialect = specs::dialect_named(text); }, description)
        ->check(CLI::IsMember({"wflow", "merlin", "maestro"}));
  };
  add("--dialect", options.dialect,
      "whose format the study is in (default: the file tells; wflow validate says it)")
      ->type_name("NAME");
  add("--as", options.command, "")->group("");  // for the commands merlin and maestro
}

}  // namespace wflow::cli
