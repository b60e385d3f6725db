from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.security.client_quotas import (
    MATCH_ANY,
    MATCH_DEFAULT,
    MATCH_EXACT,
    QuotaAlteration,
    QuotaChange,
    QuotaFilter,
    alter_client_quotas,
    describe_client_quotas,
    entity_of,
)
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import KEYS_OF_CLIENTS, ClientQuotaRecord, QuotaEntity

ANN = entity_of([("user", "ann")])
ANN_ON_APP = entity_of([("user", "ann"), ("client-id", "app")])
ANY_CLIENT_OF_ANN = entity_of([("user", "ann"), ("client-id", None)])
ANYBODY = entity_of([("user", None)])
APP = entity_of([("client-id", "app")])
ADDRESS = entity_of([("ip", "192.0.2.1")])


def alter(
    image: MetadataImage,
    *alterations: tuple[QuotaEntity, dict[str, float | None]],
    max_entities: int = 100,
    validate_only: bool = False,
) -> dict[QuotaEntity, ApiError | None]:
    asked = [
        QuotaAlteration(entity, [QuotaChange(key, value) for key, value in changes.items()])
        for entity, changes in alterations
    ]
    decision = alter_client_quotas(image, asked, max_entities=max_entities, validate_only=validate_only)
    for record in decision.records:
        image.replay(record)
    return decision.answer.errors


def described(image: MetadataImage) -> dict[QuotaEntity, Mapping[str, float]]:
    found = describe_client_quotas(image, [], strict=False)
    assert not isinstance(found, ApiError)
    return dict(found)


def names_described(image: MetadataImage) -> list[str | None]:
    return [name for ((_, name),) in described(image)]


def code(error: ApiError | None) -> ErrorCode:
    return error.error_code if error else ErrorCode.none


def test_a_quota_is_set_changed_and_removed() -> None:
    image = MetadataImage()
    assert alter(image, (ANN, {"producer_byte_rate": 10.0, "consumer_byte_rate": 20.0})) == {ANN: None}
    assert image.client_quotas == {ANN: {"producer_byte_rate": 10.0, "consumer_byte_rate": 20.0}}
    alter(image, (ANN, {"producer_byte_rate": 11.0, "consumer_byte_rate": None}))
    assert image.client_quotas == {ANN: {"producer_byte_rate": 11.0}}
    alter(image, (ANN, {"producer_byte_rate": None}))
    assert image.client_quotas == {}


def test_a_value_that_is_set_already_and_a_removal_of_nothing_write_no_record() -> None:
    image = MetadataImage()
    alter(image, (ANN, {"producer_byte_rate": 10.0}))
    same = [QuotaChange("producer_byte_rate", 10.0), QuotaChange("no.such.key", None)]
    decision = alter_client_quotas(image, [QuotaAlteration(ANN, same)], max_entities=1, validate_only=False)
    assert (list(decision.records), decision.answer.errors) == ([], {ANN: None})


def test_validate_only_changes_nothing() -> None:
    image = MetadataImage()
    assert alter(image, (ANN, {"producer_byte_rate": 10.0}), validate_only=True) == {ANN: None}
    assert alter(image, (ANN, {"nonsense": 10.0}), validate_only=True)[ANN] is not None
    assert image.client_quotas == {}


@pytest.mark.parametrize(
    ("parts", "key", "value"),
    [
        ([("user", "ann")], "no_such_rate", 1.0),
        ([("user", "ann")], "connection_creation_rate", 1.0),
        ([("ip", "192.0.2.1")], "producer_byte_rate", 1.0),
        ([("user", "ann")], "producer_byte_rate", 0.0),
        ([("user", "ann")], "producer_byte_rate", -1.0),
        ([("user", "ann")], "producer_byte_rate", 1.5),
        ([("user", "ann")], "producer_byte_rate", 1e30),
        ([("user", "ann")], "producer_byte_rate", math.inf),
        ([("user", "ann")], "producer_byte_rate", -math.inf),
        ([("user", "ann")], "request_percentage", -0.5),
        ([("ip", "192.0.2.1")], "connection_creation_rate", 0.5),
        ([("ip", "192.0.2.1")], "connection_creation_rate", 2.0**31),
        ([("ip", "gateway.example")], "connection_creation_rate", 1.0),
        ([("ip", "192.0.2.1"), ("user", "ann")], "connection_creation_rate", 1.0),
        ([("user", "")], "producer_byte_rate", 1.0),
        ([("group", "g")], "producer_byte_rate", 1.0),
        ([], "producer_byte_rate", 1.0),
    ],
)
def test_what_is_no_quota_is_refused(parts: Sequence[tuple[str, str | None]], key: str, value: float) -> None:
    image = MetadataImage()
    entity = entity_of(parts)
    answer = alter(image, (entity, {key: value}), (APP, {"consumer_byte_rate": 7.0}))
    assert code(answer[entity]) is ErrorCode.invalid_request
    assert answer[APP] is None
    assert image.client_quotas == {APP: {"consumer_byte_rate": 7.0}}


@pytest.mark.parametrize("value", [0.001, 1.0])
def test_percentages_may_be_any_positive_number(value: float) -> None:
    image = MetadataImage()
    assert alter(image, (ANN, {"request_percentage": value})) == {ANN: None}
    assert image.client_quotas[ANN] == {"request_percentage": value}


@pytest.mark.parametrize("key", ["request_percentage", "producer_byte_rate"])
@pytest.mark.parametrize("value", [math.inf, math.nan, -math.inf])
def test_a_quota_must_be_a_finite_number(key: str, value: float) -> None:
    image = MetadataImage()
    assert code(alter(image, (ANN, {key: value}))[ANN]) is ErrorCode.invalid_request
    assert not image.client_quotas


def test_of_an_entity_named_twice_the_first_counts_and_the_answer_is_a_refusal() -> None:
    first, second = (QuotaAlteration(ANN, [QuotaChange("producer_byte_rate", value)]) for value in (1.0, 2.0))
    decision = alter_client_quotas(MetadataImage(), [first, second], max_entities=9, validate_only=False)
    assert code(decision.answer.errors[ANN]) is ErrorCode.invalid_request
    assert list(decision.records) == [ClientQuotaRecord(ANN, "producer_byte_rate", 1.0)]
    assert decision.answer.made == [first]


def test_a_key_named_twice_refuses_the_entry() -> None:
    image = MetadataImage()
    changes = [QuotaChange("producer_byte_rate", 1.0), QuotaChange("producer_byte_rate", 2.0)]
    decision = alter_client_quotas(
        image, [QuotaAlteration(ANN, changes)], max_entities=9, validate_only=False
    )
    assert not decision.records
    assert code(decision.answer.errors[ANN]) is ErrorCode.invalid_request
    assert decision.answer.made == []


def test_the_number_of_entities_is_limited() -> None:
    image = MetadataImage()
    answer = alter(
        image,
        (ANN, {"producer_byte_rate": 1.0}),
        (APP, {"producer_byte_rate": 1.0}),
        (ADDRESS, {}),
        max_entities=1,
    )
    assert {entity: code(error) for entity, error in answer.items()} == {
        ANN: ErrorCode.none,
        APP: ErrorCode.invalid_request,
        ADDRESS: ErrorCode.none,
    }
    assert alter(image, (ANN, {"producer_byte_rate": 2.0}), max_entities=1) == {ANN: None}
    assert set(image.client_quotas) == {ANN}


ENTITIES = (ANN, ANN_ON_APP, ANY_CLIENT_OF_ANN, ANYBODY, APP, ADDRESS)


@pytest.mark.parametrize(
    ("filters", "strict", "expected"),
    [
        ([], False, set(ENTITIES)),
        ([], True, set()),
        ([("user", MATCH_EXACT, "ann")], False, {ANN, ANN_ON_APP, ANY_CLIENT_OF_ANN}),
        ([("user", MATCH_EXACT, "ann")], True, {ANN}),
        ([("user", MATCH_DEFAULT, None)], False, {ANYBODY}),
        ([("user", MATCH_ANY, None)], True, {ANN, ANYBODY}),
        ([("user", MATCH_ANY, None), ("client-id", MATCH_DEFAULT, None)], True, {ANY_CLIENT_OF_ANN}),
        ([("client-id", MATCH_ANY, None)], False, {APP, ANN_ON_APP, ANY_CLIENT_OF_ANN}),
        ([("ip", MATCH_ANY, None)], True, {ADDRESS}),
        ([("ip", MATCH_EXACT, "192.0.2.2")], True, set()),
    ],
)
def test_a_description_has_the_entities_that_match(
    filters: Sequence[tuple[str, int, str | None]], strict: bool, expected: set[QuotaEntity]
) -> None:
    image = MetadataImage()
    for entity in ENTITIES:
        key = "connection_creation_rate" if entity is ADDRESS else "producer_byte_rate"
        alter(image, (entity, {key: 5.0}))
    found = describe_client_quotas(image, [QuotaFilter(*parts) for parts in filters], strict=strict)
    assert not isinstance(found, ApiError)
    assert {entity for entity, _ in found} == expected


@pytest.mark.parametrize("created", ["ann bob cat eve", "eve cat bob ann"])
def test_the_names_decide_the_order_of_a_description(created: str) -> None:
    image = MetadataImage()
    for name in created.split():
        alter(image, (entity_of([("user", name)]), {"producer_byte_rate": 5.0}))
    assert names_described(image) == ["eve", "bob", "cat", "ann"]


def test_new_entities_of_one_bucket_are_listed_as_kafka_takes_them_in() -> None:
    same_hash = [entity_of([("client-id", name)]) for name in ("AaAa", "BBBB", "AaBB")]
    image = MetadataImage()
    alter(image, *((entity, {"producer_byte_rate": 5.0}) for entity in same_hash))
    alter(image, (entity_of([("client-id", "BBAa")]), {"producer_byte_rate": 5.0}))
    assert names_described(image) == ["AaBB", "BBBB", "AaAa", "BBAa"]


def test_the_number_of_keys_decides_their_order() -> None:
    image = MetadataImage()
    alter(image, (ANN, dict.fromkeys(KEYS_OF_CLIENTS[:3], 5.0)))
    assert list(described(image)[ANN]) == ["consumer_byte_rate", "request_percentage", "producer_byte_rate"]
    alter(image, (ANN, dict.fromkeys(KEYS_OF_CLIENTS, 6.0)))
    assert list(described(image)[ANN]) == [
        "producer_byte_rate",
        "consumer_byte_rate",
        "controller_mutation_rate",
        "request_percentage",
    ]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("user", MATCH_EXACT, None)], ErrorCode.invalid_request),
        ([("user", MATCH_DEFAULT, "ann")], ErrorCode.invalid_request),
        ([("user", MATCH_ANY, "ann")], ErrorCode.invalid_request),
        ([("user", 7, None)], ErrorCode.invalid_request),
        ([("user", MATCH_ANY, None), ("user", MATCH_ANY, None)], ErrorCode.invalid_request),
        ([("", MATCH_ANY, None)], ErrorCode.invalid_request),
        ([("ip", MATCH_ANY, None), ("user", MATCH_ANY, None)], ErrorCode.invalid_request),
        ([("group", MATCH_ANY, None)], ErrorCode.unsupported_version),
    ],
)
def test_what_is_no_filter_is_refused(
    filters: Sequence[tuple[str, int, str | None]], expected: ErrorCode
) -> None:
    found = describe_client_quotas(MetadataImage(), [QuotaFilter(*parts) for parts in filters], strict=False)
    assert isinstance(found, ApiError)
    assert found.error_code is expected
