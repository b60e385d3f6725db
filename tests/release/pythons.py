"""The Pythons on this machine that Seqgate runs on: on the PATH, and installed by pyenv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from packaging.version import Version

MINORS: Final = (11, 12, 13, 14)
"""The minor versions of Python 3 that a release is tested on."""
LOOK_TIMEOUT_S: Final = 30
_LOOK: Final = "import platform, sys, venv; print(platform.python_version(), sys.base_prefix)"


def pythons() -> dict[str, Path]:
    """Return an interpreter for each version that is here, such as `{"3.12": PATH}`, in the order of the
    versions.

    Of several with one minor version the newest patch release counts. Interpreters of virtual environments
    lead to their base.
    """
    found: dict[str, tuple[Version, Path]] = {}
    for candidate in dict.fromkeys(_candidates()):
        seen = _look(candidate)
        if seen is None:
            continue
        version, python = seen
        name = f"{version.major}.{version.minor}"
        if version.major == 3 and version.minor in MINORS and (name not in found or found[name][0] < version):
            found[name] = version, python
    return {name: found[name][1] for name in sorted(found, key=Version)}


def this_python() -> str:
    """Return the version that runs the tests, such as `3.11`."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _candidates() -> Iterator[Path]:
    yield Path(sys.executable)
    for minor in MINORS:
        program = shutil.which(f"python3.{minor}")
        if program is not None:
            yield Path(program)
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for minor in MINORS:
        yield from sorted(root.glob(f"versions/3.{minor}.*/bin/python"))


def _look(candidate: Path) -> tuple[Version, Path] | None:
    """Return the version and the base interpreter of a program, or None for one that does not run, such as
    pyenv's stand-ins.
    """
    done = subprocess.run(
        [candidate, "-I", "-c", _LOOK], capture_output=True, text=True, timeout=LOOK_TIMEOUT_S, check=False
    )
    if done.returncode:
        return None
    version, prefix = done.stdout.split(maxsplit=1)
    parsed = Version(version)
    python = Path(prefix.strip()) / "bin" / f"python{parsed.major}.{parsed.minor}"
    return (parsed, python) if python.is_file() else None
