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

# wflow_unity(<target>) compiles its sources a few at once; wflow_fast_build(<target>) adds the precompiled headers.
# A unit pays for its headers and templates once. WFLOW_UNITY_BATCH sources a unit: 16 cost least in all, 8 recompile
# faster after an edit.
# CMake's own unity files name their sources by absolute path, so that the compiler cache would not find them in another checkout.
# The units are made at the end of the folder's CMakeLists.txt, when it has said which sources have options of their own.
function(wflow_unity name)
  if(WFLOW_FAST_BUILD)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL wflow_make_units [[${name}]])")
  endif()
endfunction()
function(wflow_make_units name)
  get_target_property(sources ${name} SOURCES)
  file(RELATIVE_PATH folder "${CMAKE_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  set(together "")
  set(by_themselves "")
  foreach(source IN LISTS sources)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    if(source MATCHES "\\.cc$" AND NOT IS_ABSOLUTE "${source}" AND NOT options AND NOT definitions AND NOT alone)
      list(APPEND together "${source}")
    else()
      list(APPEND by_themselves "${source}")
    endif()
  endforeach()
  set(number 0)
  while(together)
    list(SUBLIST together 0 ${WFLOW_UNITY_BATCH} batch)
    list(REMOVE_ITEM together ${batch})
    set(text "")
    foreach(source IN LISTS batch)
      string(APPEND text "#include \"${folder}/${source}\"\n")
    endforeach()
    set(unit "${CMAKE_CURRENT_BINARY_DIR}/${name}_${number}.cc")
    file(CONFIGURE OUTPUT "${unit}" CONTENT "${text}" @ONLY)
    list(APPEND by_themselves "${unit}")
    math(EXPR number "${number} + 1")
  endwhile()
  set_property(TARGET ${name} PROPERTY SOURCES ${by_themselves})
endfunction()
function(wflow_fast_build name)
  wflow_unity(${name})
  if(WFLOW_FAST_BUILD)
    target_precompile_headers(${name} REUSE_FROM wflow_precompiled)
  endif()
endfunction()

# wflow_fast_tests(<target>): a test's sources are compiled with little optimisation, and with GoogleTest's headers precompiled. They stay
# single units, because tests name their helpers alike.
function(wflow_fast_tests name)
  if(WFLOW_FAST_BUILD)
    # At -O1, GCC 12 warns of copies inside std::string that never happen; release builds have the warning.
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1> -Wno-array-bounds)
    target_precompile_headers(${name} REUSE_FROM wflow_precompiled_tests)
  endif()
endfunction()

# wflow_source_options(<source> <option>...): compiled with these, by itself.
function(wflow_source_options source)
  set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${ARGN}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# wflow_kernels(<list> <name> INCLUDE <file> DEFINITIONS <NAME=value>... OPTIONS <option>...): adds to the list a generated source that
# includes the file, which holds kernels, with these macros and options. One call an instruction set.
function(wflow_kernels list name)
  cmake_parse_arguments(arg "" "INCLUDE" "DEFINITIONS;OPTIONS" ${ARGN})
  set(text "")
  foreach(definition IN LISTS arg_DEFINITIONS)
    string(REPLACE "=" " " definition "${definition}")
    string(APPEND text "#define ${definition}\n")
  endforeach()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}.cc")
  file(CONFIGURE OUTPUT "${source}" CONTENT "${text}#include \"${arg_INCLUDE}\"\n" @ONLY)
  wflow_source_options("${source}" ${arg_OPTIONS})
  set(${list} ${${list}} "${source}" PARENT_SCOPE)
endfunction()

# wflow_test(<name> SOURCES ... LINK ... [DEFINITIONS ...] [NEEDS <target>...] [LABELS ...] [THREADS] [OWN_HEADERS]): a GoogleTest program, where
# tests are built; one ctest entry a program keeps the list short, and the program's own output names the failing case. It ends with 77 if
# all of its tests were skipped (cmake/test_main.cc). Without WFLOW_UNIT_TESTS, only tests with labels of their own are built. THREADS: threads
# share data in it, so that CI runs it under ThreadSanitizer, too (target and label `threads`).
function(wflow_test name)
  cmake_parse_arguments(arg "OWN_HEADERS;THREADS" "TIMEOUT" "SOURCES;LINK;DEFINITIONS;NEEDS;LABELS" ${ARGN})
  if(NOT BUILD_TESTING OR NOT (WFLOW_UNIT_TESTS OR arg_LABELS))
    return()
  endif()
  find_package(GTest REQUIRED)
  if(NOT TARGET wflow_test_main)
    add_library(wflow_test_main STATIC "${CMAKE_SOURCE_DIR}/cmake/test_main.cc")
    target_link_libraries(wflow_test_main PRIVATE wflow_settings GTest::gmock GTest::gtest)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE wflow_settings ${arg_LINK} wflow_test_main GTest::gmock GTest::gtest)
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  if(NOT arg_OWN_HEADERS)
    wflow_fast_tests(${name})
  endif()
  if(arg_NEEDS)
    add_dependencies(${name} ${arg_NEEDS})
  endif()
  if(NOT TARGET unit_tests)
    add_custom_target(unit_tests)
  endif()
  add_dependencies(unit_tests ${name})
  if(arg_THREADS)
    if(NOT TARGET threads)
      add_custom_target(threads)
    endif()
    add_dependencies(threads ${name})
    list(APPEND arg_LABELS threads)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "unit;compiled;${arg_LABELS}" SKIP_RETURN_CODE 77)
endfunction()

# wflow_python_test(<name> <file> [ARGUMENTS ...] [PROPERTIES ...]): a ctest entry that runs a file of unittest tests through
# tests/entry.py, which ends with 77 if all of its tests were skipped. PROPERTIES: as set_tests_properties() takes them; ENVIRONMENT comes last.
function(wflow_python_test name file)
  # ENVIRONMENT is a list: among the properties, its second variable would be the name of the next property.
  cmake_parse_arguments(arg "" "" "ARGUMENTS;PROPERTIES;ENVIRONMENT" ${ARGN})
  # Debian's interpreter: its h5py and torch are what users have. No other python3 of this machine is used.
  find_program(WFLOW_TEST_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH REQUIRED)
  get_filename_component(path "${file}" ABSOLUTE)
  add_test(NAME ${name} COMMAND ${WFLOW_TEST_PYTHON} ${CMAKE_SOURCE_DIR}/tests/entry.py ${path} ${arg_ARGUMENTS} COMMAND_EXPAND_LISTS)
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 ${arg_PROPERTIES} ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()
