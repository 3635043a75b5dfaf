# SPDX-License-Identifier: Apache-2.0
# Language level, warnings and sanitizers, the same for every target of the tree.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

set(WFLOW_SANITIZE "" CACHE STRING "sanitizers for every target, as -fsanitize= takes them")
option(WFLOW_FUZZ "build the fuzzers, with clang" OFF)
if(WFLOW_FUZZ AND NOT WFLOW_SANITIZE)
  set(WFLOW_SANITIZE "fuzzer-no-link,address,undefined")
endif()
option(WFLOW_NATIVE "compile for this machine's processor (-march=native)" OFF)

find_program(WFLOW_CCACHE ccache)
if(WFLOW_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${WFLOW_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${WFLOW_CCACHE}")
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

add_library(wflow_settings INTERFACE)
target_include_directories(wflow_settings INTERFACE "${CMAKE_SOURCE_DIR}")
target_compile_options(wflow_settings INTERFACE -Wall -Wextra -Wpedantic -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies inside std::string's own operators at -O3 (GCC bug 105651).
  target_compile_options(wflow_settings INTERFACE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-Wno-restrict>)
endif()
if(WFLOW_SANITIZE)
  target_compile_options(wflow_settings INTERFACE
    -fsanitize=${WFLOW_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
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
