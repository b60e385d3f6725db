"""Both ways to run a module of the core, whichever of them this process uses itself."""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from hatch_build import can_compile
from seqgate.core import source_of, translation_of


def interpreted(name: str) -> ModuleType:
    """Return a module of the core as Python runs its text."""
    return _loaded(SourceFileLoader(_last(name), source_of(name)))


def compiled(name: str, path: str) -> ModuleType:
    """Return a module of the core from its translation at `path`."""
    return _loaded(ExtensionFileLoader(_last(name), path))


def both_ways(name: str) -> list[ModuleType]:
    """Return the interpreted module, and the compiled one wherever it can be compiled."""
    found = [interpreted(name)]
    path = translation_of(source_of(name))
    if Path(path).exists():
        found.append(compiled(name, path))
    elif can_compile():
        raise AssertionError(f"{path} is missing: run `{sys.executable} hatch_build.py`")
    return found


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _loaded(loader: SourceFileLoader | ExtensionFileLoader) -> ModuleType:
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
