"""Every code block of the pages runs against a real gateway, or is parsed by what would read it.

`tests/docs/ways.py` says how a block is declared. The end of the test run prints how many blocks go which
way, and why.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.pages import commands_page
from seqgate.gateway.cli import app
from tests.docs import data
from tests.docs.command_lines import command_fault, commands
from tests.docs.outputs import differences, is_part
from tests.docs.session import Failed, Session
from tests.docs.ways import Plan, Way, pages, plans
from tests.gateway.testing.pytest_run import run_pytest
from tests.support.markdown import REPOSITORY, code
from tests.tiers import in_tiers

PAGES = pages()


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def planned(way: Way) -> list[Plan]:
    return [each for page in PAGES for each in plans(page) if each.way is way]


def place(each: Plan) -> str:
    return each.block.place


def is_for_pytest(each: Plan) -> bool:
    return each.block.language == "ini" or "def test_" in each.block.text


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_declared(page: Path) -> None:
    undeclared = [each for each in plans(page) if each.way is Way.UNDECLARED]
    assert [f"{place(each)}: {each.reason}" for each in undeclared] == []


RUNNING = [page for page in PAGES if any(each.way is Way.RUN for each in plans(page))]
OF_EACH_CHANGE = [
    REPOSITORY / "docs" / name
    for name in ("tutorial.md", "transactions.md", "deduplication.md", "cluster.md")
]
"""The pages whose blocks run in `make test-all`: together they name what most others name, too."""


@pytest.mark.parametrize("page", in_tiers(RUNNING, all=OF_EACH_CHANGE), ids=name_of)
def test_the_blocks_of_a_page_run_in_one_terminal(page: Path, tmp_path: Path) -> None:
    output = ""
    with Session(tmp_path) as session:
        for each in plans(page):
            if each.way is Way.OUTPUT:
                wrong = differences(each.block.text, session.of_page(output), numbers_vary=each.numbers_vary)
                assert not wrong, "\n".join([place(each), *wrong])
            elif each.way is Way.RUN and not is_for_pytest(each):
                try:
                    output = _run(session, each)
                except Failed as error:
                    pytest.fail(f"{place(each)}: {error}")


def _run(session: Session, each: Plan) -> str:
    if each.first:
        session.shell(each.first)
    if each.block.language == "python":
        return session.python(each.block.text)
    return session.shell(each.block.text)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(each.way is Way.RUN and is_for_pytest(each) for each in plans(page))],
    ids=name_of,
)
def test_the_tests_of_a_page_pass_under_pytest(page: Path, tmp_path: Path) -> None:
    chosen = [each for each in plans(page) if each.way is Way.RUN and is_for_pytest(each)]
    tests = [each for each in chosen if each.block.language == "python"]
    files = {f"test_{number}.py": each.block.text for number, each in enumerate(tests)}
    settings = "".join(each.block.text for each in chosen if each.block.language == "ini")
    files["pytest.ini"] = settings or "[pytest]\n"
    outcome, output = run_pytest(tmp_path, files, installed=True)
    assert set(outcome) == {"passed"}, output
    assert outcome["passed"] >= len(tests) > 0


@pytest.mark.parametrize("each", planned(Way.PARSED), ids=place)
def test_a_block_that_does_not_run_is_parsed(each: Plan) -> None:
    if each.block.language in data.PARSERS:
        assert data.faults(each.block) == []


@pytest.mark.parametrize("each", planned(Way.GENERATED), ids=place)
def test_the_help_of_a_command_is_as_it_prints_it(each: Plan) -> None:
    assert f"```text\n{each.block.text}```\n" in commands_page(app)


@pytest.mark.parametrize("each", planned(Way.ELSEWHERE), ids=place)
def test_a_block_of_another_test_is_read_by_that_test(each: Plan) -> None:
    for test in each.reason.split(", "):
        assert each.block.page.name in (REPOSITORY / test).read_text(encoding="utf-8")


def test_every_part_of_a_file_is_in_the_file() -> None:
    parts = planned(Way.PART)
    texts = [(REPOSITORY / each.reason).read_text(encoding="utf-8") for each in parts]
    lost = [
        place(each) for each, text in zip(parts, texts, strict=True) if not is_part(each.block.text, text)
    ]
    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_exists_also_within_a_sentence(page: Path) -> None:
    faults = []
    for text, is_block in code(page):
        if text.startswith("seqgate ready on "):
            continue  # what a gateway prints
        for words in commands(text):
            # A sentence may name an option without its value.
            whole = [*words, "…"] if words[-1].startswith("--") and not is_block else words
            if fault := command_fault(whole, is_whole=is_block):
                faults.append(f"{' '.join(words)}: {fault}")
    assert faults == []
