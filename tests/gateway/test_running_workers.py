from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.cluster.cache.local_caches import CACHES
from seqgate.gateway.running_workers import check_only_caches


def test_workers_of_a_bucket_take_the_root_of_a_volume_and_no_directory_in_use(tmp_path: Path) -> None:
    for name in (CACHES, "lost+found"):
        (tmp_path / name).mkdir()
    check_only_caches(tmp_path)
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(StartFailed, match="holds orders-0, and several workers"):
        check_only_caches(tmp_path)
