"""The table of docs/certify.md is the kept results: every script, every client, and a sentence for every
failure.
"""

from __future__ import annotations

from seqgate.gateway.certify.scripts import SCRIPTS
from tests.compat.certify.programs import COLUMNS
from tests.compat.certify.table import PAGE, page_with, read_results, unexplained, written

RESULTS = read_results()


def test_every_client_has_a_result_for_every_script() -> None:
    rows = {"version", *(script.name for script in SCRIPTS)}
    assert {name: set(cells) for name, cells in RESULTS.items()} == {
        program.name: rows for program in COLUMNS
    }
    assert len({program.client for program in COLUMNS}) == 6


def test_the_page_shows_the_results() -> None:
    assert page_with(written(RESULTS)) == PAGE.read_text(), "run: python -m tests.compat.certify --write-only"


def test_every_failure_has_a_sentence() -> None:
    assert unexplained(RESULTS) == []
