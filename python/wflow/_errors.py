# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with data; the texts name the file and say what to do."""


class Error(Exception):
    """Base of all errors of this package."""


class DamagedData(Error):
    """Bytes are not those that wflow-convert wrote."""


class NewerFormat(Error):
    """A newer wflow wrote it."""
