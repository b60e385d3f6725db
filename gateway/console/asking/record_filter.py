"""Decides which records a person wants to see. Pure. Raises ControlError for a wrong filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import re2

from gateway.admin.request import ControlError
from gateway.console.asking.fetching import ReadRecord

ANYWHERE: Final = "anywhere"
PLACES: Final = (ANYWHERE, "key", "value", "headers")
MOST_SEARCHED: Final = 1 << 20
"""Bytes of one content that are searched; what follows is not."""
LONGEST_FILTER: Final = 500


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """A text to find in records. `matches` None means that every record matches."""

    matches: Callable[[str], bool] | None = None
    place: str = ANYWHERE
    markers: bool = False

    def accepts(self, record: ReadRecord) -> bool:
        """Return whether a person wants to see a record."""
        if record.marker is not None:
            return self.markers and self.matches is None
        if self.matches is None:
            return True
        return any(self.matches(text) for text in self._texts(record))

    def _texts(self, record: ReadRecord) -> Iterator[str]:
        if self.place in {ANYWHERE, "key"} and record.key is not None:
            yield _text(record.key)
        if self.place in {ANYWHERE, "value"} and record.value is not None:
            yield _text(record.value)
        if self.place in {ANYWHERE, "headers"}:
            for name, value in record.headers:
                yield f"{name}: {_text(value or b'')}"


def _text(content: bytes) -> str:
    return content[:MOST_SEARCHED].decode(errors="replace")


def record_filter(text: str, place: str, *, is_regex: bool, markers: bool) -> RecordFilter:
    """Return the filter for a text, or for a regular expression, which takes linear time whatever it is."""
    if place not in PLACES:
        raise ControlError(f"the filter searches one of {', '.join(PLACES)}, not {place[:40]}")
    if len(text) > LONGEST_FILTER:
        raise ControlError(f"a filter has at most {LONGEST_FILTER} letters, not {len(text)}")
    if not text:
        return RecordFilter(None, place, markers)
    if not is_regex:
        wanted = text.lower()
        return RecordFilter(lambda found: wanted in found.lower(), place, markers)
    try:
        options = re2.Options()
        options.log_errors = False
        pattern = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ControlError(f"the regular expression can't be used: {reason}") from None
    return RecordFilter(lambda found: pattern.search(found) is not None, place, markers)
