# SPDX-License-Identifier: Apache-2.0
# wflow_library(<name> SOURCES ... [PUBLIC ...] [PRIVATE ...] [OWN_HEADERS]): a module's static library. OWN_HEADERS: its
# compile flags or headers are of its own kind, so that the precompiled ones do not fit.
function(wflow_library name)
  cmake_parse_arguments(arg "OWN_HEADERS" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC wflow_settings ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  if(arg_OWN_HEADERS)
    wflow_unity(${name})
  else()
    wflow_fast_build(${name})
  endif()
endfunction()

# wflow_unity(<target>): its sources are compiled a few at once; wflow_fast_build(<target>): and with the precompiled headers.
# Half a module at once: what a unit costs by itself (headers, the same templates) is paid seldom, and two cores stay busy.
function(wflow_unity name)
  if(WFLOW_FAST_BUILD)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  endif()
endfunction()
function(wflow_fast_build name)
  wflow_unity(${name})
  if(WFLOW_FAST_BUILD)
    target_precompile_headers(${name} REUSE_FROM wflow_precompiled)
  endif()
endfunction()

# wflow_source_options(<source> <option>...): compiled with these, by itself.
function(wflow_source_options source)
  set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${ARGN}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# wflow_test(<name> SOURCES ... LINK ... [DEFINITIONS ...] [NEEDS <target>...] [LABELS ...]): a GoogleTest program, where
# tests are built; one ctest entry a program keeps the list short, and the program's own output names the failing case.
function(wflow_test name)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINK;DEFINITIONS;NEEDS;LABELS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE wflow_settings ${arg_LINK} GTest::gmock GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  if(arg_NEEDS)
    add_dependencies(${name} ${arg_NEEDS})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "unit;${arg_LABELS}")
endfunction()
