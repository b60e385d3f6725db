"""Loads the settings, and refuses those with which a gateway must not start. Flags come before the
environment, the environment before the file, the file before defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from seqgate.core import PURE
from seqgate.gateway.config.cluster import LISTENER, MECHANISM, MECHANISMS
from seqgate.gateway.config.config import Config, unknown_setting
from seqgate.gateway.config.listeners import Listener, is_loopback
from seqgate.gateway.config.oauthbearer import INSECURE_TOKENS, KEYS_URL, token_settings_complaint
from seqgate.gateway.config.sasl import ENABLED_MECHANISMS, JAAS, USERS_FILE, parse_jaas
from seqgate.gateway.config.setting import (
    ConfigError,
    EmptyItemError,
    InvalidValueError,
    RefusedValueError,
    SettingType,
    SettingValue,
    broker_conflict,
)
from seqgate.gateway.config.table import BY_ENVIRONMENT_NAME, listener_of, nearest, setting_named

ENVIRONMENT_PREFIX = "SEQGATE_"
FILE_VARIABLE = "SEQGATE_CONFIG"
"""The environment variable that names the settings file. A flag takes precedence."""
OTHER_PREFIXES = ("SEQGATE_SPARK_", "SEQGATE_TEST_", "SEQGATE_KILL_", "SEQGATE_BOOTSTRAP")
"""The prefixes of environment variables that are no settings: those of spark_kafka_compat and of the tests.
"""
OTHER_VARIABLES = (PURE, "SEQGATE_COMPILE")
"""The other variables that are no settings: they choose the core, here and when it is installed."""

_USER_OF_URL = re.compile(r"//[^/\s]*@")
"""The user and the password in a URL."""
_EVERY_INTERFACE = ("", "0.0.0.0", "::")  # noqa: S104 - refused as an address, never bound


def load_config(
    file: Path | None = None, environment: Mapping[str, str] | None = None, overrides: Iterable[str] = ()
) -> Config:
    """Return the settings of a gateway.

    `file` is a TOML file; without `file`, the variable SEQGATE_CONFIG of `environment` names the file.
    `environment` holds variables such as `SEQGATE_LOG_SEGMENT_BYTES`. `overrides` are texts `NAME=VALUE`; the
    last text of a name counts. Precedence: override, environment, file, default.

    Raises:
        ConfigError: a setting is unknown or its value is not allowed, or the file can't be read.
    """
    static: dict[str, SettingValue] = {}
    environment = environment or {}
    if file is None and environment.get(FILE_VARIABLE):
        file = Path(environment[FILE_VARIABLE])
    if file is not None:
        for name, text in _file_values(file):
            static[name] = _parse(name, text, f"in {file}")
    for variable, text in sorted(environment.items()):
        if has_settings(variable) and variable != FILE_VARIABLE:
            name = _name_of(variable)
            static[name] = _parse(name, text, f"from {variable}")
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals:
            # Leave the rest of the flag out of the message: after a name with a wrong sign it may hold a
            # secret.
            begin = re.match(r"[\w.-]*", override)
            shown = begin[0] if begin else ""
            raise ConfigError(f"The flag that begins with {shown!r} must have the form NAME=VALUE.")
        static[name.strip()] = _parse(name.strip(), text, "given as a flag")
    _check_together(static)
    return Config(static)


def has_settings(variable: str) -> bool:
    """Return whether an environment variable is a setting, or names the file of settings."""
    return (
        variable.startswith(ENVIRONMENT_PREFIX)
        and variable not in OTHER_VARIABLES
        and not variable.startswith(OTHER_PREFIXES)
    )


def _name_of(variable: str) -> str:
    setting = BY_ENVIRONMENT_NAME.get(variable)
    if setting is None:
        near = nearest(variable, BY_ENVIRONMENT_NAME)
        hint = f"; the nearest valid name is {near}" if near else ""
        raise ConfigError(f"Unknown setting {variable} (in the environment){hint}.")
    return setting.name


def _parse(name: str, text: str, origin: str) -> SettingValue:
    setting = setting_named(name)
    if setting is None:
        raise unknown_setting(name, origin)
    try:
        return setting.parse(text)
    except InvalidValueError as error:
        shown = "***" if setting.sensitive else repr(_USER_OF_URL.sub("//***@", text))
        says_enough = isinstance(error, RefusedValueError | EmptyItemError)
        why = f": {error}" if says_enough else f"; allowed: {setting.allowed()}"
        raise ConfigError(f"Setting {name} can't be {shown} ({origin}){why}.") from None


def _file_values(file: Path) -> Iterator[tuple[str, str]]:
    import tomllib  # noqa: PLC0415 - few gateways have a settings file

    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"The settings file {file} can't be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The settings file {file} is not valid TOML: {error} (a name with dots can be quoted)."
        ) from None
    yield from _flatten("", document)


def _flatten(prefix: str, table: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flatten(f"{name}.", value)
        elif isinstance(value, bool):
            yield name, "true" if value else "false"
        elif isinstance(value, list):
            setting = setting_named(name)
            if setting is not None and setting.type is not SettingType.LIST:
                raise ConfigError(
                    f"Setting {name} in the settings file can't be an array; write its value as one text."
                )
            yield name, ",".join(str(item) for item in value)
        else:
            yield name, str(value)


def _check_together(static: Mapping[str, SettingValue]) -> None:
    config = Config(static)
    if config.int("log.retention.ms") == 0:
        raise ConfigError("Setting log.retention.ms can't be 0; allowed: -1 or a whole number, at least 1.")
    conflict = broker_conflict(lambda name: config[name])
    if conflict:
        raise ConfigError(f"The settings contradict each other: {conflict.rstrip('.')}.")
    names = {listener.name for listener in config.listeners}
    for name in config.names_with_prefix:
        if listener_of(name) not in names:
            raise ConfigError(
                f"Setting {name} is for listener {listener_of(name)}, which is not in listeners; "
                f"allowed: {', '.join(sorted(names))}."
            )
    for name in names:
        try:
            config.protocol_of(name)
        except ValueError as error:
            raise ConfigError(f"Setting listeners is refused: {error}.") from None
    unable = login_complaint(config)
    if unable:
        raise ConfigError(f"Clients can't log in: {unable}.")
    unable = inter_broker_complaint(config)
    if unable:
        raise ConfigError(f"Gateways can't reach each other: {unable}.")
    for advertised in config.advertised_listeners:
        if advertised.name not in names:
            raise ConfigError(
                f"Setting advertised.listeners names {advertised.name}, which is not in listeners; "
                f"allowed: {', '.join(sorted(names))}."
            )
        if advertised.host in _EVERY_INTERFACE:
            raise ConfigError(
                "Setting advertised.listeners can't give clients the address "
                f"{advertised.host or 'without a host'}; allowed: an address that clients can connect to."
            )


# Checks that the listeners with SASL have all settings that they need to log clients in.


def login_complaint(config: Config) -> str | None:
    """Return why a gateway with these settings can't log clients in, and what to do; None when it can."""
    if config[JAAS] is not None:
        return (
            f"{JAAS} must name a listener and a mechanism; set listener.name.NAME.plain.{JAAS}, in lower case"
        )
    for listener in config.listeners:
        if config.protocol_of(listener.name).has_logins:
            complaint = _listener_complaint(config, listener.name)
            if complaint:
                return complaint
    return None


def enabled_mechanisms(config: Config, listener_name: str) -> tuple[str, ...]:
    value = config.of_listener(listener_name, ENABLED_MECHANISMS)
    return tuple(dict.fromkeys(value)) if isinstance(value, tuple) else ()


def _listener_complaint(config: Config, name: str) -> str | None:
    mechanisms = enabled_mechanisms(config, name)
    prefix = f"listener.name.{name.lower()}."
    if not mechanisms:
        return (
            f"listener {name} has no mechanism to log in with; "
            f"set {prefix}{ENABLED_MECHANISMS}, for example to PLAIN"
        )
    if "OAUTHBEARER" in mechanisms:
        has_keys, is_insecure = (
            bool(config.of_mechanism(name, "OAUTHBEARER", setting)) for setting in (KEYS_URL, INSECURE_TOKENS)
        )
        complaint = token_settings_complaint(has_keys, is_insecure)
        if complaint:
            return f"on listener {name} {complaint}"
    if "PLAIN" not in mechanisms:
        return None
    users = config.of_mechanism(name, "PLAIN", USERS_FILE), config.of_mechanism(name, "PLAIN", JAAS)
    if not any(users):
        return (
            f"PLAIN on listener {name} has no users; set {prefix}plain.{USERS_FILE} or {prefix}plain.{JAAS}"
        )
    return None


# Which listener gateways reach each other at, and as which user they log in there.


def inter_broker_listener(config: Config) -> str:
    """Return the name of the listener at which gateways reach each other."""
    given = config.optional_str(LISTENER)
    return config.listeners[0].name if given is None else given.upper()


def peer_login(config: Config, listener_name: str) -> tuple[str, str]:
    """Return the user name and password for logins to other gateways. Raises ValueError with the reason."""
    mechanism = config.optional_str(MECHANISM)
    if mechanism is None:
        raise ValueError(
            f"listener {listener_name} has logins; set {MECHANISM} to one of {', '.join(MECHANISMS)}"
        )
    line = config.of_mechanism(listener_name, mechanism, JAAS)
    options = parse_jaas(str(line)).options if line else {}
    username, password = options.get("username"), options.get("password")
    if not (username and password):
        setting = f"listener.name.{listener_name.lower()}.{mechanism.lower()}.{JAAS}"
        raise ValueError(
            f"{setting} must have username and password, with which gateways log in to each other"
        )
    return username, password


def missing_login(config: Config) -> str | None:
    """Return why this gateway could not log in to another; None when it could, or when it is alone."""
    name = inter_broker_listener(config)
    if not config.protocol_of(name).has_logins:
        return None
    try:
        peer_login(config, name)
    except ValueError as error:
        return str(error)
    return None


def inter_broker_complaint(config: Config) -> str | None:
    """Return why gateways can't connect to each other as set; None when they can, or nothing is set."""
    name = inter_broker_listener(config)
    if name not in {listener.name for listener in config.listeners}:
        return f"{LISTENER} is {name}, which is not in listeners"
    return None if config.optional_str(MECHANISM) is None else missing_login(config)


# Finds the listeners that let everybody in from other machines: listeners without authentication, on an
# address other than the loopback.

ALLOW_INSECURE_LISTENERS: Final = "seqgate.allow.insecure.listeners"


def exposure_complaint(config: Config) -> str | None:
    """Return why a gateway with these settings must not start, and what to do; None when it may."""
    if config.bool(ALLOW_INSECURE_LISTENERS):
        return None
    for listener in config.listeners:
        if is_exposed(config, listener):
            return (
                f"listener {listener.name} on {_shown(listener)} would let everybody who reaches it read, "
                f"write and delete everything: {_weakness(config, listener.name)}. Listen on 127.0.0.1, give "
                f"the listener authentication (`seqgate help security`), or set {ALLOW_INSECURE_LISTENERS}="
                "true where only trusted clients reach the address"
            )
    return None


def is_exposed(config: Config, listener: Listener) -> bool:
    """Return whether clients on other machines reach the listener and need not say who they are."""
    return not is_loopback(listener.host) and _weakness(config, listener.name) is not None


def _weakness(config: Config, listener_name: str) -> str | None:
    """Return why clients of a listener need not say who they are; None when they must."""
    protocol = config.protocol_of(listener_name)
    if protocol.has_logins:
        takes_any_token = "OAUTHBEARER" in enabled_mechanisms(config, listener_name) and config.of_mechanism(
            listener_name, "OAUTHBEARER", INSECURE_TOKENS
        )
        return f"{INSECURE_TOKENS} is true" if takes_any_token else None
    if not protocol.has_tls:
        return f"{protocol.value} has no authentication"
    client_auth = config.of_listener(listener_name, "ssl.client.auth")
    return None if client_auth == "required" else f"ssl.client.auth is {client_auth}, not required"


def _shown(listener: Listener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{host}:{listener.port}" if host else f"every interface (port {listener.port})"
