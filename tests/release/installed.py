"""A wheel that is installed for one Python, beside packages that are installed once and kept for later runs."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from email.parser import Parser
from pathlib import Path
from typing import Any, Final, NamedTuple

from packaging.requirements import Requirement

from tests.release.commands import PIP, environment, run

EXTRAS: Final = ("cluster", "codecs", "console", "otlp", "redis", "security")
"""What the image has beside the gateway, too."""
_DONE: Final = ".complete"


class Installed(NamedTuple):
    """A wheel in a folder of its own, and an environment that has what the wheel requires."""

    python: Path
    """The interpreter of the environment."""
    path: Path
    """The folder that has the wheel's packages, and nothing else."""

    def command(self, *words: str | Path) -> list[str | Path]:
        """Return a command of the installed `seqgate`."""
        return [self.python, self.path / "bin" / "seqgate", *words]

    def run(self, *words: str | Path, cwd: Path) -> str:
        """Return what a command of the installed `seqgate` prints. Raises AssertionError when it fails."""
        return run(*self.command(*words), cwd=cwd, path=self.path)

    def start(
        self, *words: str | Path, cwd: Path, further: Mapping[str, str] | None = None, **rest: Any
    ) -> subprocess.Popen[str]:
        """Start a command of the installed `seqgate`, with its standard output in a pipe."""
        return subprocess.Popen(
            self.command(*words),
            cwd=cwd,
            env=environment(self.path, further),
            stdout=subprocess.PIPE,
            text=True,
            **rest,
        )


def install(
    python: Path, wheel: Path, folder: Path, cache: Path, extras: Sequence[str] = EXTRAS
) -> Installed:
    """Install a wheel into `folder` for a Python. What it requires is installed into `cache` at the first
    time only.
    """
    interpreter = _environment_with(python, requirements(wheel, extras), cache)
    run(*PIP, "--python", interpreter, "install", "--no-deps", "--target", folder, wheel, cwd=cache)
    return Installed(interpreter, folder)


def requirements(wheel: Path, extras: Sequence[str] = ()) -> list[str]:
    """Return what a wheel requires with the extras. Markers about the Python stay: pip evaluates them."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        listed = Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist", [])
    found = []
    for requirement in map(Requirement, listed):
        marker, requirement.marker = requirement.marker, None
        text = str(requirement)
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
            found.append(text)
    return sorted(set(found))


def _environment_with(python: Path, packages: Sequence[str], cache: Path) -> Path:
    """Return the interpreter of an environment that has the packages. Processes that need the same one wait
    for the first.
    """
    wanted = "\n".join([str(python), *packages])
    folder = cache / f"{python.name}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _DONE).is_file():
            shutil.rmtree(folder, ignore_errors=True)
            run(python, "-m", "venv", "--without-pip", folder, cwd=cache)
            run(*PIP, "--python", folder / "bin" / "python", "install", *packages, cwd=cache)
            (folder / _DONE).write_text(wanted)
    return folder / "bin" / "python"
