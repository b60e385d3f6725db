from __future__ import annotations

import gc

from gateway.runtime.loop.garbage import MANY, LongLived


def test_what_many_partitions_need_is_frozen_once() -> None:
    gc.unfreeze()
    long_lived = LongLived()
    try:
        assert not long_lived.settle(MANY - 1)
        assert gc.get_freeze_count() == 0
        assert long_lived.settle(MANY)
        frozen = gc.get_freeze_count()
        assert frozen > 0
        assert not long_lived.settle(2 * MANY - 1)
        assert long_lived.settle(2 * MANY)
        assert gc.get_freeze_count() >= frozen
    finally:
        gc.unfreeze()
