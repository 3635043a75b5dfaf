# SPDX-License-Identifier: Apache-2.0
# The libraries of wflow, each with its least version: those of Debian 12, with which CI builds; nothing older was tried. docs/install.md and
# packaging/spack say the same (tests/package/recipes_test.py).
set(WFLOW_LEAST_gcc 12)
set(WFLOW_LEAST_clang 14)

# NAME MODULE>=VERSION..., of pkg-config.
set(WFLOW_OF_PKG_CONFIG
    "CAIRO cairo>=1.16 cairo-png cairo-svg"
    "FFTW3F fftw3f>=3.3"
    "GSL gsl>=2.7"
    "LIBDEFLATE libdeflate>=1.14"
    "LIBPNG libpng>=1.6"
    "LIBZIP libzip>=1.7"
    "NCURSES ncursesw>=6.4"
    "NETCDF netcdf>=4.9"
    "RE2 re2"  # Debian's says 0.0.0
    "SODIUM libsodium>=1.0.18"
    "SQLITE3 sqlite3>=3.40"
    "UTF8PROC libutf8proc>=2.6"
    "XXHASH libxxhash>=0.8.1"
    "ZLIB zlib>=1.2.13"
    "ZMQ libzmq>=4.3.4")

# NAME VERSION [ARGUMENT...], of find_package().
set(WFLOW_OF_CMAKE
    "CLI11 2.1"
    "fmt 9.1"
    "HDF5 1.10 COMPONENTS C"
    "nlohmann_json 3.11"
    "spdlog 1.10"
    "SQLiteCpp 3.2"
    "Torch 1.13"
    "yaml-cpp 0.7")

# wflow_find(NAME...) finds these libraries, or ends the configuration with a sentence that names the least version. Libraries of pkg-config
# are targets PkgConfig::NAME. A macro: find_package() leaves variables behind.
macro(wflow_find)
  foreach(wflow_name ${ARGN})
    foreach(wflow_entry IN LISTS WFLOW_OF_PKG_CONFIG)
      string(REPLACE " " ";" wflow_words "${wflow_entry}")
      list(POP_FRONT wflow_words wflow_of)
      if(wflow_of STREQUAL wflow_name)
        pkg_check_modules(${wflow_name} REQUIRED IMPORTED_TARGET ${wflow_words})
      endif()
    endforeach()
    foreach(wflow_entry IN LISTS WFLOW_OF_CMAKE)
      string(REPLACE " " ";" wflow_words "${wflow_entry}")
      list(POP_FRONT wflow_words wflow_of)
      if(wflow_of STREQUAL wflow_name)
        find_package(${wflow_name} ${wflow_words} REQUIRED)
      endif()
    endforeach()
    if(wflow_name STREQUAL "HDF5" AND HDF5_IS_PARALLEL)
      wflow_use_parallel_hdf5()
    endif()
  endforeach()
endmacro()

# The header of a parallel build includes mpi.h, and the library has that MPI in it.
macro(wflow_use_parallel_hdf5)
  list(LENGTH WFLOW_MPI wflow_mpi_count)
  if(wflow_mpi_count GREATER 1)
    message(FATAL_ERROR "HDF5 (${HDF5_C_LIBRARIES}) is a parallel build with one MPI, and WFLOW_MPI names several: name that one, or a serial HDF5")
  endif()
  find_package(MPI REQUIRED COMPONENTS C)
  list(APPEND HDF5_C_INCLUDE_DIRS ${MPI_C_INCLUDE_DIRS})
  set_property(TARGET hdf5::hdf5 APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES ${MPI_C_INCLUDE_DIRS})
  add_compile_definitions(OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
endmacro()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS WFLOW_LEAST_gcc)
  message(FATAL_ERROR "wflow needs GCC ${WFLOW_LEAST_gcc} or newer; ${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_VERSION}. Name another: -DCMAKE_CXX_COMPILER=...")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS WFLOW_LEAST_clang)
  message(FATAL_ERROR "wflow needs clang ${WFLOW_LEAST_clang} or newer; ${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_VERSION}. Name another: -DCMAKE_CXX_COMPILER=...")
endif()
