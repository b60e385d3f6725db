"""Hides hypothesis from a gateway that a test starts, as users do not have it. kio imports hypothesis where it is
installed, which takes a third of a start.
"""

import sys

sys.modules["hypothesis"] = None  # type: ignore[assignment]
