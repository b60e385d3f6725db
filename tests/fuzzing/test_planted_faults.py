"""Each target detects a fault that is planted in the code under test."""

from __future__ import annotations

import base64
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from seqgate.gateway.admin import status
from seqgate.gateway.cluster.wal import wal_object
from seqgate.gateway.runtime.topics.topic_lifecycle import TopicLifecycle
from seqgate.gateway.security import key_stores
from seqgate.gateway.security.acls.authorizer import Authorizer
from seqgate.gateway.security.certificates import StoreError
from seqgate.gateway.security.sasl import oauthbearer, users_file
from seqgate.gateway.security.sasl.scram_credential import ScramHash
from seqgate.gateway.server import tls
from seqgate.gateway.server.dispatcher import Dispatcher
from seqgate.log.segments.segment import Segment
from seqgate.log.state import record_states
from tests.fuzzing import (
    acl_patterns,
    bearer_tokens,
    certificates,
    compressed_records,
    named_batches,
    plain_logins,
    record_batches,
    scram_messages,
    small_formats,
    start_up,
    stored_state,
    tls_handshakes,
    wal_objects,
)
from tests.fuzzing.composed_requests import request
from tests.fuzzing.damage import REPLACE, steps_of
from tests.fuzzing.target import load
from tests.fuzzing.targets import NAMES
from tests.support.batches import Batch
from tests.support.tokens import Issuer, first_message

Plant = Callable[[pytest.MonkeyPatch], None]


def unbounded_decompression(patch: pytest.MonkeyPatch) -> None:
    honest = compressed_records.decompress
    patch.setattr(compressed_records, "decompress", lambda codec, data, _: honest(codec, data))


def deep_validation_that_is_shallow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(record_batches, "DEEP", replace(record_batches.DEEP, deep_validation=False))


def index_without_proof(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segment, "_bears_out", lambda *_: True)


def duplicates_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(record_states, "_without", lambda batch, view, *_: (batch, view))


def unknown_partitions_deleted(patch: pytest.MonkeyPatch) -> None:
    def delete(self: Any, topic: str, index: int, *_: object) -> None:
        self._directory.delete(topic, index)

    patch.setattr(TopicLifecycle, "_take_away", delete)


def error_in_the_dispatcher(patch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("planted")

    patch.setattr(Dispatcher, "_begin_new", fail)


def status_that_fails(patch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise KeyError("planted")

    patch.setattr(status, "producer_counters", fail)


def names_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(small_formats, "subscribed_topics", lambda _: frozenset())


def unknown_records_that_raise(patch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("planted")

    patch.setattr(stored_state.group_records, "decode", fail)


def signatures_not_checked(patch: pytest.MonkeyPatch) -> None:
    honest = oauthbearer._SIGNATURES.decode_complete

    def decode(token: str, key: Any, **options: Any) -> Any:
        return honest(token, key, **options, options={"verify_signature": False})

    patch.setattr(oauthbearer._SIGNATURES, "decode_complete", decode)


def passwords_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(users_file, "digest", lambda _: bytes(32))


def proofs_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ScramHash, "digest", lambda *_: scram_messages.KNOWN.stored_key)


def decisions_kept_forever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Authorizer, "_changed", lambda _: None)


def passwords_named(patch: pytest.MonkeyPatch) -> None:
    def fail(_: bytes, store: key_stores.Store) -> None:
        raise StoreError(f"the password {store.password} does not open it")

    patch.setattr(key_stores, "_pkcs12", fail)


def reasons_that_raise(patch: pytest.MonkeyPatch) -> None:
    def fail(_: BaseException) -> None:
        raise KeyError("planted")

    patch.setattr(tls, "_reason", fail)


def rows_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(wal_object, "_fault_of", lambda _: None)


def _asked_before_and_after() -> bytes:
    ask, add = acl_patterns.step_of(acl_patterns.ASK), acl_patterns.step_of(acl_patterns.ADD)
    return b"\0" + ask + add + ask


def _token_of_another_issuer() -> bytes:
    forged = Issuer("first", "EdDSA").token(**bearer_tokens.CLAIMS)
    return bytes([bearer_tokens.SIGNED]) + first_message(forged)


def _wrong_password() -> bytes:
    return next(plain_logins.seeds()).replace(b"open sesame", b"open barley")


def _wrong_proof() -> bytes:
    login = next(scram_messages.seeds())
    return login.replace(scram_messages.PROOF, base64.b64encode(bytes(32)))


def _row_of_negative_length() -> bytes:
    content = next(wal_objects.seeds())
    for row, length in zip((wal_objects.ROWS[0], wal_objects.ROWS[2]), (15, -7), strict=True):
        content = content.replace(struct.pack(">qi", *row[-2:]), struct.pack(">qi", row[-2], length))
    return wal_objects.with_checksums(content)


def _without_the_metadatas_topics() -> bytes:
    """Return an input that cuts the metadata log behind its first batch, as a kill and a torn tail do."""
    files = start_up.directories()[1]
    names = sorted(files)
    name = next(name for name in names if name.startswith(start_up.METADATA) and name.endswith(".log"))
    first_bytes = 12 + int.from_bytes(files[name][8:12], "big")
    assert first_bytes < 256
    return b"\1" + steps_of((names.index(name), REPLACE, 0, files[name][:first_bytes]))


FAULTS: list[tuple[str, Plant, Callable[[], bytes], str]] = [
    ("acl_patterns", decisions_kept_forever, _asked_before_and_after, "False instead of True"),
    (
        "certificates",
        passwords_named,
        lambda: bytes([certificates.PKCS12_FILE]) + certificates.PKCS12,
        "a store is refused with",
    ),
    ("tls_handshakes", reasons_that_raise, lambda: tls_handshakes.input_of(tls_handshakes.PLAIN), "planted"),
    ("bearer_tokens", signatures_not_checked, _token_of_another_issuer, "was not signed by the issuer"),
    ("plain_logins", passwords_not_compared, _wrong_password, "without the password"),
    ("scram_messages", proofs_not_compared, _wrong_proof, "without the password"),
    (
        "compressed_records",
        unbounded_decompression,
        lambda: b"\4" + compressed_records.compress(4, bytes(2 << 20)),
        "with a limit",
    ),
    (
        "record_batches",
        deep_validation_that_is_shallow,
        lambda: Batch(payload=b"none", base_timestamp=record_batches.NOW_MS).encode(),
        "accepts a batch that can't be read",
    ),
    ("named_batches", duplicates_stored, lambda: list(named_batches.seeds())[1], "other records"),
    (
        "partition_files",
        index_without_proof,
        lambda: base64.b64decode("AAoBAA8B6w=="),
        "its records were not damaged",
    ),
    ("start_up", unknown_partitions_deleted, _without_the_metadatas_topics, "were deleted"),
    ("requests", error_in_the_dispatcher, lambda: request(random.Random(1)), "planted"),
    ("control_requests", status_that_fails, lambda: b"\n", "planted|no longer"),
    ("small_formats", names_not_checked, lambda: next(small_formats.seeds()), "a subscription names"),
    ("stored_state", unknown_records_that_raise, lambda: next(stored_state.seeds()), "planted"),
    ("wal_objects", rows_not_checked, _row_of_negative_length, "lies outside its object"),
]


@pytest.mark.parametrize(("name", "plant", "made", "words"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_is_noticed(
    name: str, plant: Plant, made: Callable[[], bytes], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with load(name).opened() as run:
        data = made()
        run(b"")
        plant(monkeypatch)
        with pytest.raises(Exception, match=words):
            run(data)
        monkeypatch.undo()
        run(data)


def test_every_target_has_one() -> None:
    assert sorted(fault[0] for fault in FAULTS) == sorted(NAMES)
