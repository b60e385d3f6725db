"""The table of what clients do, kept as results in JSON and written into docs/certify.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from seqgate.gateway.certify.command import Judgement, RunOutcome
from seqgate.gateway.certify.scripts import SCRIPTS
from tests.compat.certify.explanations import EXPLANATIONS, NAMES, WITHOUT_IDEMPOTENCE
from tests.compat.certify.programs import COLUMNS, Program
from tests.support.gateway_process import REPOSITORY

RESULTS: Final = Path(__file__).with_name("results.json")
PAGE: Final = REPOSITORY / "docs" / "certify.md"
BEGIN, END = "<!-- clients -->\n", "<!-- /clients -->\n"
PASSED: Final = "ok"
Results = Mapping[str, Mapping[str, str]]
"""The cells of each column, by the names of the scripts; beside them the client's version."""


def cell(outcome: RunOutcome) -> str:
    """Return the few words of the table for an outcome."""
    if outcome.verdict is Judgement.FAILED:
        kinds = ("lost", "doubled", "reordered", "unexpected")
        return ", ".join(kind for kind in kinds if getattr(outcome.findings, kind))
    if outcome.verdict is Judgement.PASSED:
        return PASSED if outcome.ending.claims_all else "reported"
    return outcome.verdict.value


def read_results() -> dict[str, dict[str, str]]:
    """Return the kept results; none if there are no results."""
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def write_results(results: Results) -> None:
    """Keep results."""
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def unexplained(results: Results) -> Sequence[str]:
    """Return the cells in which a client fails, and that no sentence explains; and sentences about nothing."""
    failing = {
        (column, script): text
        for column, cells in results.items()
        for script, text in cells.items()
        if script != "version" and text not in {PASSED, "reported", Judgement.NOT_STRUCK.value}
    }
    explained = {(column, script) for column, scripts, _ in EXPLANATIONS for script in scripts}
    plain = {each.name for each in COLUMNS if not each.is_idempotent}
    by_kind = {
        cell
        for cell, text in failing.items()
        if cell[0] in plain and set(text.split(", ")) <= set(WITHOUT_IDEMPOTENCE)
    }
    return [
        *(
            f"{column}, {script}: no sentence explains {failing[column, script]!r}"
            for column, script in sorted(set(failing) - explained - by_kind)
        ),
        *(
            f"{column}, {script}: a sentence explains nothing"
            for column, script in sorted(explained - set(failing))
        ),
    ]


def written(results: Results) -> str:
    """Return the tables and the sentences as Markdown."""
    parts = []
    for is_idempotent, title in ((True, "Idempotent producers"), (False, "Producers without idempotence")):
        columns = [each for each in COLUMNS if each.is_idempotent is is_idempotent]
        parts += [f"### {title}\n", _table(columns, results), *_sentences(columns)]
    return "\n".join(parts)


def _table(columns: Sequence[Program], results: Results) -> str:
    heads = [
        f"{NAMES[each.client]} {_found(results, each, 'version')}<br>{_settings(each)}" for each in columns
    ]
    lines = [_row("script", *heads), _row(*["---"] * (len(heads) + 1))]
    lines += [
        _row(script.name, *(_found(results, each, script.name) for each in columns)) for script in SCRIPTS
    ]
    return "\n".join(lines) + "\n"


def _found(results: Results, column: Program, row: str) -> str:
    """Return a cell, empty if the program was not run."""
    return results.get(column.name, {}).get(row, "")


def _settings(program: Program) -> str:
    return "by default" if program.mode == "default" else f"{program.mode}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _sentences(columns: Sequence[Program]) -> list[str]:
    """Return the list of sentences about these columns."""
    names = {each.name: f"{NAMES[each.client]} ({_settings(each)})" for each in columns}
    found = []
    if not any(each.is_idempotent for each in columns):
        found += [f"- *{word}*: {sentence}" for word, sentence in WITHOUT_IDEMPOTENCE.items()]
    grouped: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for column, scripts, sentence in EXPLANATIONS:
        if column in names:
            grouped.setdefault((scripts, sentence), []).append(names[column])
    found += [
        f"- {_listed(clients)}, {_listed([f'`{script}`' for script in scripts])}: {sentence}"
        for (scripts, sentence), clients in grouped.items()
    ]
    return ["\n".join(found) + "\n"]


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]


def page_with(text: str) -> str:
    """Return the page with another text between the marks."""
    page = PAGE.read_text()
    assert page.find(END) > page.find(BEGIN) > 0, f"{PAGE} lacks the marks of the table"
    pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
    return re.sub(pattern, lambda _: BEGIN + text + END, page, flags=re.DOTALL)
