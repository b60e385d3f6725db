"""A gateway starts as it does for its users, who have no hypothesis: kio imports it where there is one, a third of a start."""

import sys

sys.modules["hypothesis"] = None  # type: ignore[assignment]
