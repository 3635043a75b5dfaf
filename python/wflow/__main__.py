# SPDX-License-Identifier: Apache-2.0
"""`python -m wflow ...` is `wflow ...`."""
import os
import sys

from wflow._errors import Error
from wflow._program import program

if __name__ == "__main__":
    try:
        path = program()
    except Error as error:
        sys.exit(f"wflow: {error}")
    os.execv(path, [path, *sys.argv[1:]])
