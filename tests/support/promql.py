"""The metrics and labels that a PromQL expression names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<range>\[[^\]]*\])
    |(?P<number>\d[\w.]*)
    |(?P<name>[a-zA-Z_:][\w:]*)
    |(?P<sign>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){},])
    |(?P<space>\s+)""",
    re.VERBOSE,
)
FUNCTIONS = frozenset(
    [
        "absent",
        "avg",
        "count",
        "delta",
        "deriv",
        "histogram_quantile",
        "increase",
        "max",
        "max_over_time",
        "min",
        "min_over_time",
        "predict_linear",
        "rate",
        "resets",
        "sum",
        "time",
        "topk",
        "vector",
    ]
)
WORDS = frozenset(("and", "or", "unless", "bool", "offset"))
LISTS = frozenset(("by", "without", "on", "ignoring", "group_left", "group_right"))
"""The words before a list of labels."""


class Used(NamedTuple):
    """What an expression names: metrics, each with the labels of its matchers, and the labels of its
    groupings.
    """

    metrics: list[tuple[str, tuple[str, ...]]]
    grouped: set[str]


def used(expression: str) -> Used:
    """Return what an expression names. Raises ValueError for what this parser does not know."""
    tokens = list(_tokens(expression))
    found = Used([], set())
    position = 0
    while position < len(tokens):
        kind, text = tokens[position]
        position += 1
        if kind != "name" or text in WORDS:
            continue
        following = tokens[position][1] if position < len(tokens) else ""
        if text in LISTS:
            end = tokens.index(("sign", ")"), position)
            found.grouped.update(name for kind, name in tokens[position:end] if kind == "name")
            position = end + 1
        elif text in FUNCTIONS:
            continue
        elif following == "(":
            raise ValueError(f"{text} is no known function in {expression}")
        else:
            labels: tuple[str, ...] = ()
            if following == "{":
                end = tokens.index(("sign", "}"), position)
                labels = tuple(name for kind, name in tokens[position:end] if kind == "name")
                position = end + 1
            found.metrics.append((text, labels))
    return found


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(expression):
        match = TOKEN.match(expression, position)
        if match is None:
            raise ValueError(f"{expression[position:]!r} is no PromQL")
        position = match.end()
        if match.lastgroup != "space":
            yield str(match.lastgroup), match[0]
