# SPDX-License-Identifier: Apache-2.0
"""Finds the program wflow. A wheel contains it, in PREFIX/bin of the folder PREFIX below; elsewhere it is on PATH."""
from __future__ import annotations

import os
import shutil
from pathlib import Path

from wflow._errors import Error

PREFIX = Path(__file__).parent / "_prefix"


def program() -> str:
    """Returns the path of the program: $WFLOW, that of the wheel, or the first on PATH. Raises Error if there is none."""
    inside = PREFIX / "bin" / "wflow"
    found = shutil.which(os.environ.get("WFLOW") or (str(inside) if inside.exists() else "wflow"))
    if found is None:
        raise Error("there is no program wflow on PATH; put the folder of wflow there, or set the variable WFLOW to the program")
    return found
