"""The links of the pages lead somewhere: to a file of the repository, and to a heading that its page has."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.support.markdown import ELSEWHERE, REPOSITORY, anchors, links

INDEX = REPOSITORY / "docs" / "README.md"
PAGES = (
    REPOSITORY / "README.md",
    REPOSITORY / "CHANGELOG.md",
    REPOSITORY / "tests" / "README.md",
    REPOSITORY / "examples" / "README.md",
    *sorted((REPOSITORY / "examples").glob("*/README.md")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
)


def broken(page: Path) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    lost = []
    for link in links(page.read_text(encoding="utf-8")):
        if link.startswith(ELSEWHERE):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8"))
        ):
            lost.append(link)
    return lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One\n\n## `a.b`: two, three\n\n## One\n\n```\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#one-1) [c](other.md#ab-two-three) [d](#here) "
        "[e](https://example.org/#x)\n"
        "[f](missing.md) [g](other.md#no-heading) [h](#there) `[i](code)`\n\n```\n[j](code)\n```\n\n# Here\n"
    )
    assert broken(page) == ["missing.md", "other.md#no-heading", "#there"]


def test_the_index_names_every_page() -> None:
    named = {link.partition("#")[0] for link in links(INDEX.read_text(encoding="utf-8"))}
    pages = {str(page.relative_to(INDEX.parent)) for page in INDEX.parent.rglob("*.md")} - {INDEX.name}
    assert not pages - named


def test_the_readme_is_one_screen_and_leads_to_the_index() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 60
    assert "docs/README.md" in links(readme)
