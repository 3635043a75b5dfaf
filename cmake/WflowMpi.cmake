# SPDX-License-Identifier: Apache-2.0
# The MPI of wflow-train. Sets WFLOW_MPI_LIBRARY to openmpi or mpich, by the header of what find_package() has found.
set(WFLOW_MPI "" CACHE STRING "the MPI of wflow-train: openmpi or mpich; empty: that of MPI_C_COMPILER or of mpicc")
set_property(CACHE WFLOW_MPI PROPERTY STRINGS "" openmpi mpich)
if(NOT WFLOW_MPI MATCHES "^(openmpi|mpich)?$")
  message(FATAL_ERROR "WFLOW_MPI is '${WFLOW_MPI}'; it takes openmpi or mpich")
endif()
if(WFLOW_MPI)
  # Debian's names, where both are installed. find_package() begins with this compiler.
  find_program(MPI_C_COMPILER NAMES mpicc.${WFLOW_MPI} mpicc)
endif()
find_package(MPI REQUIRED COMPONENTS C)

set(WFLOW_MPI_LIBRARY mpich)
foreach(folder IN LISTS MPI_C_INCLUDE_DIRS)
  if(EXISTS "${folder}/mpi.h")
    file(STRINGS "${folder}/mpi.h" open_mpi REGEX "define OPEN_MPI ")
    if(open_mpi)
      set(WFLOW_MPI_LIBRARY openmpi)
    endif()
  endif()
endforeach()
if(WFLOW_MPI AND NOT WFLOW_MPI STREQUAL WFLOW_MPI_LIBRARY)
  message(FATAL_ERROR "WFLOW_MPI is ${WFLOW_MPI} and ${MPI_C_COMPILER} belongs to ${WFLOW_MPI_LIBRARY}: name the other compiler "
    "with -DMPI_C_COMPILER=..., in a new build folder")
endif()
# For scripts/package.
set(WFLOW_MPI_LIBRARY "${WFLOW_MPI_LIBRARY}" CACHE INTERNAL "openmpi or mpich")
