from __future__ import annotations

import json
import math
import uuid

import pytest

from seqgate.gateway.metadata.records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnknownRecordError,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
    topic_id_from_text,
)
from seqgate.gateway.protocol.frames import topic_id_text
from seqgate.gateway.security.acls.access import Operation, PatternType, Permission, ResourceType
from seqgate.gateway.security.sasl.scram_credential import ScramHash

TOPIC_ID = uuid.UUID("f19c7319-dc40-44ae-a1b6-b2b2b584141a")


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord("orders", TOPIC_ID),
        PartitionRecord(
            partition_id=3,
            topic_id=TOPIC_ID,
            replicas=(1,),
            isr=(1,),
            leader=1,
            leader_epoch=4,
            partition_epoch=5,
        ),
        RemoveTopicRecord(TOPIC_ID),
        ConfigRecord(2, "orders", "retention.ms", "5"),
        ConfigRecord(2, "orders", "retention.ms", None),
        ProducerIdsRecord(
            broker_id=1,
            broker_epoch=0,
            next_producer_id=2000,
            first_producer_id=1000,
            owner="1",
            claimed_at_ms=7,
        ),
        ClientQuotaRecord((("client-id", None), ("user", "ann")), "producer_byte_rate", 1024.0),
        ClientQuotaRecord((("ip", "192.0.2.1"),), "connection_creation_rate", remove=True),
        ClientQuotaRecord((("user", "ann"),), "request_percentage", float("inf")),
        UserScramCredentialRecord("ann", ScramHash.SHA_256, b"\x00salt", b"stored", b"", 4096),
        RemoveUserScramCredentialRecord("ann", ScramHash.SHA_512),
        DelegationTokenRecord("User:ann", "User:bob", ("User:carl",), 1, 3, 2, "token"),
        RemoveDelegationTokenRecord("token"),
        RegisterBrokerRecord(2, TOPIC_ID, 17, (BrokerEndpoint("TLS", "host", 9093, 1),), "a", fenced=True),
        BrokerRegistrationChangeRecord(2, 17, fenced=-1),
        UnregisterBrokerRecord(2, 17),
    ],
    ids=lambda record: type(record).__name__,
)
def test_every_record_is_decoded_as_it_was_encoded(record: MetadataRecord) -> None:
    assert decode_record(encode_record(record)) == record


def test_a_quota_that_json_can_not_write_as_a_number_survives() -> None:
    record = ClientQuotaRecord((("user", "ann"),), "request_percentage", float("nan"))
    decoded = decode_record(encode_record(record))
    assert isinstance(decoded, ClientQuotaRecord)
    assert math.isnan(decoded.value)


def test_a_quota_has_the_fields_of_kafkas_tools() -> None:
    record = ClientQuotaRecord((("user", None),), "producer_byte_rate", 5.0)
    assert json.loads(encode_record(record)) == {
        "type": "CLIENT_QUOTA_RECORD",
        "version": 0,
        "data": {
            "entity": [{"entityType": "user", "entityName": None}],
            "key": "producer_byte_rate",
            "value": 5.0,
            "remove": False,
        },
    }


def test_a_credential_has_the_fields_of_kafkas_tools() -> None:
    record = UserScramCredentialRecord("ann", ScramHash.SHA_512, b"salt", b"stored", b"server", 8192)
    assert json.loads(encode_record(record)) == {
        "type": "USER_SCRAM_CREDENTIAL_RECORD",
        "version": 0,
        "data": {
            "name": "ann",
            "mechanism": 2,
            "salt": "c2FsdA==",
            "storedKey": "c3RvcmVk",
            "serverKey": "c2VydmVy",
            "iterations": 8192,
        },
    }


def test_a_broker_has_the_fields_of_kafkas_tools() -> None:
    record = RegisterBrokerRecord(2, TOPIC_ID, 17, (BrokerEndpoint("TLS", "host", 9093, 1),), "a")
    assert json.loads(encode_record(record))["data"] == {
        "brokerId": 2,
        "incarnationId": topic_id_text(TOPIC_ID),
        "brokerEpoch": 17,
        "endPoints": [{"name": "TLS", "host": "host", "port": 9093, "securityProtocol": 1}],
        "rack": "a",
        "fenced": False,
        "inControlledShutdown": False,
        "clusterVersion": 0,
        "leaseMs": 0,
    }


def test_the_text_of_a_credential_has_no_key() -> None:
    record = UserScramCredentialRecord("ann", ScramHash.SHA_512, b"salt", b"stored", b"server", 8192)
    for text in (repr(record), str(record), repr([record]), f"{record}"):
        assert "ann" in text
        assert "stored" not in text
        assert "server" not in text
        assert "salt" not in text


def test_the_stored_form_is_that_of_kafkas_tools() -> None:
    assert json.loads(encode_record(TopicRecord("orders", TOPIC_ID))) == {
        "type": "TOPIC_RECORD",
        "version": 0,
        "data": {"name": "orders", "topicId": topic_id_text(TOPIC_ID)},
    }


def test_a_topic_id_is_printed_as_kafka_prints_it() -> None:
    text = topic_id_text(TOPIC_ID)
    assert text == "8ZxzGdxARK6htrKytYQUGg"
    assert topic_id_from_text(text) == TOPIC_ID


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b'{"\xff":1}',
        b'{"type":"FUTURE_RECORD","version":0,"data":{}}',
        b'{"type":"TOPIC_RECORD","version":1,"data":{"name":"a","topicId":"AAAAAAAAAAAAAAAAAAAAAQ"}}',
        b'{"type":"TOPIC_RECORD","version":0,"data":{"name":"a"}}',
        b'{"type":"TOPIC_RECORD","version":0,"data":{"name":"a","topicId":"short"}}',
        b'{"type":"TOPIC_RECORD","version":0,"data":{"name":"a","topicId":7}}',
    ],
)
def test_unknown_records_are_refused(value: bytes) -> None:
    with pytest.raises(UnknownRecordError):
        decode_record(value)


@pytest.mark.parametrize("number", ["resourceType", "patternType", "operation", "permissionType"])
def test_an_access_control_entry_of_a_later_release_is_refused(number: str) -> None:
    entry = AccessControlEntryRecord(
        TOPIC_ID,
        ResourceType.TOPIC,
        "a",
        PatternType.LITERAL,
        "User:a",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    envelope = json.loads(encode_record(entry))
    assert decode_record(json.dumps(envelope).encode()) == entry
    envelope["data"][number] = 99
    with pytest.raises(UnknownRecordError):
        decode_record(json.dumps(envelope).encode())


@pytest.mark.parametrize(
    "record",
    [
        UserScramCredentialRecord("ann", ScramHash.SHA_256, b"salt", b"stored", b"", 4096),
        RemoveUserScramCredentialRecord("ann", ScramHash.SHA_512),
    ],
)
def test_a_credential_of_an_unknown_mechanism_is_refused(record: MetadataRecord) -> None:
    envelope = json.loads(encode_record(record))
    envelope["data"]["mechanism"] = 3
    with pytest.raises(UnknownRecordError):
        decode_record(json.dumps(envelope).encode())
