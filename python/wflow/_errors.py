# SPDX-License-Identifier: Apache-2.0
"""Errors of data. Their texts name the file and say what to do."""


class Error(Exception):
    """The base of all errors of this package."""


class DamagedData(Error):
    """The bytes of a file are not those that wflow-convert wrote."""


class NewerFormat(Error):
    """A newer wflow wrote the file."""
