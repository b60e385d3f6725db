"""All kept inputs run through their targets: faults found earlier stay fixed, on every Python version."""

from __future__ import annotations

import logging
from struct import Struct
from typing import Final, get_args

import pytest

from seqgate.gateway.coordinator.group import consumer_group, share_group
from seqgate.gateway.coordinator.group.records import GroupMetadataRecord, OffsetCommitRecord
from seqgate.gateway.coordinator.streams import records as streams_records
from seqgate.gateway.metadata.records import MetadataRecord
from tests.fuzzing import composed_requests, corpus, requests, stored_state
from tests.fuzzing.limits import check
from tests.fuzzing.target import load
from tests.fuzzing.targets import NAMES

MOST_CORPUS_BYTES = 500_000
_HEAD: Final = Struct(">ihh")


@pytest.mark.parametrize("name", NAMES)
def test_replay(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    target = load(name)
    with target.opened() as run:
        for data in [*target.seeds(), *corpus.kept(name)]:
            try:
                check(target, run, data)
            except Exception as error:
                raise AssertionError(f"broken by {corpus.line_of(data)}") from error


def test_every_target_has_its_inputs() -> None:
    assert sorted(path.stem for path in corpus.DIRECTORY.iterdir()) == sorted(NAMES)
    for name in NAMES:
        inputs = list(corpus.kept(name))
        assert inputs
        assert len(set(inputs)) == len(inputs)


def test_the_inputs_stay_few() -> None:
    assert sum(path.stat().st_size for path in corpus.DIRECTORY.iterdir()) < MOST_CORPUS_BYTES


def test_every_version_of_every_api_is_a_seed() -> None:
    heads = [_HEAD.unpack_from(data)[1:] for data in requests.seeds() if len(data) >= _HEAD.size]
    assert set(composed_requests.VERSIONS) <= set(heads)


def test_every_kind_of_stored_record_is_a_seed() -> None:
    rows = {*consumer_group.ROWS, *share_group.ROWS, *streams_records.ROWS}
    found = stored_state.every_group_record()
    assert {getattr(record, "row", type(record)) for record in found} == {
        *rows,
        GroupMetadataRecord,
        OffsetCommitRecord,
    }
    assert {type(record) for record in stored_state.every_metadata_record()} == set(get_args(MetadataRecord))
