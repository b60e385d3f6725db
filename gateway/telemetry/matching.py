"""Selects clients: the `match` list of a subscription.

An entry is `SELECTOR=EXPRESSION`; the expression must match the whole value of the selector. Expressions are those of RE2, which
match in linear time, so lookaround, backreferences and possessive quantifiers are refused. Source: Kafka's
ClientMetricsConfigs.parseMatchingPatterns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import re2

from gateway.telemetry.clients import ClientDescription

SELECTORS: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
MAX_EXPRESSION_CHARACTERS: Final = 1_000
"""Longest expression of one selector."""
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False

Patterns = Mapping[str, Callable[[str], object]]
"""The whole-value matcher of each selector. An empty mapping selects every client."""


class InvalidMatch(ValueError):
    """An entry of a `match` list is malformed; the message names the entry and says why."""


def parse_match(entries: Iterable[str]) -> Patterns:
    """Return the matchers of a `match` list. As in Kafka, the last entry of a selector counts. Raises InvalidMatch."""
    patterns: dict[str, Callable[[str], object]] = {}
    for entry in entries:
        selector, expression = _parts(entry)
        if selector not in SELECTORS:
            raise InvalidMatch(
                f"Illegal client matching pattern: {entry}: the selector must be one of {', '.join(sorted(SELECTORS))}"
            )
        if len(expression) > MAX_EXPRESSION_CHARACTERS:
            raise InvalidMatch(
                f"Illegal client matching pattern: {entry[:100]}: the expression has {len(expression)} characters; at most "
                f"{MAX_EXPRESSION_CHARACTERS} are allowed"
            )
        try:
            patterns[selector] = re2.compile(expression, _OPTIONS).fullmatch
        except re2.error as error:
            raise InvalidMatch(
                f"Illegal client matching pattern: {entry}: the expression is not a regular expression of RE2: {_reason(error)}"
            ) from error
    return patterns


def _reason(error: re2.error) -> str:
    """Return the text of an error of RE2, which comes as bytes."""
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _parts(entry: str) -> tuple[str, str]:
    """Return selector and expression. As in Kafka, the expression has no `=`, but any number may follow it."""
    selector, separator, expression = entry.rstrip("=").partition("=")
    if not separator or "=" in expression:
        raise InvalidMatch(
            f"Illegal client matching pattern: {entry}: write SELECTOR=EXPRESSION, with one `=`"
        )
    return selector.strip(), expression.strip()


def is_match(patterns: Patterns, client: ClientDescription) -> bool:
    """Return whether every selector matches the client."""
    if not patterns:
        return True
    values = client.selected_values()
    return all(matches(values[selector]) for selector, matches in patterns.items())
