"""The core: the modules that a C compiler may translate, and how Python finds their translation.

A module of the core is plain Python. Beside it lies a `.pxd` with C types, which only Cython reads. The
translation lies there, too, under a name with the checksum of both, such as
`record_walk.4be1c3f2.cpython-311-x86_64-linux-gnu.so`. Python's own import knows no such name; the finder
here does. So the translation of an older text is never used, and where there is none, or under
SEQGATE_PURE=1, the text is interpreted as any other.
"""

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from zlib import crc32

MODULES = ("seqgate.log.format.record_walk",)
PURE = "SEQGATE_PURE"
"""The environment variable that switches the translations off, with any value but an empty one or 0."""


def translation_of(source: str) -> str:
    """Return where the translation of a module's file lies, if there is one."""
    stem = source.removesuffix(".py")
    checksum = 0
    for path in (source, f"{stem}.pxd"):
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slow to import, and every start comes here
            checksum = crc32(file.read(), checksum)
    return f"{stem}.{checksum:08x}{EXTENSION_SUFFIXES[0]}"


def source_of(module: str) -> str:
    """Return the file of a module of the core."""
    below = module.partition(".")[2].replace(".", os.sep)
    return os.path.join(os.path.dirname(__file__), f"{below}.py")  # noqa: PTH118, PTH120 - as above


def kind() -> str:
    """Return how this process runs the core: "compiled" or "interpreted"."""
    return "compiled" if all(map(_is_compiled, MODULES)) else "interpreted"


def _is_compiled(module: str) -> bool:
    """Return whether a module is loaded from its translation, or will be. Files may change later."""
    loaded = sys.modules.get(module)
    if loaded is not None:
        return not str(loaded.__file__).endswith(".py")
    return _usable(module) is not None


def _usable(module: str) -> str | None:
    """Return the path of a module's translation, if it may be used and is there."""
    if os.environ.get(PURE, "0") not in {"", "0"}:
        return None
    try:
        path = translation_of(source_of(module))
    except OSError:
        return None
    return path if os.path.exists(path) else None  # noqa: PTH110 - as above


class _Finder:
    """Finds the translations; Python asks it before it looks for the texts."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name not in MODULES:
            return None
        found = _usable(name)
        if found is None:
            return None
        spec = ModuleSpec(name, ExtensionFileLoader(name, found), origin=found)
        spec.has_location = True
        return spec


def install() -> None:
    """Let Python use the translations from now on."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
