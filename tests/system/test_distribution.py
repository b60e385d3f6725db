"""The wheel and the sdist: the metadata that a package index shows, and the first use in an environment
without other packages.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.gateway_process import REPOSITORY, free_port

PACKAGES = ("gateway", "log", "pid_allocator", "seq_validator", "spark_kafka_compat")
LIMIT_S = 240.0
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


class Built(NamedTuple):
    wheel: Path
    sdist: Path

    @property
    def metadata(self) -> Message:
        with zipfile.ZipFile(self.wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return Parser().parsestr(archive.read(name).decode())


def run(*command: str | Path, path: Path | None = None, cwd: Path = REPOSITORY, status: int = 0) -> str:
    """Return what a command prints on both outputs; it sees no package but those in `path`."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the wheel from the sdist's own files, with the build tools that pyproject.toml names."""
    folder = tmp_path_factory.mktemp("built")
    tools, unpacked = folder / "tools", folder / "unpacked"
    required = re.search(r"^requires = \[(.*)\]$", (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE)
    assert required is not None
    run(*PIP, "install", "--target", tools, *re.findall(r'"([^"]+)"', required[1]))
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, path=tools)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, path=tools, cwd=source)
    (wheel,) = folder.glob("*.whl")
    return Built(wheel, sdist)


@pytest.fixture(scope="module")
def environment(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an environment of its own and return the folder of its programs."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    run(*PIP, "--python", folder / "bin" / "python", "install", built.wheel)
    return folder / "bin"


def test_the_metadata_say_where_it_runs_and_under_which_license(built: Built) -> None:
    metadata = built.metadata
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"] == "The Seqgate maintainers"
    assert {"Operating System :: POSIX :: Linux", "Typing :: Typed"} <= set(
        metadata.get_all("Classifier", [])
    )


def test_the_page_of_an_index_has_no_link_into_the_repository(built: Built) -> None:
    metadata = built.metadata
    page = metadata.get_payload()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert isinstance(page, str)
    assert page.startswith("# Seqgate")
    assert "docs/" in page
    assert re.findall(r"\]\((?!https?:|#)[^)]*\)", page) == []


def test_the_wheel_has_the_packages_and_their_types(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")] != []


def test_the_sdist_has_the_docs(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    pages = {f"docs/{page.name}" for page in (REPOSITORY / "docs").glob("*.md")}
    assert pages | {"README.md", "CHANGELOG.md", "LICENSE", "Makefile", "pyproject.toml"} <= names


def test_the_installed_wheel_serves_takes_a_record_and_gives_it_back(
    environment: Path, tmp_path: Path
) -> None:
    seqgate, address = environment / "seqgate", f"127.0.0.1:{free_port()}"
    data = tmp_path / "data"
    gateway = subprocess.Popen(
        [seqgate, "serve", "--listen", address, "--data-dir", data],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    try:
        assert gateway.stdout is not None
        assert select.select([gateway.stdout], [], [], LIMIT_S)[0]
        assert gateway.stdout.readline().startswith(f"seqgate ready on {address} ")
        (tmp_path / "lines").write_text("hello\n")
        run(
            seqgate,
            "produce",
            "greetings",
            "--create",
            "--bootstrap",
            address,
            "--file",
            tmp_path / "lines",
            cwd=tmp_path,
        )
        assert run(seqgate, "consume", "greetings", "--bootstrap", address, cwd=tmp_path) == "hello\n"
        assert address in run(seqgate, "status", "--data-dir", data, cwd=tmp_path)
    finally:
        gateway.send_signal(signal.SIGTERM)
        output, _ = gateway.communicate(timeout=LIMIT_S)
    assert gateway.returncode == 0, output
