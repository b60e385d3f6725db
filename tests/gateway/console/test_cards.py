"""The names of columns in the cells of tables, by which a narrow window shows each row as a card."""

from __future__ import annotations

import re

import pytest

from seqgate.gateway.console.web.visiting import labelled
from tests.support.console_client import ConsoleClient

HEAD = (
    '<table><thead><tr><th scope="col">Topic</th><th class="number"><a href="/topics?sort=size&amp;x=1">Log\n'
    ' "end"</a></th><th data-label="Last minutes"><span>5 min ago</span><span>now</span></th>'
    '<th><span class="visually-hidden">Links</span></th></tr></thead><tbody>'
)
LABELS = ["Topic", "Log &#34;end&#34;", "Last minutes", ""]


@pytest.mark.parametrize(
    ("row", "labels"),
    [
        ("<tr><th>a</th><td>1</td><td></td><td><b>x</b></td></tr>", LABELS),
        ("<tr><th>a</th><td>1</td></tr>", LABELS[:2]),
        ('<tr><th>a</th><td colspan="2">a gap</td><td></td></tr>', [LABELS[0], LABELS[3]]),
        ("<template><tr><td>a</td></tr></template><tr><td>b</td></tr>", [LABELS[0], LABELS[0]]),
        ("<tr><td>&lt;td&gt;</td><td>1</td></tr>", LABELS[:2]),
    ],
    ids=["whole", "short", "spanning", "template", "text"],
)
def test_cells_have_the_names_of_their_columns(row: str, labels: list[str]) -> None:
    page = labelled(f"<p>before</p>{HEAD}{row}</tbody></table><p>after</p>")
    head, _, body = page.partition("</thead>")
    assert re.findall('data-label="(.*?)"', head) == LABELS
    assert re.findall('data-label="(.*?)"', body) == labels
    assert (
        re.sub(' data-label="(?!Last).*?"', "", head)
        == f"<p>before</p>{HEAD.removesuffix('</thead><tbody>')}"
    )


def test_tables_of_pages_and_of_the_manual_are_labelled(console: ConsoleClient) -> None:
    assert 'data-label="Address"' in console.page("/")
    assert '<td data-label="limit">' in console.page("/manual/console")
