# SPDX-License-Identifier: Apache-2.0
# Spack has none of its own.
from spack.package import *


class Sqlitecpp(CMakePackage):
    """SQLiteC++, a C++ wrapper of SQLite."""

    homepage = "https://srombauts.github.io/SQLiteCpp/"
    git = "https://github.com/SRombauts/SQLiteCpp.git"

    license("MIT")

    version("3.2.1", tag="3.2.1")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("sqlite")

    def cmake_args(self):
        return [self.define("SQLITECPP_INTERNAL_SQLITE", False), self.define("SQLITECPP_RUN_CPPLINT", False),
                self.define("SQLITECPP_RUN_CPPCHECK", False)]
