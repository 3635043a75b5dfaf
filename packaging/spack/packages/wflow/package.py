# SPDX-License-Identifier: Apache-2.0
# Versions that are set here are those of Debian 12, which CI builds with; none older was tried.
from spack.package import *


class Wflow(CMakePackage):
    """A workflow engine for ensembles of simulations that train networks."""

    license("Apache-2.0")

    # Without an address of the sources: spack dev-build wflow@main, in a checkout.
    version("main")

    variant("hdf5", default=True, description="conversion to training data")
    variant("trainer", default=True, when="+hdf5", description="the trainer")
    variant("torch", default=True, when="+trainer", description="networks of libtorch, beside those of oneDNN")
    variant("mpi", default="openmpi", values=("openmpi", "mpich"), when="+trainer", description="the MPI of the trainer")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("cairo@1.16:+png+svg+ft+fc")
    depends_on("cli11@2.1:")
    depends_on("cppzmq")
    depends_on("fftw@3.3: precision=float", when="+hdf5")
    depends_on("flatbuffers@2:")
    depends_on("fmt@9.1:")
    depends_on("gsl@2.7:")
    depends_on("hdf5@1.10:+hl", when="+hdf5")
    depends_on("libdeflate@1.14:")
    depends_on("libpng@1.6:", when="+hdf5")
    depends_on("libsodium@1.0.18:")
    depends_on("libzip@1.7:", when="+hdf5")
    depends_on("libzmq@4.3.4:")
    depends_on("msgpack-c")
    depends_on("ncurses@6.4:")
    depends_on("netcdf-c@4.9:", when="+hdf5")
    depends_on("nlohmann-json@3.11:")
    depends_on("re2")
    depends_on("spdlog@1.10:")
    depends_on("sqlite@3.40:")
    depends_on("sqlitecpp@3.2:")
    depends_on("utf8proc@2.6:")
    depends_on("xxhash@0.8.1:")
    depends_on("yaml-cpp@0.7:")
    depends_on("zlib-api@1.2.13:")
    depends_on("openmpi@4.1:", when="mpi=openmpi")
    depends_on("mpich@4:", when="mpi=mpich")
    depends_on("onednn", when="+trainer")
    depends_on("openblas", when="+torch")
    depends_on("py-torch@1.13:", when="+torch")

    conflicts("%gcc@:11", msg="wflow is C++20: GCC 12 or newer, or clang 14 or newer")
    conflicts("%clang@:13", msg="wflow is C++20: GCC 12 or newer, or clang 14 or newer")

    def cmake_args(self):
        args = [self.define_from_variant(f"WFLOW_{part.upper()}", part) for part in ("hdf5", "trainer", "torch", "mpi")]
        return [*args, self.define("BUILD_TESTING", False)]
