"""The core: the modules that a C compiler may translate, and how Python finds their translation.

A module of the core is plain Python. Beside it lies a `.pxd` with C types, which only Cython reads. The
translation lies there, too, under a name with the checksum of both, such as
`record_walk.4be1c3f2.cpython-311-x86_64-linux-gnu.so`. Python's own import knows no such name; the finder
here does. So the translation of an older text is never used, and where there is none, or under
SEQGATE_PURE=1, the text is interpreted as any other. It is, too, where a translation can't be loaded: one for
another machine or another C library, or a damaged one. `complaint` says why.
"""

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from zlib import crc32

MODULES = (
    "seqgate.log.format.record_walk",
    "seqgate.gateway.protocol.produce_prefix",
    "seqgate.log.compaction.offset_map",
)
PURE = "SEQGATE_PURE"
"""The environment variable that switches the translations off, with any value but an empty one or 0."""
_ELF_HEAD_BYTES = 64
_ELF = b"\x7fELF\x02\x01"
"""The first bytes of a library of Linux: 64 bits, little-endian."""
_complaints: dict[str, str] = {}


def translation_of(source: str) -> str:
    """Return where the translation of a module's file lies, if there is one."""
    stem = source.removesuffix(".py")
    checksum = 0
    for path in (source, f"{stem}.pxd"):
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slow to import, and every start comes here
            checksum = crc32(file.read(), checksum)
    return f"{stem}.{checksum:08x}{EXTENSION_SUFFIXES[0]}"


def source_of(module: str) -> str:
    below = module.partition(".")[2].replace(".", os.sep)
    return os.path.join(os.path.dirname(__file__), f"{below}.py")  # noqa: PTH118, PTH120 - as above


def kind() -> str:
    """Return how this process runs the core: "compiled" or "interpreted"."""
    return "compiled" if all(map(_is_compiled, MODULES)) else "interpreted"


def complaint() -> str | None:
    """Return why a translation that is there can't be used, or None."""
    return next(iter(_complaints.values()), None) if kind() == "interpreted" else None


def described(version: str) -> str:
    """Return the version and which core runs, and the complaint in a line of its own."""
    text = complaint()
    return f"seqgate {version} ({kind()} core)" + (f"\nseqgate: {text}" if text else "")


def _is_compiled(module: str) -> bool:
    """Return whether a module is loaded from its translation, or will be. Files may change later."""
    loaded = sys.modules.get(module)
    if loaded is not None:
        return not str(loaded.__file__).endswith(".py")
    return _Finder.find_spec(module) is not None


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
        loader = ExtensionFileLoader(name, found)
        spec = ModuleSpec(name, loader, origin=found)
        spec.has_location = True
        try:
            _check_whole(found)
            loader.create_module(spec)
        except (ImportError, OSError) as error:
            _complaints[name] = f"the compiled core can't be used, so it is interpreted: {error}"
            return None
        return spec


def _check_whole(path: str) -> None:
    """Check that a library has the section headers with which it ends. Python would die of one whose pages
    are not in the file. Raises OSError.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - as above
        head = file.read(_ELF_HEAD_BYTES)
        size = file.seek(0, os.SEEK_END)
    if head.startswith(_ELF):
        position, bytes_of_each, count = (
            int.from_bytes(head[start:end], "little") for start, end in ((40, 48), (58, 60), (60, 62))
        )
        if position + bytes_of_each * count > size:
            raise OSError(f"{path} is cut after {size} bytes")


def install() -> None:
    """Let Python use the translations from now on."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
