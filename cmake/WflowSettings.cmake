# SPDX-License-Identifier: Apache-2.0
# Options, language level, warnings and sanitizers, the same for every target of the tree.
option(BUILD_TESTING "build the tests and benchmarks (needs GoogleTest)" OFF)
option(WFLOW_UNIT_TESTS "with BUILD_TESTING: build all unit tests; OFF: those alone that need an optimised build or a scheduler" ON)
option(WFLOW_WERROR "warnings are errors" OFF)
option(WFLOW_TRAINER "build wflow-train (needs HDF5, MPI and libtorch)" ON)
option(WFLOW_HDF5 "build wflow-convert, wflow-train and the CosmoFlow example, which need HDF5" ON)
option(WFLOW_TORCH "build wflow-train with libtorch; OFF: only networks that oneDNN and own loops compute, exported as ONNX" ON)
if(NOT WFLOW_HDF5)
  if(BUILD_TESTING)
    message(FATAL_ERROR "The tests run wflow-convert, which needs HDF5: configure without BUILD_TESTING or with WFLOW_HDF5=ON")
  endif()
  set(WFLOW_TRAINER OFF)
endif()
option(WFLOW_FAST_BUILD "few large translation units and precompiled headers: half the compile time" ON)
set(WFLOW_UNITY_BATCH 16 CACHE STRING "sources in a translation unit of a fast build")
set(WFLOW_EDITED "" CACHE STRING "sources of a fast build, relative to the root, that are compiled by themselves")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# The build folder is laid out as an installation, so that programs find what stands beside them in both.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
# An installed program loads the libraries that it was linked with, wherever they are (a newer libtorch, a module system's MPI).
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

set(WFLOW_SANITIZE "" CACHE STRING "sanitizers for every target, as -fsanitize= takes them")
option(WFLOW_FUZZ "build the fuzzers, with clang" OFF)
if(WFLOW_FUZZ AND NOT WFLOW_SANITIZE)
  set(WFLOW_SANITIZE "fuzzer-no-link,address,undefined")
endif()
option(WFLOW_NATIVE "compile for this machine's processor (-march=native)" OFF)

find_program(WFLOW_CCACHE ccache)
if(WFLOW_CCACHE)
  set(launcher "${WFLOW_CCACHE}")
  if(WFLOW_FAST_BUILD)
    # ccache's manual: what precompiled headers need, else nothing is cached.
    set(launcher "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        CCACHE_PCH_EXTSUM=1 "${WFLOW_CCACHE}")
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      # What CMake passes else has the folder's path where ccache does not make it relative.
      set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -include <PCH_HEADER>)
    endif()
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
endif()

include(GNUInstallDirs)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
include(WflowDependencies)

add_library(wflow_settings INTERFACE)
target_include_directories(wflow_settings INTERFACE "${CMAKE_SOURCE_DIR}")
target_compile_options(wflow_settings INTERFACE -Wall -Wextra -Wpedantic $<$<BOOL:${WFLOW_WERROR}>:-Werror>)
# The module that holds libtorch (trainer/model/on_demand) is linked from the same static libraries as the programs.
if(WFLOW_TRAINER AND WFLOW_TORCH AND NOT WFLOW_SANITIZE)
  set(WFLOW_TORCH_ON_DEMAND ON)
  target_compile_options(wflow_settings INTERFACE -fPIC -fno-semantic-interposition)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies inside std::string's own operators at -O3 (GCC bug 105651).
  target_compile_options(wflow_settings INTERFACE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-Wno-restrict>)
endif()
if(WFLOW_SANITIZE)
  target_compile_options(wflow_settings INTERFACE
    -fsanitize=${WFLOW_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # GCC and clang have different ways to ask for it.
  if(WFLOW_SANITIZE MATCHES "address")
    target_compile_definitions(wflow_settings INTERFACE WFLOW_ADDRESS_SANITIZER)
  elseif(WFLOW_SANITIZE MATCHES "thread")
    target_compile_definitions(wflow_settings INTERFACE WFLOW_THREAD_SANITIZER)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's manual: with sanitizers these warn of what is not there. The other presets have them.
    target_compile_options(wflow_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow> $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
  target_link_options(wflow_settings INTERFACE -fsanitize=${WFLOW_SANITIZE})
endif()
if(WFLOW_NATIVE)
  target_compile_options(wflow_settings INTERFACE -march=native)
endif()

# wflow_precompiled_sum(<target> <header of a library>...): clang's precompiled headers have the folder's path in them, so that another
# folder, such as a fresh clone, found nothing in the cache. ccache takes this file for them: the compiler, its flags, and the libraries.
function(wflow_precompiled_sum target)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    return()
  endif()
  file(READ "${CMAKE_CURRENT_FUNCTION_LIST_FILE}" sum)
  string(APPEND sum "${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_DEBUG} ${WFLOW_SANITIZE}")
  foreach(header IN LISTS ARGN)
    find_file(found "${header}" PATHS ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES} NO_CACHE REQUIRED)
    file(SHA256 "${found}" hash)
    string(APPEND sum " ${hash}")
    unset(found)
  endforeach()
  string(SHA256 sum "${sum}")
  file(WRITE "${CMAKE_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.pch.sum" "${sum}")
endfunction()

if(WFLOW_FAST_BUILD)
  # Compiled once for all libraries of wflow_library().
  wflow_find(fmt nlohmann_json)
  add_library(wflow_precompiled STATIC "${CMAKE_SOURCE_DIR}/cmake/precompiled.cc")
  target_link_libraries(wflow_precompiled PRIVATE wflow_settings fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(wflow_precompiled PRIVATE
    <algorithm> <array> <chrono> <cmath> <cstdint> <cstdlib> <cstring> <filesystem> <functional> <map> <memory> <optional>
    <set> <span> <string> <string_view> <utility> <variant> <vector> <fmt/format.h> <nlohmann/json.hpp>)
  set(libraries bits/c++config.h fmt/core.h fmt/format.h nlohmann/json.hpp)
  wflow_precompiled_sum(wflow_precompiled ${libraries})
  if(BUILD_TESTING)
    find_package(GTest REQUIRED)
    add_library(wflow_precompiled_tests STATIC "${CMAKE_SOURCE_DIR}/cmake/precompiled.cc")
    target_link_libraries(wflow_precompiled_tests PRIVATE wflow_settings fmt::fmt nlohmann_json::nlohmann_json GTest::gmock)
    target_compile_options(wflow_precompiled_tests PRIVATE $<$<CXX_COMPILER_ID:GNU>:-O1>)
    target_precompile_headers(wflow_precompiled_tests PRIVATE
      <algorithm> <array> <chrono> <cmath> <cstdint> <cstdlib> <cstring> <filesystem> <fstream> <functional> <map> <memory>
      <optional> <set> <span> <string> <string_view> <utility> <variant> <vector> <fmt/format.h> <nlohmann/json.hpp>
      <gmock/gmock.h> <gtest/gtest.h>)
    wflow_precompiled_sum(wflow_precompiled_tests ${libraries} gmock/gmock.h gtest/gtest.h)
  endif()
  # -pthread: some libraries ask for it, and precompiled headers fit one set of flags. The others are for ccache.
  target_compile_options(wflow_settings INTERFACE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess> $<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp> -pthread)
endif()
