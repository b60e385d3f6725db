"""Checks a built site: every link leads to a file and an anchor of the site, and nothing is loaded from
another host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    "audio": ("src",),
    "embed": ("src",),
    "form": ("action",),
    "iframe": ("src",),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
"""The attributes by which a browser loads something, or sends something, without a click on a link."""
IN_STYLE = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")


@dataclass
class BuiltPage(HTMLParser):
    """One page: its anchors, its links, and what a browser loads with it."""

    text: str
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    in_style: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the anchor, the link and the loaded files of an element."""
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        for name in LOADED.get(tag, ()):
            if values.get(name):
                parts = values[name].split(",") if name == "srcset" else [values[name]]
                self.loaded += [part.split()[0] for part in parts if part.split()]
        if "style" in values:
            self.loaded += loaded_by_style(values["style"])
        self.in_style = tag == "style"

    def handle_data(self, data: str) -> None:
        """Note what a style sheet within the page loads."""
        if self.in_style:
            self.loaded += loaded_by_style(data)

    def handle_endtag(self, tag: str) -> None:
        """End a style sheet."""
        self.in_style = False


def loaded_by_style(text: str) -> list[str]:
    """Return the addresses that a style sheet loads."""
    return [first or second for first, second in IN_STYLE.findall(text)]


class Site:
    """A folder with a built site."""

    def __init__(self, directory: Path) -> None:
        """Read nothing yet."""
        self.directory = directory

    @cached_property
    def pages(self) -> dict[Path, BuiltPage]:
        """The pages by their paths."""
        return {
            path: BuiltPage(path.read_text(encoding="utf-8"))
            for path in sorted(self.directory.rglob("*.html"))
        }

    @property
    def links(self) -> int:
        """The number of links of all pages."""
        return sum(len(page.links) for page in self.pages.values())

    def faults(self) -> list[str]:
        """Return a sentence for each dead link, and for each file that is missing or loaded from another
        host.
        """
        return [*self._dead_links(), *self._foreign_files()]

    def _dead_links(self) -> Iterator[str]:
        for path, page in self.pages.items():
            for link in dict.fromkeys(page.links):
                address = urlsplit(link)
                if address.scheme or address.netloc:
                    continue
                target = self._target(path, unquote(address.path))
                if not target.is_file():
                    yield f"{self._name(path)}: {link} leads to no file"
                elif unquote(address.fragment) not in {"", *self._anchors(target)}:
                    yield f"{self._name(path)}: {link} leads to no anchor"

    def _anchors(self, target: Path) -> set[str]:
        """Return the anchors of a file; a file that is no page has none."""
        return self.pages[target].anchors if target in self.pages else set()

    def _foreign_files(self) -> Iterator[str]:
        loaded = [(path, each) for path, page in self.pages.items() for each in page.loaded]
        for sheet in sorted(self.directory.rglob("*.css")):
            loaded += [(sheet, each) for each in loaded_by_style(sheet.read_text(encoding="utf-8"))]
        for path, each in dict.fromkeys(loaded):
            address = urlsplit(each)
            if address.scheme == "data":
                continue
            if address.scheme or address.netloc:
                yield f"{self._name(path)} loads {each} from another host"
            elif address.path and not self._target(path, unquote(address.path)).is_file():
                yield f"{self._name(path)} loads {each}, which does not exist"

    def _target(self, page: Path, path: str) -> Path:
        return Path(os.path.normpath(page.parent / path)) if path else page

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.directory))
