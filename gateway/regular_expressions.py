"""Regular expressions of clients and people, which match in linear time: those of RE2."""

from __future__ import annotations

from typing import Any


def pattern_of(expression: str) -> Any:
    """Return the pattern of RE2. Raises ValueError with RE2's reason."""
    import re2  # noqa: PLC0415 - slow to import, and seldom needed

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        raise ValueError(
            reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        ) from error
