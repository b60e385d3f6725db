from __future__ import annotations

import uuid
from pathlib import Path

from seqgate.gateway.workers.shared_directory import SharedDirectory, share_of
from seqgate.gateway.workers.worker_brokers import registration
from seqgate.log import Storage


def test_strays_are_those_of_the_moment_when_no_worker_ran(tmp_path: Path) -> None:
    shared = SharedDirectory(Storage(), tmp_path, 1, lambda: 1_000)
    (tmp_path / "gone-0").mkdir()
    shared.share_out([registration(number, number, uuid.uuid4(), {}, None) for number in (1, 2)])
    (tmp_path / "new-0").mkdir()  # another worker has learned of the topic already
    image = shared.metadata.image
    first, second = share_of(tmp_path, 1, image, shared.strays), share_of(tmp_path, 2, image)
    assert [first.owns("gone", 0), first.owns("new", 0), second.owns("gone", 0)] == [True, False, False]
    assert [first.takes_leftovers, second.takes_leftovers] == [True, False]
    assert not first.owns("__cluster_metadata", 0)
    shared.close()
