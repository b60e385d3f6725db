"""Decides what a test does with each fenced block of the pages: run it, parse it, or leave it to another
test.

The language of a block decides. A comment before the block says otherwise, with the reason:

    <!-- not run: it needs another machine -->      the block is parsed only
    <!-- run by tests/compat/spark/test_x.py -->    that test runs the block
    <!-- examples/outbox/relay.py -->               the block is a part of that file, which tests of its own run
    <!-- first: seqgate topics create orders -->    shell commands before the block, which readers need not see
    <!-- numbers vary: it counts retries -->        of an output, only the words are compared

A block of `text` right after a block that runs is its output.
"""

from __future__ import annotations

import enum
import functools
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.docs.data import PARSERS
from tests.support.markdown import REPOSITORY, Block, blocks

SHELL = frozenset(("bash", "sh"))
NOT_RUN = re.compile(r"not run: (?P<reason>.+)", re.DOTALL)
RUN_BY = re.compile(r"run by (?P<test>tests/[\w/.]+\.\w+)")
PART_OF = re.compile(r"(?P<file>(?:deploy|examples|tests)/[\w./-]+)")
NUMBERS_VARY = re.compile(r"numbers vary: .+", re.DOTALL)
FIRST = re.compile(r"first: (?P<commands>.+)", re.DOTALL)
USAGE = "Usage: seqgate"
RUN_FOR_PAGE = {
    ("deduplication.md", "python"): (
        "tests/compat/deduplication/test_documented_examples.py",
        "tests/compat/spark/test_named_write.py",
    ),
    ("effectively-once.md", "python"): ("tests/compat/spark/test_effectively_once_page.py",),
    ("transactions.md", "python"): (
        "tests/compat/transactions/test_documented_examples.py",
        "tests/compat/spark/test_read_committed.py",
    ),
}
"""The tests that run all blocks of one language on a page, by page and language."""


class Way(enum.StrEnum):
    """What happens with a block."""

    RUN = "run"
    """The block runs against a gateway in a temporary directory."""
    OUTPUT = "compared with the output"
    """The block is what the block before it prints."""
    ELSEWHERE = "run by another test"
    PART = "compared with a file"
    """The block is a part of a file of the repository."""
    GENERATED = "compared with the code"
    """The block is the help of a command, and is compared with the help."""
    PARSED = "parsed"
    UNDECLARED = "undeclared"
    """Nobody can say what to do with the block."""


@dataclass(frozen=True)
class Plan:
    """What happens with one block, and why."""

    block: Block
    way: Way
    reason: str = ""
    """Why a program does not run; for ELSEWHERE the path of the test, for PART that of the file."""
    first: str = ""
    """The shell commands that run before the block."""
    numbers_vary: bool = False
    """Whether any number of an output equals any other."""


def plan(block: Block, before: Way | None = None) -> Plan:
    """Return what happens with a block; `before` is the way of the block before it on the page.

    UNDECLARED is a block without a language, and one whose language no test can run or parse.
    """
    first = "\n".join(found["commands"] for found in map(FIRST.fullmatch, block.comments) if found)
    for comment in block.comments:
        if found := NOT_RUN.fullmatch(comment):
            return Plan(block, Way.PARSED, " ".join(found["reason"].split()))
        if found := RUN_BY.fullmatch(comment):
            return Plan(block, Way.ELSEWHERE, found["test"])
        if found := PART_OF.fullmatch(comment):
            return Plan(block, Way.PART, found["file"])
    if tests := RUN_FOR_PAGE.get((block.page.name, block.language)):
        return Plan(block, Way.ELSEWHERE, ", ".join(tests))
    if block.language in SHELL or block.language == "python" or block.text.startswith("[pytest]\n"):
        return Plan(block, Way.RUN, first=first)
    if block.language == "text" and block.text.startswith(USAGE):
        return Plan(block, Way.GENERATED)
    if block.language == "text" and before is Way.RUN:
        vary = any(map(NUMBERS_VARY.fullmatch, block.comments))
        return Plan(block, Way.OUTPUT, numbers_vary=vary)
    if block.language in PARSERS and block.language != "text":
        return Plan(block, Way.PARSED)
    named = f"a block of {block.language}" if block.language else "a block without a language"
    return Plan(block, Way.UNDECLARED, f"{named} needs a comment before it, as tests/docs/ways.py says")


def pages() -> list[Path]:
    """Return the pages whose blocks are tested. Pages of examples belong to the tests of the examples."""
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


@functools.cache
def plans(page: Path) -> tuple[Plan, ...]:
    """Return what happens with the blocks of a page, in its order."""
    planned: list[Plan] = []
    for block in blocks(page):
        planned.append(plan(block, planned[-1].way if planned else None))
    return tuple(planned)


def table() -> list[str]:
    """Return the lines of a table: how many blocks of each language go which way, and why a program does not
    run here.
    """
    listed = [each for page in pages() for each in plans(page)]
    lines = [f"{len(listed)} blocks, of which"]
    for way in Way:
        counts = Counter(each.block.language for each in listed if each.way is way)
        if counts:
            named = ", ".join(f"{count} {language}" for language, count in sorted(counts.items()))
            lines.append(f"{counts.total():5}  {way.value}: {named}")
    reasons = Counter(
        f"{each.way.value}: {each.block.page.name}: {each.reason}" for each in listed if each.reason
    )
    lines += [f"{count:5}  {reason}" for reason, count in reasons.items()]
    return lines
