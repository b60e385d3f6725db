from __future__ import annotations

import gc

from seqgate.gateway.runtime.upkeep.background_jobs import FREEZE_AFTER, LongLived


def test_objects_are_frozen_whenever_many_partitions_were_opened() -> None:
    gc.unfreeze()
    long_lived = LongLived()
    try:
        assert not long_lived.freeze_if_due(FREEZE_AFTER - 1)
        assert gc.get_freeze_count() == 0
        assert long_lived.freeze_if_due(FREEZE_AFTER)
        assert gc.get_freeze_count() > 0
        later: list[object] = [[]]
        assert not long_lived.freeze_if_due(2 * FREEZE_AFTER - 1)
        assert is_examined(later)
        assert long_lived.freeze_if_due(2 * FREEZE_AFTER)
        assert not is_examined(later)
    finally:
        gc.unfreeze()


def is_examined(wanted: object) -> bool:
    """Return whether the garbage collector still looks at an object: frozen ones are not listed."""
    return any(found is wanted for found in gc.get_objects())
