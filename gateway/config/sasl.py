"""Settings of logins over SASL. Source: Kafka's BrokerSecurityConfigs and SaslConfigs."""

from __future__ import annotations

from functools import partial
from typing import Final

from gateway.config.jaas import jaas_complaint
from gateway.config.setting import INT_MAX, LONG_MAX, Setting, SettingType, SettingValue

ENABLED_MECHANISMS: Final = "sasl.enabled.mechanisms"
JAAS: Final = "sasl.jaas.config"
USERS_FILE: Final = "seqgate.sasl.plain.users.file"
MAX_REAUTH_MS: Final = "connections.max.reauth.ms"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""Kafka's mechanisms but Kerberos (GSSAPI)."""


def mechanisms_complaint(value: SettingValue) -> str | None:
    """Return why the setting of mechanisms refuses the value; None when the value is allowed."""
    for name in value if isinstance(value, tuple) else ():
        if name not in MECHANISMS:
            return f"{name} is no mechanism of this gateway; choose from {', '.join(MECHANISMS)}, in capitals"
    return None


_setting = partial(Setting, section="SASL logins")

SASL_SETTINGS = (
    _setting(
        name=ENABLED_MECHANISMS,
        type=SettingType.LIST,
        default=None,
        per_listener=True,
        check=mechanisms_complaint,
        doc="Mechanisms with which clients log in to listeners whose protocol is SASL_SSL or SASL_PLAINTEXT: "
        f"{', '.join(f'`{name}`' for name in MECHANISMS)}. Such a listener needs at least one.",
    ),
    _setting(
        name=JAAS,
        type=SettingType.PASSWORD,
        default=None,
        per_listener=True,
        per_mechanism=True,
        sensitive=True,
        check=jaas_complaint,
        doc="Kafka's JAAS line of a mechanism, always with the prefix `listener.name.NAME.MECHANISM.` in lower case. The options "
        '`user_NAME="PASSWORD"` of the line for `plain` are the users of PLAIN. '
        "The options `username` and `password` are the user as which this gateway logs in to other gateways; other options do nothing.",
    ),
    _setting(
        name=USERS_FILE,
        type=SettingType.STRING,
        default=None,
        per_listener=True,
        per_mechanism=True,
        doc="File with the users of PLAIN, one `NAME:PASSWORD` a line; empty lines and lines that begin with `#` are skipped. Only "
        "its owner may read the file (mode 0600). After the file is replaced, logins use its new content.",
    ),
    _setting(
        name=MAX_REAUTH_MS,
        type=SettingType.LONG,
        default=0,
        minimum=0,
        maximum=LONG_MAX,
        per_listener=True,
        per_mechanism=True,
        doc="Time after which a client must log in again on the same connection; the next request of a client that did not closes "
        "its connection. 0 asks nobody to log in again, but a bearer token limits its session in any case.",
    ),
    _setting(
        name="connection.failed.authentication.delay.ms",
        type=SettingType.INT,
        default=100,
        minimum=0,
        maximum=INT_MAX,
        doc="Time after which a client learns that its login failed, against guessing. Other connections do not wait.",
    ),
    _setting(
        name="sasl.server.max.receive.size",
        type=SettingType.INT,
        default=524288,
        minimum=1,
        maximum=INT_MAX,
        doc="Size of the largest request before the login. A connection that announces a larger one is closed.",
    ),
    _setting(
        name="seqgate.sasl.login.timeout.ms",
        type=SettingType.INT,
        default=30000,
        minimum=1,
        maximum=INT_MAX,
        doc="Time in which a client must log in, from its connection on. Kafka only has `connections.max.idle.ms` against silent clients.",
    ),
)
