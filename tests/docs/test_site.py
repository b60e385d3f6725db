"""The site of the docs: `make site` builds it without network and without a warning, and every link of it
leads somewhere.
"""

from __future__ import annotations

import functools
import http.server
import itertools
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.docs.conftest import BuiltSite
from tests.docs.site.built import Site
from tests.docs.site.navigation import Group, groups
from tests.docs.site.staging import BadLink, site_pages, stage, title
from tests.support.chromium import NARROW, WIDE, accessibility_faults, chromium, watched
from tests.support.markdown import REPOSITORY

INDEX = REPOSITORY / "docs" / "README.md"


def test_it_is_built_without_network_and_without_a_warning(built_site: BuiltSite) -> None:
    assert built_site.status == 0, built_site.output
    assert re.fullmatch(r"\d+ pages, \d+ links; begin with .*/index.html\n", built_site.output)


def test_every_page_of_the_repository_is_in_it(built_site: BuiltSite) -> None:
    for place in site_pages(REPOSITORY).values():
        assert (built_site.directory / place.with_suffix(".html")).is_file(), place


def test_the_navigation_has_every_page_of_the_docs() -> None:
    listed = {page for group in groups(INDEX) for page in group.pages}
    pages = {str(page.relative_to(INDEX.parent)) for page in INDEX.parent.rglob("*.md")}
    assert pages - {INDEX.name} <= listed


def test_every_page_shows_the_whole_navigation(built_site: BuiltSite) -> None:
    site = Site(built_site.directory)
    index = site.pages[built_site.directory / "index.html"]
    for group in groups(INDEX):
        assert group.caption in index.text
        for page in group.pages:
            place = site_pages(REPOSITORY)[(INDEX.parent / page).resolve()]
            assert str(place.with_suffix(".html")) in index.links


def test_the_site_contains_files_that_pages_link_to(built_site: BuiltSite) -> None:
    """A page that names a source file of the repository gives it to the reader."""
    (file,) = built_site.directory.rglob("OrderSenderTest.java")
    assert (
        file.read_bytes()
        == (REPOSITORY / "examples/testing/java/src/test/java/orders/OrderSenderTest.java").read_bytes()
    )


class TestFaultsAreFound:
    """Faults that are planted in a site of two pages."""

    def faults(self, directory: Path, body: str) -> list[str]:
        (directory / "other.html").write_text('<h1 id="here">Other</h1>')
        (directory / "page.html").write_text(body)
        return Site(directory).faults()

    def test_a_good_page(self, tmp_path: Path) -> None:
        body = '<a href="other.html#here">x</a><a href="https://example.org/">x</a><a href="#">x</a>'
        assert self.faults(tmp_path, body) == []

    @pytest.mark.parametrize(
        ("body", "fault"),
        [
            ('<a href="missing.html">x</a>', "page.html: missing.html leads to no file"),
            ('<a href="other.html#gone">x</a>', "page.html: other.html#gone leads to no anchor"),
            ('<a href="#gone">x</a>', "page.html: #gone leads to no anchor"),
            ('<img src="missing.png">', "page.html loads missing.png, which does not exist"),
            (
                '<script src="https://cdn.example/x.js"></script>',
                "page.html loads https://cdn.example/x.js from another host",
            ),
            (
                '<link rel="stylesheet" href="//fonts.example/css">',
                "page.html loads //fonts.example/css from another host",
            ),
            (
                '<source srcset="other.html 1x, https://cdn.example/2.png 2x">',
                "page.html loads https://cdn.example/2.png from another host",
            ),
            (
                "<style>@font-face { src: url('https://fonts.example/x') }</style>",
                "page.html loads https://fonts.example/x from another host",
            ),
        ],
    )
    def test_a_bad_page(self, tmp_path: Path, body: str, fault: str) -> None:
        assert self.faults(tmp_path, body) == [fault]

    def test_a_style_sheet_that_loads_from_another_host(self, tmp_path: Path) -> None:
        (tmp_path / "a.css").write_text('@import "https://fonts.example/x.css";')
        assert self.faults(tmp_path, "") == ["a.css loads https://fonts.example/x.css from another host"]


class TestNavigation:
    def test_groups_of_a_part(self, tmp_path: Path) -> None:
        index = tmp_path / "README.md"
        index.write_text(
            "# All\n\n## Tutorial\n\n| page | says |\n| --- | --- |\n| [a.md](a.md) | b |\n\n"
            "## How-to guides\n\n### Test with it\n\n| page | says |\n| --- | --- |\n| [c](c.md#d) | e |\n"
        )
        (first, second) = groups(index)
        assert first == Group("Tutorial", "", ("a.md",))
        assert (second.caption, second.pages) == ("How-to guides: test with it", ("c.md",))

    def test_a_heading_that_is_no_part(self, tmp_path: Path) -> None:
        (tmp_path / "README.md").write_text("## Somewhere\n")
        with pytest.raises(ValueError, match="'Somewhere' must be one of Tutorial"):
            groups(tmp_path / "README.md")

    def test_a_page_that_is_listed_twice(self, tmp_path: Path) -> None:
        (tmp_path / "README.md").write_text("## Tutorial\n| [a](a.md) | |\n## Reference\n| [a](a.md) | |\n")
        with pytest.raises(ValueError, match=r"must list a page once: a\.md"):
            groups(tmp_path / "README.md")


class TestStaging:
    @pytest.fixture
    def repository(self, tmp_path: Path) -> Path:
        """A repository with one page, a picture in both schemes, an example and a program."""
        for name, text in {
            "README.md": "# Product\n\nIt works.\n\n## Start\n",
            "CHANGELOG.md": "# Changelog\n",
            "tests/README.md": "# Tests\n",
            "docs/README.md": "# All pages\n\n## Tutorial\n\n| [a.md](a.md) | x |\n",
            "docs/a.md": "# The `a`\n\n[b](../README.md#start) ![c d](c.png)\n",
            "docs/c.png": "light",
            "docs/c-dark.png": "dark",
            "examples/one/README.md": "# One\n\n[program](main.py) `[code](x)` [a](../../docs/a.md)\n",
            "examples/one/main.py": "print(1)\n",
        }.items():
            path = tmp_path / "repository" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / "repository"

    def test_links_lead_to_the_copies(self, repository: Path, tmp_path: Path) -> None:
        staged = tmp_path / "staged"
        staged.mkdir()
        stage(repository, staged)
        page = (staged / "a.md").read_text()
        assert "[b](index.md#start)" in page
        assert '<img class="only-light" src="c.png" alt="c d">' in page
        assert (staged / "c-dark.png").read_text() == "dark"
        example = (staged / "examples" / "one.md").read_text()
        assert "[program](../files/examples/one/main.py) `[code](x)` [a](../a.md)" in example
        assert (staged / "files" / "examples" / "one" / "main.py").is_file()

    def test_the_first_page_has_cards_and_the_navigation(self, repository: Path, tmp_path: Path) -> None:
        staged = tmp_path / "staged"
        staged.mkdir()
        stage(repository, staged)
        first = (staged / "index.md").read_text()
        assert first.index("It works.") < first.index('<a href="a.html">The a</a>') < first.index("## Start")
        assert ":caption: Tutorial\n\na\n" in first
        assert "examples/one" in first

    def test_a_link_to_a_folder_leads_to_a_list_of_its_files(self, repository: Path, tmp_path: Path) -> None:
        (repository / "docs" / "a.md").write_text("# A\n\n[programs](../examples/one/more)\n")
        (repository / "examples" / "one" / "more" / "deep").mkdir(parents=True)
        (repository / "examples" / "one" / "more" / "b.py").write_text("print(2)\n")
        staged = tmp_path / "staged"
        staged.mkdir()
        stage(repository, staged)
        assert "[programs](files/examples/one/more.md)" in (staged / "a.md").read_text()
        listed = (staged / "files" / "examples" / "one" / "more.md").read_text()
        assert listed.endswith("# examples/one/more\n\n- [b.py](more/b.py)\n")
        assert (staged / "files" / "examples" / "one" / "more" / "b.py").is_file()

    def test_a_link_into_nothing_is_refused(self, repository: Path, tmp_path: Path) -> None:
        (repository / "docs" / "a.md").write_text("# A\n\n[x](missing.py)\n")
        with pytest.raises(BadLink, match=r"a\.md: missing\.py must lead to a page"):
            stage(repository, tmp_path / "staged")

    def test_a_page_needs_a_heading(self, repository: Path) -> None:
        (repository / "docs" / "a.md").write_text("words\n")
        with pytest.raises(BadLink, match="has no heading"):
            title(repository / "docs" / "a.md")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the file."""
    with chromium() as program:
        yield program


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves the site without a line for each request."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def base(built_site: BuiltSite) -> Iterator[str]:
    """The address of the site."""
    handler = functools.partial(_QuietHandler, directory=str(built_site.directory))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


SEVERE = re.compile(r"\((?:serious|critical)\)")
"""The gravest two of the four grades of axe-core; the theme has two moderate faults."""
FULL_HD = (1920, 1080)
LOOKED_AT = ("index.html", "benchmarks.html", "security.html", "console.html", "testing.html")


class TestInABrowser:
    @pytest.mark.parametrize("page", LOOKED_AT)
    def test_it_fits_asks_nobody_else_and_is_accessible(self, browser: Browser, base: str, page: str) -> None:
        with watched(browser, base) as window:
            window.page.goto(f"{base}/{page}")
            expect(window.page.locator("h1").first).to_be_visible()
            for (width, height), scheme in itertools.product((WIDE, NARROW, FULL_HD), ("light", "dark")):
                window.page.set_viewport_size({"width": width, "height": height})
                window.page.emulate_media(color_scheme=scheme)
                assert window.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
                faults = accessibility_faults(window.page) if (width, height) == WIDE else []
                assert [fault for fault in faults if SEVERE.search(fault)] == []
            assert [*window.errors, *window.foreign] == []

    @pytest.mark.parametrize("served", [True, False], ids=["served", "from-the-disk"])
    def test_search_finds_a_setting(
        self, browser: Browser, base: str, built_site: BuiltSite, served: bool
    ) -> None:
        address = base if served else built_site.directory.as_uri()
        with watched(browser, base) as window:
            window.page.goto(f"{address}/index.html")
            window.page.get_by_role("textbox", name="Search").first.fill("backlog.quota.bytes")
            window.page.keyboard.press("Enter")
            results = window.page.locator("#search-results ul.search a")
            expect(results.filter(has_text="Retention, message TTL").first).to_be_visible()
            assert window.foreign == []

    def test_dark_and_light_are_chosen_by_a_button(self, browser: Browser, base: str) -> None:
        with watched(browser, base) as window:
            window.page.goto(f"{base}/index.html")
            paper = "getComputedStyle(document.body).backgroundColor"
            before = window.page.evaluate(paper)
            toggle = window.page.get_by_role("button", name=re.compile("Toggle Light")).locator(
                "visible=true"
            )
            for _ in range(3):
                toggle.first.click()
                if window.page.evaluate(paper) != before:
                    return
        pytest.fail("the button changes no colour")

    def test_a_picture_of_the_console_follows_the_scheme(self, browser: Browser, base: str) -> None:
        with watched(browser, base) as window:
            window.page.goto(f"{base}/console.html")
            first = window.page.locator("article img:visible").first
            expect(first).to_have_attribute("src", re.compile(r"console-overview\.png$"))
            window.page.emulate_media(color_scheme="dark")
            expect(first).to_have_attribute("src", re.compile(r"console-overview-dark\.png$"))
