# SPDX-License-Identifier: Apache-2.0
# Writes templates.cc (OUTPUT) from the studies (a list of files): the program carries its templates with it.
# A study begins with the licence line, which is left out, and with "# <what it shows>".
set(text "// Made by cli/templates.cmake from cli/templates/*.yaml.\n#include \"cli/commands/commands.h\"\n\n")
string(APPEND text "namespace wflow::cli {\n\nnamespace {\n\nconstexpr Template kTemplates[] = {\n")
file(GLOB studies "${SOURCE}/*.yaml")
list(SORT studies)
foreach(study IN LISTS studies)
  get_filename_component(name "${study}" NAME_WE)
  file(READ "${study}" yaml)
  string(REGEX REPLACE "^# SPDX[^\n]*\n" "" yaml "${yaml}")
  string(REGEX MATCH "^# ([^\n]*)" ignored "${yaml}")
  string(APPEND text "    {\"${name}\", \"${CMAKE_MATCH_1}\", R\"~~~(${yaml})~~~\"},\n")
endforeach()
string(APPEND text "};\n\n}  // namespace\n\nstd::span<const Template> templates() {\n  return kTemplates;\n}\n\n}  // namespace wflow::cli\n")
file(WRITE "${OUTPUT}" "${text}")
