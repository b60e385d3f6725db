"""The navigation of the site: the parts and groups of `docs/README.md`, so that the list of pages is written
once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PARTS = ("Tutorial", "How-to guides", "Reference", "Explanation", "Contributing")
"""The headings under which the index lists pages: what a reader learns, does, looks up, understands, changes."""
HEADING = re.compile(r"(#{2,3}) +(.+)")
ROW = re.compile(r"\| *\[[^\]]*\]\(([^)#]+)[^)]*\) *\|")


@dataclass(frozen=True)
class Group:
    """Pages under one caption of the navigation."""

    part: str
    title: str
    """The heading within the part; empty where the part has none."""
    pages: tuple[str, ...]
    """The targets of the rows, relative to the index."""

    @property
    def caption(self) -> str:
        """The caption of the navigation."""
        return f"{self.part}: {self.title[:1].lower()}{self.title[1:]}" if self.title else self.part


def groups(index: Path) -> list[Group]:
    """Return the groups of an index in its order; groups without a page are left out.

    Raises ValueError for a heading that is no part, and for a page that is listed twice.
    """
    part = title = ""
    found: dict[tuple[str, str], list[str]] = {}
    for line in index.read_text(encoding="utf-8").splitlines():
        if heading := HEADING.fullmatch(line):
            if len(heading[1]) == len("##"):
                part, title = heading[2], ""
                if part not in PARTS:
                    raise ValueError(f"{index}: the heading {part!r} must be one of {', '.join(PARTS)}")
            else:
                title = heading[2]
        elif row := ROW.match(line):
            found.setdefault((part, title), []).append(row[1])
    listed = [page for pages in found.values() for page in pages]
    twice = sorted({page for page in listed if listed.count(page) > 1})
    if twice:
        raise ValueError(f"{index} must list a page once: {', '.join(twice)}")
    return [Group(part, title, tuple(pages)) for (part, title), pages in found.items()]
