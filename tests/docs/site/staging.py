"""Copies the pages of the repository into one folder, as the site's builder needs them.

The pages link to each other, and to files of the repository, by paths of the repository. A link to a page
becomes a link to its copy; any other file that a page links to is copied into `files/`, so the site is whole
without the repository.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import unquote

from tests.docs.site.navigation import PARTS, Group, groups
from tests.support.markdown import ELSEWHERE

FOLDERS_OF_READMES = ("deploy", "examples")
"""The folders whose README files are pages of the site, however deep."""
CODE_OR_LINK = re.compile(
    r"(?P<code>^ *```.*?^ *```|`[^`\n]+`)"
    r"|(?P<before>\]\(|\bsrc=\"|\bsrcset=\"|\bhref=\")(?P<target>[^)\"\s]+)(?P<after>[)\"])",
    re.MULTILINE | re.DOTALL,
)
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
FIRST_PARAGRAPH = re.compile(r"\A# .+\n\n(?:.+\n)+\n")
TITLE = re.compile(r"^# +(.+)$", re.MULTILINE)
PROMISES = {
    "Tutorial": "Learn Seqgate by running it.",
    "How-to guides": "Reach one goal, step by step.",
    "Reference": "Look up a command, a setting, a metric, an API.",
    "Explanation": "Understand how it works and what it promises.",
    "Contributing": "Change Seqgate: formats, tests, decisions.",
}
"""What each part gives to a reader, for the first page."""


class BadLink(Exception):
    """A page links to a file that can't be part of the site; the message names both."""


@dataclass(frozen=True)
class Staged:
    """A folder with everything that the site is made of."""

    directory: Path
    pages: Mapping[Path, Path]
    """The place in `directory` of each page of the repository."""


def site_pages(repository: Path) -> dict[Path, Path]:
    """Return where each page of the repository is in the site, as relative paths without folders of the
    repository.
    """
    placed = {
        repository / "README.md": Path("index.md"),
        repository / "CHANGELOG.md": Path("changelog.md"),
        repository / "tests" / "README.md": Path("tests.md"),
        repository / "docs" / "README.md": Path("pages.md"),
    }
    docs = repository / "docs"
    for page in sorted(docs.rglob("*.md")):
        placed.setdefault(page, page.relative_to(docs))
    for folder in FOLDERS_OF_READMES:
        for page in sorted((repository / folder).rglob("README.md")):
            place = page.parent.relative_to(repository)
            placed[page] = place / "index.md" if place == Path(folder) else place.with_suffix(".md")
    return placed


def stage(repository: Path, directory: Path) -> Staged:
    """Fill an empty `directory` with the pages of the repository and what they link to.

    Raises BadLink where a page links to nothing.
    """
    pages = site_pages(repository)
    navigation = groups(repository / "docs" / "README.md")
    for source, place in pages.items():
        text = _with_dark_pictures(source.read_text(encoding="utf-8"), source)
        text = _Links(repository, directory, pages, source).rewritten(text)
        if place == Path("index.md"):
            text = _first_page(text, repository, pages, navigation)
        target = directory / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return Staged(directory, pages)


@dataclass(frozen=True)
class _Links:
    """The links of one page, on their way from the repository into the site."""

    repository: Path
    directory: Path
    pages: Mapping[Path, Path]
    source: Path

    def rewritten(self, text: str) -> str:
        """Return the text with links that lead to the copies."""
        return CODE_OR_LINK.sub(self._rewritten, text)

    def _rewritten(self, match: re.Match[str]) -> str:
        if match["code"] is not None or match["target"].startswith((*ELSEWHERE, "#")):
            return match[0]
        name, hash_sign, anchor = unquote(match["target"]).partition("#")
        place = self._place((self.source.parent / name).resolve(), match["target"])
        here = (self.directory / self.pages[self.source]).parent
        return f"{match['before']}{os.path.relpath(self.directory / place, here)}{hash_sign}{anchor}{match['after']}"

    def _place(self, target: Path, link: str) -> Path:
        """Return where the site has the target of a link. Copy the file if it is no page, and list the files
        of a folder.
        """
        if target in self.pages:
            return self.pages[target]
        if target / "README.md" in self.pages:
            return self.pages[target / "README.md"]
        if target.is_dir():
            return self._folder(target)
        if not target.is_file():
            raise BadLink(f"{self.source}: {link} must lead to a page, a file or a folder")
        docs = self.repository / "docs"
        inside = target.relative_to(docs if target.is_relative_to(docs) else self.repository)
        place = inside if target.is_relative_to(docs) else Path("files") / inside
        (self.directory / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target, self.directory / place)
        return place

    def _folder(self, folder: Path) -> Path:
        """Write a page with links to the files of a folder; return its place."""
        inside = Path("files") / folder.relative_to(self.repository)
        names = sorted(path.name for path in folder.iterdir() if path.is_file())
        lines = ["---", "orphan: true", "---", "", f"# {inside.relative_to('files')}", ""]
        lines += [f"- [{name}]({folder.name}/{name})" for name in names]
        place = inside.with_name(f"{folder.name}.md")
        (self.directory / inside).mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copyfile(folder / name, self.directory / inside / name)
        (self.directory / place).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return place


def _with_dark_pictures(text: str, source: Path) -> str:
    """Show the dark twin of a picture on a dark page: `NAME-dark.png` beside `NAME.png`."""

    def both(match: re.Match[str]) -> str:
        light = Path(match[2])
        dark = light.with_stem(f"{light.stem}-dark")
        if not (source.parent / dark).is_file():
            return match[0]
        words = escape(match[1], quote=True)
        return (
            f'<img class="only-light" src="{light}" alt="{words}">'
            f'<img class="only-dark" src="{dark}" alt="{words}">'
        )

    return PICTURE.sub(both, text)


def _first_page(text: str, repository: Path, pages: Mapping[Path, Path], navigation: list[Group]) -> str:
    """Return the first page with a card for each part after its first paragraph, and the navigation at its
    end.
    """
    cards = ['<nav class="parts" aria-label="Parts of the documentation">']
    cards += [_card(part, repository, pages, navigation) for part in PARTS]
    place = FIRST_PARAGRAPH.match(text)
    if place is None:
        raise BadLink("README.md must begin with a heading and a paragraph")
    first, rest = text[: place.end()], text[place.end() :]
    return first + "\n".join([*cards, "</nav>"]) + "\n\n" + rest + _navigation(pages, navigation)


def _card(part: str, repository: Path, pages: Mapping[Path, Path], navigation: list[Group]) -> str:
    docs = repository / "docs"
    # The first pages of each group in turn, so that a card shows what there is.
    turns = itertools.zip_longest(*(group.pages for group in navigation if group.part == part))
    listed = [docs / page for turn in turns for page in turn if page is not None]
    links = [
        f'<a href="{pages[page.resolve()].with_suffix(".html")}">{escape(title(page))}</a>'
        for page in listed[:5]
    ]
    if len(listed) > len(links):
        anchor = part.lower().replace(" ", "-")
        links.append(f'<a href="pages.html#{anchor}">all {len(listed)} pages</a>')
    items = "".join(f"<li>{link}</li>" for link in links)
    return f'<section><p class="part">{part}</p><p>{PROMISES[part]}</p><ul>{items}</ul></section>'


def title(page: Path) -> str:
    """Return the first heading of a page, without marks of code."""
    found = TITLE.search(page.read_text(encoding="utf-8"))
    if found is None:
        raise BadLink(f"{page} has no heading")
    return found[1].replace("`", "")


def _navigation(pages: Mapping[Path, Path], navigation: list[Group]) -> str:
    listed: list[tuple[str, Iterable[str]]] = []
    docs = next(page for page, place in pages.items() if place == Path("pages.md")).parent
    for group in navigation:
        places = [str(pages[(docs / page).resolve()].with_suffix("")) for page in group.pages]
        listed.append((group.caption, places))
    named = {place for _, places in listed for place in places} | {"index", "pages"}
    rest = [str(place.with_suffix("")) for place in pages.values()]
    listed.append(("The project", ["All pages <pages>", *(place for place in rest if place not in named)]))
    trees = [
        "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *places, "```"])
        for caption, places in listed
    ]
    return "\n\n" + "\n\n".join(trees) + "\n"
