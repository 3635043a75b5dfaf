# SPDX-License-Identifier: Apache-2.0
# Versions that are set here are those of Debian 12, which CI builds with; none older was tried.
from spack.package import *


class Wflow(CMakePackage):
    """A workflow engine for ensembles of simulations that train networks."""

    license("Apache-2.0")

    # Without an address of the sources: spack dev-build wflow@main, in a checkout.
    version("main")

    variant("trainer", default=True, description="the trainer, which needs MPI and libtorch")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("cairo+png+svg+ft+fc")
    depends_on("cli11@2.1:")
    depends_on("cppzmq")
    depends_on("fftw precision=float")
    depends_on("flatbuffers@2:")
    depends_on("fmt@9:")
    depends_on("gsl")
    depends_on("hdf5+hl")
    depends_on("libdeflate")
    depends_on("libpng")
    depends_on("libsodium")
    depends_on("libzip")
    depends_on("libzmq@4.3:")
    depends_on("msgpack-c")
    depends_on("ncurses")
    depends_on("netcdf-c")
    depends_on("nlohmann-json@3.11:")
    depends_on("re2")
    depends_on("spdlog@1.10:")
    depends_on("sqlite@3.40:")
    depends_on("sqlitecpp")
    depends_on("utf8proc")
    depends_on("xxhash")
    depends_on("yaml-cpp@0.7:")
    depends_on("zlib-api")
    depends_on("openmpi@4.1:", when="+trainer")
    depends_on("onednn", when="+trainer")
    depends_on("openblas", when="+trainer")
    depends_on("py-torch@1.13:", when="+trainer")

    conflicts("%gcc@:11", msg="wflow is C++20: GCC 12 or newer, or clang 14 or newer")
    conflicts("%clang@:13", msg="wflow is C++20: GCC 12 or newer, or clang 14 or newer")

    def cmake_args(self):
        return [self.define_from_variant("WFLOW_TRAINER", "trainer"), self.define("BUILD_TESTING", False)]
