"""Which settings of a broker can be altered, with the prefix of a listener and without."""

from __future__ import annotations

import pytest

from gateway.config import Config, load_config
from gateway.metadata.broker_configs import names_complaint

CONFIG: Config = load_config(
    overrides=[
        "listeners=PLAINTEXT://127.0.0.1:1,SECURED://127.0.0.1:2",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURED:SSL",
    ]
)
PREFIX = "listener.name.secured."
STORE = f"{PREFIX}ssl.keystore.location"


@pytest.mark.parametrize(
    ("names", "of_all_brokers", "complaint"),
    [
        (["log.retention.ms", "max.connection.creation.rate"], True, None),
        ([f"{PREFIX}max.connections", f"{PREFIX}max.connection.creation.rate"], True, None),
        ([STORE, f"{PREFIX}ssl.truststore.certificates", f"{PREFIX}ssl.key.password"], False, None),
        (
            [STORE, f"{PREFIX}max.connections"],
            True,
            f"Cannot update these configs at default cluster level, broker id must be specified: [{STORE}]",
        ),
        (
            ["ssl.truststore.type", "ssl.keystore.location"],
            True,
            (
                "These security configs can be dynamically updated only per-listener using the listener prefix: "
                "[ssl.keystore.location, ssl.truststore.type]"
            ),
        ),
        (["ssl.keystore.location", "node.id"], False, "Cannot update these configs dynamically: [node.id]"),
        (
            [f"{PREFIX}ssl.client.auth"],
            False,
            (
                f"{PREFIX}ssl.client.auth cannot be updated dynamically for an existing listener; set it in the gateway's settings and "
                "restart the gateway"
            ),
        ),
        (
            [f"{PREFIX}plain.sasl.jaas.config"],
            False,
            (
                f"{PREFIX}plain.sasl.jaas.config cannot be updated dynamically for an existing listener; set it in the gateway's "
                "settings and restart the gateway"
            ),
        ),
        (
            ["listener.name.other.max.connections"],
            False,
            "Unknown listener in listener.name.other.max.connections: the listeners are PLAINTEXT, SECURED",
        ),
        (
            ["listener.name.plaintext.ssl.keystore.location"],
            False,
            "listener.name.plaintext.ssl.keystore.location has no effect: listener PLAINTEXT speaks PLAINTEXT, without TLS",
        ),
        (
            ["listener.name.SECURED.max.connections"],
            False,
            (
                "Unknown broker config name: listener.name.SECURED.max.connections (the nearest valid name is "
                "max.connections)"
            ),
        ),
        ([f"{PREFIX}log.retention.ms"], False, f"Unknown broker config name: {PREFIX}log.retention.ms"),
    ],
)
def test_what_can_be_altered(names: list[str], of_all_brokers: bool, complaint: str | None) -> None:
    found = names_complaint(CONFIG, names, of_all_brokers=of_all_brokers)
    if complaint is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith(complaint)
