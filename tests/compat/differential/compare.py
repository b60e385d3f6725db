"""Compares two normalised transcripts field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.compat.differential.normalise import Normaliser
from tests.compat.differential.peer import Transcript
from tests.support.wire import Plain

# Fields in which the endpoints may hold different entries; entries that both have must agree.
COMPARED_WHERE_BOTH_KNOW = {
    "api_keys": "api_key",
    "configs": "name",
    "supported_features": "name",
    "finalized_features": "name",
    "synonyms": "name",
}
MISSING = "<missing>"


@dataclass(frozen=True)
class Difference:
    """A field that differs. `path` is the number of the exchange (from 1) and then the path to the field,
    with dots.
    """

    path: str
    request: Any
    kafka: Any
    gateway: Any

    def __str__(self) -> str:
        request = str(self.request)
        shown = request if len(request) < 600 else f"{request[:600]}…"
        return f"{self.path}\n    Kafka   {self.kafka!r}\n    Seqgate {self.gateway!r}\n    request {shown}"


def differences(kafka: Transcript, gateway: Transcript) -> list[Difference]:
    """Return every difference between the answers of the two endpoints."""
    left, right = Normaliser(kafka).exchanges(), Normaliser(gateway).exchanges()
    found = []
    for number in range(max(len(left), len(right))):
        ours = right[number] if number < len(right) else MISSING
        theirs = left[number] if number < len(left) else MISSING
        known = kafka.exchanges if number < len(kafka.exchanges) else gateway.exchanges
        for path, a, b in _walk(theirs, ours, ""):
            found.append(Difference(f"{number + 1}{path}", known[number].request, a, b))
    return found


def _walk(left: Any, right: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in [*left, *(key for key in right if key not in left)]:
            a, b = left.get(key, MISSING), right.get(key, MISSING)
            if key in COMPARED_WHERE_BOTH_KNOW and isinstance(a, list) and isinstance(b, list):
                yield from _walk_by_key(a, b, COMPARED_WHERE_BOTH_KNOW[key], f"{path}.{key}")
            elif not _explains_more(key, left, right):
                yield from _walk(a, b, f"{path}.{key}")
    elif isinstance(left, list) and isinstance(right, list):
        for index in range(max(len(left), len(right))):
            a = left[index] if index < len(left) else MISSING
            b = right[index] if index < len(right) else MISSING
            yield from _walk(a, b, f"{path}.{index}")
    elif left != right or type(left) is not type(right):
        yield path, left, right


def _explains_more(key: str, left: Plain, right: Plain) -> bool:
    """Return whether Seqgate sends an error message where Kafka sends none, which is allowed."""
    if key not in {"error_message", "acknowledge_error_message"}:
        return False
    error_code = left.get(key.replace("_message", "_code"))
    return bool(error_code) and not left[key] and bool(right.get(key))


def _walk_by_key(
    left: list[Plain], right: list[Plain], key: str, path: str
) -> Iterator[tuple[str, Any, Any]]:
    """Compare rows by their names. Ignore rows that only one endpoint has."""
    left, right = _common(left, right, key)
    names = [item[key] for item in left]
    if len(set(names)) < len(names) or names != [item[key] for item in right]:
        yield from _walk(left, right, path)
        return
    for name, a, b in zip(names, left, right, strict=True):
        yield from _walk(a, b, f"{path}.{name}")


def _common(left: list[Plain], right: list[Plain], key: str) -> tuple[list[Plain], list[Plain]]:
    both = {item[key] for item in left} & {item[key] for item in right}
    if not both:
        return left, right
    return [item for item in left if item[key] in both], [item for item in right if item[key] in both]
