"""The manual: the pages of docs/ as HTML, so that what a page of the console names is one click away."""

from __future__ import annotations

from typing import Final

from markdown_it import MarkdownIt
from markupsafe import Markup

from seqgate.gateway.console.answer import PageAnswer, View
from seqgate.gateway.console.page import Get, Page, PageGroup, Visit
from seqgate.gateway.manual import listed_pages, page_names, page_sections, page_text

ELSEWHERE: Final = ("https://", "http://", "#")


def manual(_: Visit) -> PageAnswer:
    """Show what each page says."""
    return View("manual.html", {"name": None, "groups": list(listed_pages())})


def one_page(visit: Visit) -> PageAnswer:
    """Show a page. Raises ControlError when there is none of this name."""
    name = visit.text("name")
    return View("manual.html", {"name": name, "page": Markup(page_html(page_text(name)))})  # noqa: S704


def page_html(text: str) -> str:
    """Return a page as HTML, with anchors at its headings. Markup in its text is shown as text; links lead to
    other pages of the manual, and those to files that are no such page go.
    """
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(text)
    headings = (token for token in tokens if token.type == "heading_open")
    for heading, section in zip(headings, page_sections(text), strict=True):
        heading.attrSet("id", section.anchor)
    pages = set(page_names())
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open" and not str(child.attrGet("href")).startswith(ELSEWHERE):
                page, _, anchor = str(child.attrs.pop("href")).partition("#")
                page = page.removesuffix(".md")
                if page in pages:
                    child.attrSet("href", f"/manual/{page}{'#' if anchor else ''}{anchor}")
    return str(reader.renderer.render(tokens, reader.options, {}))


PAGE: Final = Page("Manual", PageGroup.MANUAL, None, Get("/manual", manual), Get("/manual/{name}", one_page))
