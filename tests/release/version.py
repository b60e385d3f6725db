"""Checks that the files which name the version agree, and that the changelog has its section."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

SECTION = r"^## (?P<version>\S+) \((?P<when>[^)]*)\)$"


class NotReady(Exception):
    """The files are not those of a release; the message says what to change."""


def check_version(sources: Path, *, is_rehearsal: bool) -> str:
    """Return the version of the sources. A rehearsal accepts a changelog that says `(unreleased)`.

    Raises NotReady.
    """
    version = str(tomllib.loads((sources / "pyproject.toml").read_text())["project"]["version"])
    for file, named in named_versions(sources).items():
        if named != {version}:
            shown = ", ".join(sorted(named)) or "no version"
            raise NotReady(f"{file} names {shown}, but pyproject.toml has version {version}")
    first = re.search(SECTION, (sources / "CHANGELOG.md").read_text(), re.MULTILINE)
    if first is None or first["version"] != version:
        raise NotReady(f"the first section of CHANGELOG.md must be '## {version} (YYYY-MM-DD)'")
    when = first["when"]
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", when) and not (is_rehearsal and when == "unreleased"):
        raise NotReady(
            f"the first section of CHANGELOG.md says ({when}): write the day of the release, such as "
            "(2026-01-31), or give --rehearsal"
        )
    return version


def named_versions(sources: Path) -> dict[str, set[str]]:
    """Return the versions of Seqgate that the package and the files for deployment name, by file."""
    package = "src/seqgate/__init__.py"
    found = {
        package: re.findall(r'__version__ = "([^"]+)"', (sources / package).read_text()),
        "Dockerfile": re.findall(r'image\.version="([^"]+)"', (sources / "Dockerfile").read_text()),
        "compose.yaml": re.findall(r"image: seqgate:(\S+)", (sources / "compose.yaml").read_text()),
    }
    manifest = "deploy/kubernetes/gateway/kustomization.yaml"
    found[manifest] = re.findall(r"newTag: (\S+)", (sources / manifest).read_text())
    return {file: set(versions) for file, versions in found.items()}
