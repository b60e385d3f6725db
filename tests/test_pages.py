"""The generated pages agree with the code, and the tests that pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import pages as documentation
from docs.pages import AREAS, BETWEEN_BROKERS, main, options_table, pages, protocol_page
from seqgate.gateway.config import SETTINGS
from seqgate.gateway.handlers import APIS
from seqgate.gateway.handlers.answering import api as reach
from seqgate.gateway.handlers.answering.api import Api
from seqgate.gateway.handlers.groups import find_coordinator
from seqgate.gateway.protocol.kafka_4_4 import API_NAMES
from seqgate.spark_kafka_compat.options import OPTIONS

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
NAMED_TEST = re.compile(r"(?P<file>tests/[\w/]+\.py)?::(?P<name>[\w:]+)|(?P<alone>tests/[\w/]+\.py)")

LONGEST_PAGE_WORDS = 5_000
MEASURED = re.compile(r"<!-- bench -->.*?<!-- /bench -->", re.DOTALL)
PAGES = pages()


@pytest.fixture(autouse=True)
def written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `main` take the pages that are there: writing them takes half a second."""
    monkeypatch.setattr(documentation, "pages", lambda: PAGES)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name], "run: make docs"


def test_check_accepts_freshly_written_pages(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 0
    assert main([str(tmp_path), "--check"]) == 0


@pytest.mark.parametrize("name", sorted(PAGES))
def test_check_names_the_page_that_differs(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(tmp_path)])
    capsys.readouterr()
    page = tmp_path / name
    page.write_text(page.read_text(encoding="utf-8") + "by hand", encoding="utf-8")
    assert main([str(tmp_path), "--check"]) == 1
    assert name in capsys.readouterr().err
    assert page.read_text(encoding="utf-8").endswith("by hand")


def test_check_fails_on_missing_pages(tmp_path: Path) -> None:
    assert main([str(tmp_path / "nothing"), "--check"]) == 1


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_api_is_described(api: Api) -> None:
    page = PAGES["protocol-support.md"]
    assert f"| {api.key} | [{api.name}](#{api.name.lower()}) | {api.versions[0]}" in page
    assert f"### {api.name}\n" in page


def test_every_setting_is_described() -> None:
    page = PAGES["configuration.md"]
    for setting in SETTINGS:
        assert (f"### `{setting.name}`" in page) is not setting.internal


def test_every_option_of_spark_is_described() -> None:
    table = options_table()
    assert all(f"| `{option.name}` |" in table for option in OPTIONS)


def test_every_api_of_kafka_is_served_or_listed_as_not_served() -> None:
    listed = {key for _, keys in AREAS for key in keys}
    assert not listed & BETWEEN_BROKERS
    assert set(API_NAMES) == {api.key for api in APIS} | listed | BETWEEN_BROKERS
    assert "AddRaftVoter (80)" in protocol_page(APIS)


def test_an_api_that_is_served_is_not_listed_as_not_served() -> None:
    served = [api for api in APIS if api.name == "Produce"]
    alone = Api(key=10, versions=(0, 6), reaches=reach.everything, handle=find_coordinator.API.handle)
    assert "FindCoordinator (10)" in protocol_page(served)
    assert "FindCoordinator (10)" not in protocol_page([*served, alone])


def test_a_handler_module_without_a_description_is_refused() -> None:
    with pytest.raises(ValueError, match="Fetch"):
        protocol_page([Api(key=1, versions=(0, 1), reaches=reach.node, handle=_handler)])


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_a_page_that_is_not_generated_is_read_in_one_sitting(page: Path) -> None:
    text = MEASURED.sub("", page.read_text(encoding="utf-8"))
    assert page.name in PAGES or len(text.split()) <= LONGEST_PAGE_WORDS, "split the page by its subjects"


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    for line in page.read_text(encoding="utf-8").splitlines():
        source = ""
        for found in NAMED_TEST.finditer(line):
            if file := found["file"] or found["alone"]:
                assert (REPOSITORY / file).is_file(), file
                source = (REPOSITORY / file).read_text(encoding="utf-8")
            for part in (found["name"] or "").split("::") if source else ():
                assert not part or re.search(rf"(def|class) {part}\b", source), line


async def _handler(context: object, request: object) -> None:
    """Do nothing."""
