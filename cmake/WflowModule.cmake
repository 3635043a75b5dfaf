# SPDX-License-Identifier: Apache-2.0
# wflow_library(<name> SOURCES ... [PUBLIC ...] [PRIVATE ...]): a module's static library.
function(wflow_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC wflow_settings ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
endfunction()

# wflow_test(<name> SOURCES ... LINK ... [LABELS ...]): a GoogleTest program; one ctest entry a
# program keeps the list short, and the program's own output names the failing case.
function(wflow_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE wflow_settings ${arg_LINK} GTest::gmock GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "unit;${arg_LABELS}")
endfunction()
