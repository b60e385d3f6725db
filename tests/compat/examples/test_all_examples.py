"""What all projects in `examples/` have: a place in the table, a README, and requirements that name what they
import.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest

from tests.compat.examples.example import EXAMPLES, documented_commands
from tests.support.gateway_process import REPOSITORY

PROJECTS = sorted(
    folder
    for folder in EXAMPLES.iterdir()
    if folder.is_dir() and folder.name not in {"testing", "__pycache__"}
)
APART = [project for project in PROJECTS if project.name != "demo"]
"""The projects that are installed apart; `make demo` runs the demo, and docs/demo.md describes it."""
PYTHON = [project for project in APART if any(project.glob("*.py"))]
SECTIONS = ("## How it works", "## Limits")
SEQGATE = "../.."
"""Installs Seqgate from the checkout, in a command of a README."""


def imported(project: Path) -> set[str]:
    """Return the packages that the project's modules import, without its own and those of Python."""
    names: set[str] = set()
    for module in project.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                names.add(node.module.partition(".")[0])
    return names - {module.stem for module in project.glob("*.py")} - sys.stdlib_module_names


def distributions(requirements: Iterable[str]) -> set[str]:
    """Return the names in requirements such as `psycopg[binary]>=3.2`."""
    return {re.split(r"[\[<>=]", requirement)[0] for requirement in requirements}


def test_the_table_names_every_project() -> None:
    table = (EXAMPLES / "README.md").read_text()
    assert re.findall(r"^\| \[([\w-]+)\]\(\1/README\.md\)", table, re.MULTILINE) != []
    assert set(re.findall(r"^\| \[([\w-]+)\]", table, re.MULTILINE)) == {project.name for project in PROJECTS}


@pytest.mark.parametrize("project", APART, ids=lambda project: project.name)
def test_each_readme_says_how_it_runs_how_it_works_and_what_it_does_not(project: Path) -> None:
    readme = project / "README.md"
    assert re.findall(r"^## .*", readme.read_text(), re.MULTILINE) == list(SECTIONS)
    assert len(documented_commands(readme)) >= 2


@pytest.mark.parametrize("project", PYTHON, ids=lambda project: project.name)
def test_what_a_project_imports_is_what_its_readme_installs(project: Path) -> None:
    (install,) = [
        line for line in documented_commands(project / "README.md") if line.startswith("pip install")
    ]
    owners = metadata.packages_distributions()
    provided = distributions((project / "requirements.txt").read_text().splitlines())
    own: set[str] = set()
    if SEQGATE in install.split():
        own = {"seqgate"}
        seqgate = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        provided |= distributions(seqgate["dependencies"])
    missing = {
        name
        for name in imported(project) - own
        if not {owner.lower() for owner in owners.get(name, [])} & provided
    }
    assert missing == set()
