"""`seqgate help` shows each page of docs/, and no message of the product names a file that an installed
package lacks.
"""

from __future__ import annotations

import ast
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqgate.gateway.admin.commands import Command, Commands, option_of
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.cli import COMMANDS, found
from seqgate.gateway.manual import (
    help_text,
    listed_pages,
    offered_names,
    page_names,
    page_sections,
    page_text,
)
from tests.support.gateway_process import REPOSITORY
from tests.support.markdown import anchors

PACKAGES = ("gateway", "log", "pid_allocator", "seq_validator", "spark_kafka_compat")
A_PAGE = re.compile(r"(?:docs/)?[\w-]+\.md\b")
HELP = re.compile(r"`seqgate help ([\w-]+(?:#[\w-]+)?)`")


def messages() -> Iterator[tuple[str, str]]:
    """Yield each text of the product that a user can see, and where it is: strings, templates, and the help of
    commands, which stands in docstrings.
    """
    for package in PACKAGES:
        for path in (REPOSITORY / package).rglob("*"):
            place = str(path.relative_to(REPOSITORY))
            if path.suffix == ".html":
                yield place, path.read_text(encoding="utf-8")
            elif path.suffix == ".py":
                yield from ((place, text) for text in strings(path.read_text(encoding="utf-8")))
    for name in COMMANDS:
        yield from ((f"seqgate {name}", text) for text in helps(found(name)))


def strings(source: str) -> Iterator[str]:
    """Yield the strings of a module but its docstrings."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def helps(command: Command | Commands) -> Iterator[str]:
    yield command.help
    if isinstance(command, Commands):
        for each in command.commands.values():
            yield from helps(each)
    else:
        yield from (str(option_of(each).facts.get("help")) for each in command.parameters)


def test_no_message_names_a_file_of_the_docs() -> None:
    named = [(place, text) for place, text in messages() if A_PAGE.search(text)]
    # the module that reads the pages names their files
    assert [each for each in named if each[0] != "gateway/manual.py"] == []


def test_each_page_that_a_message_names_is_there() -> None:
    named = {name for _, text in messages() for name in HELP.findall(text)}
    assert {"security", "configuration"} <= named
    for name in named:
        assert help_text([name])
    linked = {
        name
        for place, text in messages()
        if place.endswith(".html")
        for name in re.findall(r'parts\.manual\("([^"]+)"\)', text)
    }
    assert linked
    assert linked <= set(page_names())


def test_the_list_has_every_page_once() -> None:
    listed = [name for _, rows in listed_pages() for name, _ in rows]
    assert sorted(listed) == page_names()


@pytest.mark.parametrize("name", page_names())
def test_a_page_has_the_sections_that_links_lead_to(name: str) -> None:
    text = page_text(name)
    assert {each.anchor for each in page_sections(text)} == anchors(text)
    shown = help_text([name])
    assert "<!--" not in shown
    for place in HELP.findall(shown):
        assert help_text([place]), place


def test_a_section_ends_before_the_next_of_its_level() -> None:
    shown = help_text(["security#commands"])
    assert shown.startswith("## Commands\n")
    assert [each.level for each in page_sections(shown)].count(2) == 1


def test_a_command_is_shown_as_the_page_of_commands_does() -> None:
    assert help_text(["topics", "create"]).startswith("## seqgate topics create\n")
    assert {"seqgate-topics-list", "seqgate-topics-delete"} <= {
        each.anchor for each in page_sections(help_text(["topics"]))
    }


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["secrity"], "there is no page secrity; the nearest name is security; `seqgate help` lists all"),
        (["topcs"], "the nearest name is topics"),
        (["security#comands"], "page security has no section comands; the nearest name is commands"),
        (["../LICENSE"], "there is no page ../LICENSE"),
    ],
)
def test_a_wrong_name_has_a_nearest_one(words: list[str], complaint: str) -> None:
    with pytest.raises(ControlError, match=re.escape(complaint)):
        help_text(words)


def test_a_shell_completes_pages_and_sections() -> None:
    assert offered_names(None, "secu") == ["security"]
    assert offered_names(None, "security#comm") == ["security#commands"]
    assert offered_names(None, "nosuch#") == []


def test_a_terminal_shows_a_page_through_the_pager(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho shown by a pager; cat > " + str(tmp_path / "page") + "\n")
    pager.chmod(0o755)
    terminal, side = pty.openpty()
    with os.fdopen(side, "wb") as output:
        subprocess.run(
            [sys.executable, "-m", "seqgate", "help", "quotas"],
            cwd=REPOSITORY,
            stdout=output,
            env={**os.environ, "PAGER": str(pager), "TERM": "xterm"},
            timeout=300,
            check=True,
        )
        assert b"shown by a pager" in os.read(terminal, 1000)
    os.close(terminal)
    page = re.sub(r"\x1b\[[0-9;]*m", "", (tmp_path / "page").read_text())
    assert "Client quotas" in page
    command = "seqgate quotas set producer_byte_rate=1048576 consumer_byte_rate=2097152 --user ann"
    assert command in page.splitlines()
