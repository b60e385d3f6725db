"""The user pages of docs/, which an installed package has, and `seqgate help`, which shows them."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from seqgate.gateway.admin.commands import argument, command, stop
from seqgate.gateway.admin.request import ControlError, nearest_hint

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs"
"""The pages: docs/ of the checkout, or the folder of the same name in an installed package."""
INDEX: Final = "README"
"""The page that lists all others. `seqgate help` shows what it says of each."""
WIDEST: Final = 100
"""Columns of a page on a wide terminal; longer lines are hard to read."""
_COMMANDS: Final = "commands"
"""The page that has the help of every command, each in a section of its own."""
_COMMENT: Final = re.compile(r"^<!--.*?-->\n?", re.MULTILINE | re.DOTALL)
_PICTURE: Final = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
_LINK: Final = re.compile(r"\[([^\]]+)\]\((?!https?:)([^)\s]+)\)")
"""A link to another file, or to a section of the same page."""
_FENCED: Final = re.compile(r"^```.*\n((?:.*\n)*?)```$\n?", re.MULTILINE)
_HEADING: Final = re.compile(r"^(#{1,6}) +(.+?)\s*$")
_ROW: Final = re.compile(r"^\| \[[^\]]+\]\(([\w-]+)\.md\) \| (.+?) \|$")


class Section(NamedTuple):
    """A heading of a page: its level, its anchor as GitHub forms it, and its line, counted from 0."""

    level: int
    anchor: str
    line: int


def page_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != INDEX)


def page_text(name: str) -> str:
    """Return a page as Markdown, without comments; a picture is its description. Raises ControlError."""
    if name not in page_names():
        raise ControlError(
            f"there is no page {name}{nearest_hint(name, page_names())}; `seqgate help` lists all"
        )
    return _read(name)


def _read(name: str) -> str:
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    return _PICTURE.sub(r"*Picture: \1.*", _COMMENT.sub("", text)).replace("<br>", " ")


def page_sections(text: str) -> list[Section]:
    found: dict[str, Section] = {}
    is_code = False
    for number, line in enumerate(text.splitlines()):
        is_code ^= line.lstrip().startswith("```")
        heading = None if is_code else _HEADING.match(line)
        if heading is not None:
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[2]).lower()
            base = anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            again = 0
            while anchor in found:
                again += 1
                anchor = f"{base}-{again}"
            found[anchor] = Section(len(heading[1]), anchor, number)
    return list(found.values())


def section_text(name: str, anchor: str) -> str:
    """Return a section of a page with the sections below it. Raises ControlError."""
    text = page_text(name)
    sections = page_sections(text)
    for number, section in enumerate(sections):
        if section.anchor == anchor:
            after = (each.line for each in sections[number + 1 :] if each.level <= section.level)
            return "\n".join(text.splitlines()[section.line : next(after, None)]).rstrip() + "\n"
    known = [each.anchor for each in sections]
    raise ControlError(
        f"page {name} has no section {anchor}{nearest_hint(anchor, known)}; `seqgate help {name}` shows all"
    )


def linked(text: str, name: str) -> str:
    """Return a page, or a part of it, with the command that shows what each link leads to."""

    def replaced(link: re.Match[str]) -> str:
        words, (target, _, anchor) = link[1], link[2].partition("#")
        if "/" in target:  # a page of the source distribution alone
            return words
        page = target.removesuffix(".md") or name
        place = f"`seqgate help {page}{'#' if anchor else ''}{anchor}`"
        return place if words == target else f"{words} ({place})"

    return _LINK.sub(replaced, text)


def help_text(words: list[str]) -> str:
    """Return the page, the section, or the help of the command that words name. Raises ControlError."""
    name, _, anchor = " ".join(words).removeprefix("docs/").replace(".md", "").partition("#")
    if name in page_names() or anchor:
        return linked(section_text(name, anchor) if anchor else page_text(name), name)
    of_command = f"seqgate-{name.replace(' ', '-')}"
    known = [each.anchor for each in page_sections(page_text(_COMMANDS))]
    found = [each for each in known if each == of_command or each.startswith(f"{of_command}-")]
    if found:
        return "\n".join(section_text(_COMMANDS, each) for each in found)
    names = {*page_names(), *(each.split("-")[1] for each in known if each.startswith("seqgate-"))}
    raise ControlError(f"there is no page {name}{nearest_hint(name, names)}; `seqgate help` lists all")


def listed_pages() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the groups of pages, and what the index says of each page of the group."""
    group, rows = "", list[tuple[str, str]]()
    for line in _read(INDEX).splitlines():
        heading, row = _HEADING.match(line), _ROW.match(line)
        if heading is not None:
            if rows:
                yield group, rows
            group, rows = heading[2], []
        elif row is not None:
            rows.append((row[1], row[2].replace("`", "").removesuffix(" (new)")))
    if rows:
        yield group, rows


def _list_text() -> str:
    width = max(map(len, page_names()))
    lines = ["seqgate help TOPIC shows a page or a command, TOPIC#SECTION a part of a page.\n"]
    for group, rows in listed_pages():
        lines += ["", group, *(f"  {name:<{width}}  {says}" for name, says in rows)]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


# The command.


def offered_names(ctx: Any, incomplete: str) -> list[str]:  # noqa: ARG001 - typer's interface
    """Return the pages whose names begin with the text, after a # the sections of the page."""
    name, has_section, anchor = incomplete.partition("#")
    if not has_section:
        return [each for each in page_names() if each.startswith(name)]
    if name not in page_names():
        return []
    anchors = [each.anchor for each in page_sections(page_text(name))]
    return [f"{name}#{each}" for each in anchors if each.startswith(anchor)]


@command
def show(
    topic: Annotated[
        list[str] | None,
        argument(
            "TOPIC",
            "A page, such as security; a section of it, such as security#commands; or a command, such as "
            "topics create.",
            default=None,
            autocompletion=offered_names,
        ),
    ] = None,
) -> None:
    """Show a page of the documentation. Without a topic, list the pages.

    A terminal shows the page in the pager that PAGER names, or in less; elsewhere the page is Markdown.
    """
    try:
        text = help_text(topic) if topic else _list_text()
    except ControlError as error:
        raise stop(str(error)) from None
    if not sys.stdout.isatty():
        sys.stdout.write(text)
    else:
        _page_on_terminal(_drawn(text) if topic else text)


def _drawn(text: str) -> str:
    """Return Markdown with colours and tables of a terminal; lines of code stay whole, to be copied."""
    from rich.console import Console  # noqa: PLC0415 - slow to import, and for a terminal only
    from rich.markdown import Markdown  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415
    from rich.theme import Theme  # noqa: PLC0415

    width = min(shutil.get_terminal_size().columns, WIDEST)
    console = Console(force_terminal=True, width=width, theme=Theme({"markdown.code": "cyan"}))
    with console.capture() as captured:
        for number, part in enumerate(_FENCED.split(text)):
            if number % 2:  # the inside of a block
                console.print(Text(f"\n{part}", "cyan"), soft_wrap=True)
            else:
                console.print(Markdown(part, code_theme="ansi_dark", hyperlinks=False))
    return captured.get()


def _page_on_terminal(text: str) -> None:
    """Show text in a pager; where there is none, print it. less ends at once where the text fits."""
    import shlex  # noqa: PLC0415 - for a terminal only
    import subprocess  # noqa: PLC0415 - the same

    pager = shlex.split(os.environ.get("PAGER") or "less")
    if shutil.which(pager[0]):
        # the user chooses the program
        subprocess.run(pager, input=text, text=True, env={"LESS": "FRX", **os.environ}, check=False)  # noqa: S603
    else:
        sys.stdout.write(text)
