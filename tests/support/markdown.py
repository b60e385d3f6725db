"""Reads the pages of the project: their links, their anchors, and their blocks of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

REPOSITORY = Path(__file__).resolve().parents[2]
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
IN_CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)
LINKED_TEXT = re.compile(r"\[([^\]]*)\]\([^)]*\)")
COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
ELSEWHERE = ("https://", "http://", "mailto:")


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    page: Path
    line: int
    """The line of the page on which the block begins, from 1."""
    language: str
    """The language that the fence names; empty without one."""
    text: str
    comments: tuple[str, ...]
    """The HTML comments directly before the block."""

    @property
    def place(self) -> str:
        """The page and the line, as an editor opens them."""
        return f"{self.page.relative_to(REPOSITORY) if self.page.is_relative_to(REPOSITORY) else self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in its order."""
    found = []
    comments: tuple[str, ...] = ()
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        if token.type == "html_block":
            comments += tuple(COMMENT.findall(token.content))
            continue
        if token.type == "fence":
            assert token.map is not None
            found.append(Block(page, token.map[0] + 1, token.info.partition(" ")[0], token.content, comments))
        comments = ()
    return found


def code(page: Path) -> Iterator[tuple[str, bool]]:
    """Yield each piece of code on a page, and whether it is a block, fenced or indented, and not code within
    a sentence.
    """
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        if token.type in {"fence", "code_block"}:
            yield token.content, True
        for child in token.children or ():
            if child.type == "code_inline":
                yield child.content, False


def links(text: str) -> list[str]:
    """Return the targets of the links in `text`, leaving out code."""
    without_blocks = FENCED.sub("", text)
    return LINK.findall(IN_CODE.sub("code", without_blocks))


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings in `text`, as GitHub forms them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        words = LINKED_TEXT.sub(r"\1", heading).lower()
        base = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        anchor, number = base, 0
        while anchor in found:
            number += 1
            anchor = f"{base}-{number}"
        found.add(anchor)
    return found
