"""An installation puts `seqgate` beside the packages of a project, and hides none of them: the wheel, the
checkout as it is edited, and an sdist that is edited.

The project has a `gateway/`, a `log.py`, a `metadata.py` and a `tests/` of its own, and tests them with the
fixtures.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.release.building import Built, build, build_tools, export, last_change
from tests.release.commands import PIP, environment, run
from tests.release.version import check_version
from tests.support.gateway_process import REPOSITORY

MOST_PACKAGES = 26
MOST_MB = 70
"""What docs/testing.md says of an environment with pytest, and some room for new releases of packages."""
PROJECT = {
    "gateway/__init__.py": "NAME = 'gateway of the project'\n",
    "log.py": "NAME = 'log of the project'\n",
    "metadata.py": "NAME = 'metadata of the project'\n",
    "tests/__init__.py": "NAME = 'tests of the project'\n",
    "tests/conftest.py": "import gateway\n",
    "tests/test_shop.py": """
from kafka import KafkaProducer
from seqgate.testing import Broker

import gateway
import log
import metadata
import tests

def test_orders(seqgate: Broker, seqgate_topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=seqgate.bootstrap)
    producer.send(seqgate_topic, b"one").get(timeout=60)
    producer.close()
    seqgate.assert_exactly_once(seqgate_topic, [b"one"])

def test_names() -> None:
    for module in (gateway, log, metadata, tests):
        assert module.NAME == f"{module.__name__} of the project"
""",
    "pytest.ini": "[pytest]\npythonpath = .\n",
}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the packages that build Seqgate."""
    return build_tools(REPOSITORY, tmp_path_factory.mktemp("tools"))


@pytest.fixture(scope="module")
def built(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("built")
    sources = export(REPOSITORY, folder / "sources")
    return build(sources, tools, folder / "out", last_change(REPOSITORY))


@pytest.fixture(scope="module")
def bin_folder(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment into which a user has installed the wheel and pytest."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    into = ("--python", folder / "bin" / "python", "install", "--no-compile")
    run(*PIP, *into, "pytest", built.wheel, cwd=folder)
    return folder / "bin"


@pytest.fixture(scope="module", params=["wheel", "checkout", "sdist"])
def installed(
    request: pytest.FixtureRequest,
    bin_folder: Path,
    built: Built,
    tools: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The `bin` folder once the user has this Seqgate there, in place of the one before."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "sdist":
        with tarfile.open(built.sdist) as archive:
            archive.extractall(folder, filter="data")
        (sources,) = folder.iterdir()
        wanted = ["--editable", str(sources)]
    else:
        wanted = [str(built.wheel)] if request.param == "wheel" else ["--editable", str(REPOSITORY)]
    # all three have the same dependencies, and are built by the same packages
    replacing = ("--no-compile", "--no-deps", "--force-reinstall", "--no-build-isolation")
    run(*PIP, "--python", bin_folder / "python", "install", *replacing, *wanted, cwd=folder, path=tools)
    return bin_folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in PROJECT.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize("command", [["pytest"], ["python", "-m", "pytest"]], ids=" ".join)
def test_a_project_with_modules_of_these_names_tests_with_the_fixtures(
    installed: Path, project: Path, command: list[str]
) -> None:
    program, *words = command
    assert " passed" in run(installed / program, *words, "-q", cwd=project)


@pytest.mark.parametrize("command", [["seqgate"], ["python", "-m", "seqgate"]], ids=" ".join)
def test_its_command_runs_in_that_project(installed: Path, project: Path, command: list[str]) -> None:
    program, *words = command
    version = check_version(REPOSITORY, is_rehearsal=True)
    assert run(installed / program, *words, "--version", cwd=project).startswith(f"seqgate {version} (")
    assert run(installed / program, *words, "topics", "--help", cwd=project).startswith(
        "Usage: seqgate topics"
    )


def test_its_command_shows_the_pages(installed: Path, project: Path) -> None:
    assert run(installed / "seqgate", "help", "security", cwd=project).startswith("# Security")


def test_it_adds_two_names(installed: Path, project: Path) -> None:
    """All folders of the repository are below `seqgate`; `spark_kafka_compat` is a second name of the one
    there.
    """
    names = ["seqgate", "spark_kafka_compat", "seqgate.log", "seqgate.spark", "seqgate.testing"]
    run(installed / "python", "-P", "-c", f"import {', '.join(names)}", cwd=project)
    for name in ("gateway", "log", "pid_allocator", "seq_validator", "tests", "hatch_build"):
        done = subprocess.run(
            [installed / "python", "-P", "-c", f"import {name}"],
            cwd=project,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"No module named '{name}'" in done.stderr


@pytest.mark.parametrize("installed", ["wheel"], indirect=True)
def test_it_is_as_small_as_the_pages_say(installed: Path) -> None:
    (packages,) = installed.parent.glob("lib/python3*/site-packages")
    sizes = [
        path.lstat().st_blocks * 512
        for folder, _, names in os.walk(packages)
        for path in (Path(folder, name) for name in names)
        if path.suffix != ".pyc"
    ]
    assert len(list(packages.glob("*.dist-info"))) <= MOST_PACKAGES
    assert sum(sizes) <= MOST_MB << 20
