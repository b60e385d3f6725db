"""Earlier releases of Seqgate, out of the history of the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from tests.release.building import NoSuchCommit, build, build_tools, export, git, last_change
from tests.release.installed import Installed, install
from tests.release.pythons import pythons, this_python
from tests.support.gateway_process import REPOSITORY
from tests.support.missing import missing

PREVIOUS: Final = "7151510a138a8e08c4e0a265b1359df7e235079a"
"""The commit of the previous release, from which users upgrade to this one; docs/contributing/releasing.md says when to
move it.
"""
CACHE: Final = REPOSITORY / ".cache" / "installed"


class Earlier(NamedTuple):
    """An earlier release, as its users have it."""

    commit: str
    installed: Installed
    page: Path
    """Its page of settings."""


def sources_of(commit: str, folder: Path) -> Path:
    """Return the sources of a commit; skip the test where the clone lacks them, and fail in CI."""
    try:
        return export(REPOSITORY, folder, commit)
    except NoSuchCommit as error:
        missing(f"the clone lacks the earlier release {commit}: git fetch --unshallow ({error})")


def install_earlier(commit: str, folder: Path) -> Earlier:
    """Build the wheel of a commit with the tools that the commit names, and install it with what it requires."""
    sources = sources_of(commit, folder / "sources")
    tools = build_tools(sources, folder / "tools")
    wheel = build(sources, tools, folder / "built", last_change(REPOSITORY, commit)).wheel
    installed = install(pythons()[this_python()], wheel, folder / "wheel", CACHE)
    return Earlier(
        git(REPOSITORY, "rev-parse", commit).strip(), installed, sources / "docs" / "configuration.md"
    )
