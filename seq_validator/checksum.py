"""CRC-32C (Castagnoli), as Kafka has it in batches: the compiled function of the package crc32c.

The package itself imports a command line, archives and mail, which takes a tenth as long as a whole start of
a gateway. So its compiled module is loaded alone.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from crc32c import crc32c

_COMPILED: Final = "crc32c._crc32c"


def _load_alone() -> object:
    """Return the compiled module; the whole package where it has no such module."""
    package = PathFinder.find_spec("crc32c")
    found = PathFinder.find_spec(_COMPILED, None if package is None else package.submodule_search_locations)
    if found is None or found.loader is None:
        return import_module("crc32c")
    module = sys.modules.get(_COMPILED)
    if module is None:
        module = sys.modules[_COMPILED] = module_from_spec(found)
        found.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    crc32c = _load_alone().crc32c

__all__ = ["crc32c"]
