"""When a listener's certificate must be renewed, in words."""

from __future__ import annotations

from typing import Final

WARNING_DAYS: Final = 14
"""A certificate that expires within this time is warned of."""
_DAY_MS: Final = 86_400_000


def age_warning(valid_until_ms: int, now_ms: int) -> str | None:
    """Return what is wrong with the age of a certificate; None while it is valid for long enough."""
    left_ms = valid_until_ms - now_ms
    if left_ms < 0:
        return "the certificate has expired, so clients refuse it"
    days = left_ms // _DAY_MS
    if days >= WARNING_DAYS:
        return None
    left = "less than a day" if not days else "1 day" if days == 1 else f"{days} days"
    return f"the certificate expires in {left}; replace it before, otherwise clients refuse it"
