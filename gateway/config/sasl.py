"""Settings of logins over SASL. Source: Kafka's BrokerSecurityConfigs and SaslConfigs.

JAAS lines, in which Kafka's brokers name the login module of a mechanism and its options: `sasl.jaas.config`.

A line is `MODULE FLAG NAME="VALUE" …;`. Source: Kafka's JaasConfig, which reads it with Java's
StreamTokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from seqgate.gateway.config.setting import INT_MAX, LONG_MAX, Section, SettingValue, complaint_of

ENABLED_MECHANISMS: Final = "sasl.enabled.mechanisms"
JAAS: Final = "sasl.jaas.config"
USERS_FILE: Final = "seqgate.sasl.plain.users.file"
MAX_REAUTH_MS: Final = "connections.max.reauth.ms"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""Kafka's mechanisms but Kerberos (GSSAPI)."""


def _mechanisms_complaint(value: SettingValue) -> str | None:
    for name in value if isinstance(value, tuple) else ():
        if name not in MECHANISMS:
            return f"{name} is no mechanism of this gateway; choose from {', '.join(MECHANISMS)}, in capitals"
    return None


FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
USER_PREFIX: Final = "user_"
"""The beginning of the options that name PLAIN's users: `user_NAME="PASSWORD"`."""
_WORD = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s="';]+)|([=;]))""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_Word: TypeAlias = tuple[str, bool]
"""A word of a line, and whether it is a sign, which a quoted word never is."""
_EQUALS: Final = ("=", True)
_END: Final = (";", True)


class LoginModule(msgspec.Struct, frozen=True):
    """One login module: the name of its Java class without the packages, and its options."""

    name: str
    options: Mapping[str, str]

    @property
    def users(self) -> dict[str, str]:
        """The passwords of PLAIN's users, by their names."""
        return {
            option.removeprefix(USER_PREFIX): value
            for option, value in self.options.items()
            if option.startswith(USER_PREFIX)
        }


def parse_jaas(text: str) -> LoginModule:
    """Return the login module of a line.

    Raises:
        ValueError: the line is malformed; the message is the reason. The message quotes nothing of the line,
        because the line has passwords.
    """
    words = _words(text)
    if len(words) < 3 or words[-1] != _END:
        raise ValueError(
            'a JAAS line must have the form MODULE required NAME="VALUE" …; and end with a semicolon'
        )
    (module, _), (flag, _), *options = words[:-1]
    if _END in options:
        raise ValueError("a JAAS line must have one login module; remove the second one")
    if flag.lower() not in FLAGS:
        raise ValueError(f"the second word of a JAAS line must be one of {', '.join(sorted(FLAGS))}")
    names, signs, values = options[::3], options[1::3], options[2::3]
    if len(options) % 3 or any(sign != _EQUALS for sign in signs) or _EQUALS in names + values:
        raise ValueError('each option of a JAAS line must have the form NAME="VALUE"')
    pairs = zip(names, values, strict=True)
    return LoginModule(module.rpartition(".")[2], {name: value for (name, _), (value, _) in pairs})


def _words(text: str) -> list[_Word]:
    words: list[_Word] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _WORD.match(text, position)
        if found is None:
            raise ValueError("a JAAS line has a quotation mark without a closing one; add it")
        double, single, bare, sign = found.groups()
        quoted = single if double is None else double
        if quoted is not None:
            words.append((_ESCAPED.sub(r"\1", quoted), False))
        else:
            words.append((sign, True) if sign else (bare, False))
        position = found.end()
    return words


_SASL = Section("SASL logins")

SASL_SETTINGS = (
    _SASL.items(ENABLED_MECHANISMS, None, check=_mechanisms_complaint, per_listener=True)(
        "Mechanisms with which clients log in to listeners whose protocol is SASL_SSL or SASL_PLAINTEXT: "
        f"{', '.join(f'`{name}`' for name in MECHANISMS)}. Such a listener needs at least one."
    ),
    _SASL.secret(JAAS, None, check=complaint_of(parse_jaas), per_listener=True, per_mechanism=True)(
        "Kafka's JAAS line of a mechanism, always with the prefix `listener.name.NAME.MECHANISM.` in lower "
        'case. The options `user_NAME="PASSWORD"` of the line for `plain` are the users of PLAIN. The '
        "options `username` and `password` are the user as which this gateway logs in to other gateways; "
        "other options do nothing."
    ),
    _SASL.text(USERS_FILE, None, per_listener=True, per_mechanism=True)(
        "File with the users of PLAIN, one `NAME:PASSWORD` a line; empty lines and lines that begin with "
        "`#` are skipped. Only its owner may read the file (mode 0600). After the file is replaced, logins "
        "use its new content."
    ),
    _SASL.long(MAX_REAUTH_MS, 0, minimum=0, maximum=LONG_MAX, per_listener=True, per_mechanism=True)(
        "Time after which a client must log in again on the same connection; the next request of a client "
        "that did not closes its connection. 0 asks nobody to log in again, but a bearer token limits its "
        "session in any case."
    ),
    _SASL.whole("connection.failed.authentication.delay.ms", 100, minimum=0, maximum=INT_MAX)(
        "Time after which a client learns that its login failed, against guessing. Other connections do not "
        "wait."
    ),
    _SASL.whole("sasl.server.max.receive.size", 524288, minimum=1, maximum=INT_MAX)(
        "Size of the largest request before the login. A connection that announces a larger one is closed."
    ),
    _SASL.whole("seqgate.sasl.login.timeout.ms", 30000, minimum=1, maximum=INT_MAX)(
        "Time in which a client must log in, from its connection on. Kafka only has "
        "`connections.max.idle.ms` against silent clients."
    ),
)
