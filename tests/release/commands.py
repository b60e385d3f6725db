"""Runs the programs of a release, apart from this checkout and its environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

LIMIT_S: Final = 300.0
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
_OWN: Final = ("PYTHONPATH", "VIRTUAL_ENV", "SOURCE_DATE_EPOCH")


def environment(path: Path | None = None, further: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of a program that sees no package but those in `path`, and no setting of a
    gateway.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in _OWN and not name.startswith("SEQGATE_")
    }
    return inherited | ({} if path is None else {"PYTHONPATH": str(path)}) | dict(further or {})


def run(
    *command: str | Path, cwd: Path, path: Path | None = None, further: Mapping[str, str] | None = None
) -> str:
    """Return what a command prints on both outputs. Raises AssertionError with the output when the command
    fails.
    """
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment(path, further),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))} exited with {done.returncode}\n{done.stdout}"
    return done.stdout
