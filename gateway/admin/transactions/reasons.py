"""The reasons for which an open transaction counts as hanging."""

from typing import Final

UNKNOWN_PRODUCER: Final = "unknown producer"
NOT_PART: Final = "not part"
OVERDUE: Final = "overdue"
REASONS: Final = (UNKNOWN_PRODUCER, NOT_PART, OVERDUE)
