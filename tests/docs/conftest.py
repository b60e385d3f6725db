"""The site of the docs, built once for all tests of a process."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.markdown import REPOSITORY

LIMIT_S = 300
WITHOUT_NETWORK = """
import runpy, sys

def refuse(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname"}:
        raise RuntimeError(f"the build asked the network: {event} {arguments}")

sys.addaudithook(refuse)
runpy.run_module("tests.docs.site", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class BuiltSite:
    """What `make site` left: its folder, its exit status and all that it printed."""

    directory: Path
    status: int
    output: str


@pytest.fixture(scope="session")
def built_site(tmp_path_factory: pytest.TempPathFactory) -> BuiltSite:
    """Build the site as `make site` does, in a process in which every use of the network is an error."""
    folder = tmp_path_factory.mktemp("site")
    directory = folder / "site"
    options = ["--output", str(directory), "--work", str(folder / "work")]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NETWORK, *options],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return BuiltSite(directory, done.returncode, done.stdout)
