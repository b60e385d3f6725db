"""Hides hypothesis from a gateway that a test starts, because users do not have hypothesis. kio imports it
where it is installed, which takes a third of a start.
"""

import sys

sys.modules["hypothesis"] = None  # type: ignore[assignment]
