"""Settings of the connections between the gateways of a cluster. Source: Kafka's ReplicationConfigs and
BrokerSecurityConfigs.
"""

from __future__ import annotations

from typing import Final

from seqgate.gateway.config.setting import Section, SettingValue

LISTENER: Final = "inter.broker.listener.name"
MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
NAME_CHECK: Final = "ssl.endpoint.identification.algorithm"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The mechanisms with which a gateway can log in to another: those that take a user name and a password."""

_BETWEEN_GATEWAYS = Section("Connections between gateways")


def name_check_complaint(value: SettingValue) -> str | None:
    """Return why the setting of the name check refuses the value; None when the value is allowed."""
    return None if value in ("https", "") else "choose https, or an empty value to check no names"


INTER_BROKER_SETTINGS = (
    _BETWEEN_GATEWAYS.text(LISTENER, None)(
        "The listener at which the gateways of a cluster reach each other; unset, the first of `listeners`. "
        "All gateways must have a listener of this name. With TLS, a gateway connects with its key store, "
        "trust store and versions of this listener; its principal at the others needs the right "
        "CLUSTER_ACTION on the cluster, and DESCRIBE and READ on all topics and groups, as one of "
        "`super.users` has."
    ),
    _BETWEEN_GATEWAYS.text(MECHANISM, None, choices=MECHANISMS)(
        "The mechanism with which a gateway logs in to the others, where their listener has SASL. The user "
        "is in the JAAS line of the listener and mechanism: `listener.name.NAME.MECHANISM.sasl.jaas.config` "
        "with the options `username` and `password`."
    ),
    _BETWEEN_GATEWAYS.text(NAME_CHECK, "https", check=name_check_complaint, per_listener=True)(
        "Whether a gateway compares the certificate of another gateway with the host name in its address: "
        "`https` compares; empty does not."
    ),
)
