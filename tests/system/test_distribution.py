"""The wheel and the sdist: the metadata that a package index shows, equal builds, and the first use on every
Python, each in an environment without other packages.
"""

from __future__ import annotations

import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.release.bill_of_materials import write_bill
from tests.release.building import Built, build, build_compiled, build_tools, export, last_change
from tests.release.commands import PIP, run
from tests.release.installed import EXTRAS, Installed, install
from tests.release.pythons import MINORS, pythons, this_python
from tests.release.smoke import serving, smoke
from tests.release.version import NotReady, check_version
from tests.support.gateway_process import REPOSITORY, free_port

PACKAGES = ("gateway", "log", "pid_allocator", "seq_validator", "spark_kafka_compat")
CACHE = REPOSITORY / ".cache" / "installed"


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Built, Built]:
    """Build the wheel from the sdist's own files, with the build tools that pyproject.toml names, twice in
    different places.
    """
    folder = tmp_path_factory.mktemp("built")
    sources = export(REPOSITORY, folder / "sources")
    elsewhere = export(REPOSITORY, folder / "elsewhere" / "copy")
    tools, epoch = build_tools(sources, folder / "tools"), last_change(REPOSITORY)
    return build(sources, tools, folder / "one", epoch), build(elsewhere, tools, folder / "two", epoch)


@pytest.fixture(scope="module")
def built(builds: tuple[Built, Built]) -> Built:
    return builds[0]


@pytest.fixture(scope="module")
def here(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel, installed for the Python that runs the tests."""
    return install(pythons()[this_python()], built.wheel, tmp_path_factory.mktemp("here") / "wheel", CACHE)


def version() -> str:
    return str(tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"])


def test_two_builds_are_equal(builds: tuple[Built, Built]) -> None:
    for one, other in zip(*builds, strict=True):
        assert one != other
        assert one.read_bytes() == other.read_bytes()


def test_an_index_would_take_and_show_both(built: Built) -> None:
    shown = run(sys.executable, "-m", "twine", "check", "--strict", built.wheel, built.sdist, cwd=REPOSITORY)
    assert shown.count("PASSED") == 2


def test_it_says_on_which_pythons_it_runs(built: Built) -> None:
    said = {line.rpartition(" ")[2] for line in built.metadata.get_all("Classifier", []) if ":: 3." in line}
    assert said == {f"3.{minor}" for minor in MINORS}


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
    installed = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert installed == {"seqgate", "spark_kafka_compat.py"}
    assert {"seqgate/py.typed", *(f"seqgate/{package}/__init__.py" for package in PACKAGES)} <= set(names)
    assert len(names) == len(set(names))
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")] != []


def test_the_sdist_has_the_docs_the_examples_and_the_files_for_deployment(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    pages = {str(page.relative_to(REPOSITORY)) for page in (REPOSITORY / "docs").rglob("*.md")}
    deployed = {
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "deploy").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    examples = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "examples").glob("*/README.md")}
    others = {"README.md", "CHANGELOG.md", "LICENSE", "Makefile", "pyproject.toml"}
    others |= {"Dockerfile", ".dockerignore", "compose.yaml", "hatch_build.py", "src/seqgate/__init__.py"}
    assert pages | deployed | examples | others <= names


def test_the_installed_wheel_serves_a_client_and_keeps_its_records(here: Installed, tmp_path: Path) -> None:
    smoke(here, tmp_path, f"{version()} (interpreted core)")


@pytest.mark.tier("nightly")
def test_the_wheel_with_a_compiled_core_does_so(built: Built, tmp_path: Path) -> None:
    wheel = build_compiled(built.sdist, Path(sys.executable), tmp_path)
    assert "-manylinux" in wheel.name
    used = tmp_path / "used"
    used.mkdir()
    smoke(
        install(Path(sys.executable), wheel, tmp_path / "wheel", CACHE), used, f"{version()} (compiled core)"
    )


@pytest.mark.parametrize("minor", MINORS)
def test_it_does_so_on_every_python(built: Built, minor: int, tmp_path: Path) -> None:
    """Of a Python that is not here, an index must have a compiled package of all that the wheel requires."""
    name = f"3.{minor}"
    if name not in pythons():
        wanted = f"{built.wheel}[{','.join(EXTRAS)}]"
        place = ("--target", tmp_path / "nowhere", "--python-version", name, "--only-binary", ":all:")
        run(*PIP, "install", "--dry-run", *place, wanted, cwd=tmp_path)
        return
    installed = install(pythons()[name], built.wheel, tmp_path / "wheel", CACHE)
    used = tmp_path / "used"
    used.mkdir()
    smoke(installed, used, f"{version()} (interpreted core)")


@pytest.mark.parametrize(
    "words",
    [
        ["uv", "tool", "run", "--from", "WHEEL", "seqgate"],
        ["uv", "tool", "install", "WHEEL"],
        ["pipx", "run", "--spec", "WHEEL", "seqgate"],
    ],
    ids=" ".join,
)
def test_tools_install_the_command_for_one_user(built: Built, words: list[str], tmp_path: Path) -> None:
    places = {
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "PIPX_HOME": str(tmp_path / "pipx"),
        "UV_PYTHON": str(pythons()[this_python()]),
        "PIPX_DEFAULT_PYTHON": str(pythons()[this_python()]),
    }
    command = [sys.executable, "-m", *(str(built.wheel) if word == "WHEEL" else word for word in words)]
    if "install" in words:
        run(*command, cwd=tmp_path, further=places)
        command = [str(tmp_path / "bin" / "seqgate")]
    said = run(*command, "--version", cwd=tmp_path, further=places)
    assert said.splitlines()[-1] == f"seqgate {version()} (interpreted core)"


def test_a_line_written_by_the_command_is_read_by_the_command(here: Installed, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (tmp_path / "lines").write_text("hello\n")
    with serving(here, tmp_path, f"127.0.0.1:{free_port()}") as address:
        words = ("produce", "greetings", "--create", "--bootstrap", address, "--file", tmp_path / "lines")
        here.run(*words, cwd=tmp_path)
        assert here.run("consume", "greetings", "--bootstrap", address, cwd=tmp_path) == "hello\n"
        assert address in here.run("status", "--data-dir", data, cwd=tmp_path)


def test_the_installed_command_shows_the_pages(here: Installed, built: Built, tmp_path: Path) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        of_docs = {name for name in archive.namelist() if name.startswith("seqgate/docs/")}
    assert of_docs == {f"seqgate/docs/{path.name}" for path in (REPOSITORY / "docs").glob("*.md")}
    listed = here.run("help", cwd=tmp_path)
    for name in of_docs - {"seqgate/docs/README.md"}:
        assert f"\n  {Path(name).stem} " in listed
    assert here.run("help", "security", cwd=tmp_path).startswith("# Security")


def test_the_bill_of_materials_names_what_is_installed(here: Installed, tmp_path: Path) -> None:
    document = write_bill(here, REPOSITORY, tmp_path / "bill.json")
    assert document["metadata"]["component"]["version"] == version()
    named = {part["name"].lower().replace("_", "-") for part in document["components"]}
    assert {"kio", "uvloop", "crc32c", "cramjam", "obstore", "starlette"} <= named
    assert not {"pytest", "hypothesis", "ruff"} & named


class TestVersions:
    def test_all_files_name_the_same_one(self) -> None:
        assert check_version(REPOSITORY, is_rehearsal=True) == version()

    @pytest.mark.parametrize(
        ("file", "was", "then", "complaint"),
        [
            ("compose.yaml", "seqgate:", "seqgate:9", r"compose\.yaml names 9\d+\.\d+\.\d+, "),
            (
                "src/seqgate/__init__.py",
                '__version__ = "',
                '__version__ = "9',
                r"src/seqgate/__init__\.py names 9",
            ),
            ("Dockerfile", 'image.version="', 'image.version="9', r"Dockerfile names 9"),
            ("CHANGELOG.md", "## ", "## 9", r"the first section of CHANGELOG\.md must be"),
            ("CHANGELOG.md", "(unreleased)", "(soon)", r"says \(soon\): write the day"),
        ],
    )
    def test_a_file_that_differs_is_named(
        self, file: str, was: str, then: str, complaint: str, tmp_path: Path
    ) -> None:
        sources = export(REPOSITORY, tmp_path / "sources")
        path = sources / file
        path.write_text(path.read_text().replace(was, then))
        with pytest.raises(NotReady, match=complaint):
            check_version(sources, is_rehearsal=True)


def test_the_wheel_has_the_pages_of_the_console(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
    console = REPOSITORY / "gateway" / "console"
    files = [
        path for folder in ("static", "templates") for path in (console / folder).rglob("*") if path.is_file()
    ]
    assert len(files) > 10
    assert {f"seqgate/{path.relative_to(REPOSITORY)}" for path in files} - names == set()
    assert "seqgate/gateway/console/static/vendor/uplot/LICENSE" in names
