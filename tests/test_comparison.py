"""`docs/comparison.md` backs what it says: cells about Seqgate by pages and tests, cells about other products
by sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.test_links import ELSEWHERE, links

PAGE = Path(__file__).resolve().parents[1] / "docs" / "comparison.md"


def cells(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the product, the feature and the cell, for each cell of the tables by feature."""
    products: list[str] = []
    for line in text.splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if row and row[0] == "feature":
            products = row[1:]
        elif not row:
            products = []
        elif not set(line) <= set("|-: "):
            yield from (
                (product, row[0], cell) for product, cell in zip(products, row[1:], strict=bool(products))
            )


def unbacked(text: str) -> list[str]:
    """Return the cells that lead nowhere: to no page or test of the repository (Seqgate), or to no source
    (the others).
    """
    return [
        f"{product}, {feature}: {cell}"
        for product, feature, cell in cells(text)
        if not any(
            link.startswith(ELSEWHERE) is not product.startswith(("Seqgate", "[Seqgate"))
            for link in links(cell)
        )
    ]


def test_every_cell_is_backed() -> None:
    assert unbacked(PAGE.read_text(encoding="utf-8")) == []


def test_a_cell_without_a_source_is_found() -> None:
    table = (
        "| feature | Seqgate | Kafka |\n| --- | --- | --- |\n| a | [x](x.md) | [y](https://example.org) |\n"
        "| b | [x](https://example.org) | y |\n\n| you want | choose |\n| --- | --- |\n| c | d |\n"
    )
    assert unbacked(table) == ["Seqgate, b: [x](https://example.org)", "Kafka, b: y"]
