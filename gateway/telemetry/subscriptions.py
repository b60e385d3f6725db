"""The subscriptions of client metrics: which clients push which metrics, and how often.

A client gets the metrics of all subscriptions that match it, at the shortest of their intervals; a client
that none matches gets no metrics and the default interval. Source: Kafka's
ClientMetricsManager.createClientInstance. Kafka never sends a client an interval above its default of five
minutes; Seqgate sends the interval that was configured.

The `match` list of a subscription selects clients (`parse_match`). An entry is `SELECTOR=EXPRESSION`; the
expression must match the whole value of the selector. Expressions are those of RE2, which match in linear
time, so lookaround, backreferences and possessive quantifiers are refused. Source: Kafka's
ClientMetricsConfigs.parseMatchingPatterns.

`Instances` has the clients that ask for subscriptions and push metrics, and tells when each may do so again.
A client may ask once in its push interval, which counts from its last question and from its last push. It may
push once in its push interval, which counts from its last push. So a push right after the client has asked is
never too early. A terminating push comes at any time, and is the last. A client whose push was refused for
its subscription id or its compression may ask again at once. Source: Kafka's ClientMetricsManager,
ClientMetricsInstance.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.config.setting import InvalidValueError, Section, Setting
from seqgate.seq_validator.checksum import crc32c

# The configurations of one subscription, a CLIENT_METRICS resource of AlterConfigs. Names, types, defaults
# and the range of the interval are Kafka's (ClientMetricsConfigs).

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"
DEFAULT_INTERVAL_MS: Final = 300_000
"""The push interval (ms) of a subscription that sets none, and of a client without a subscription."""
SHORTEST_INTERVAL_MS: Final = 100
LONGEST_INTERVAL_MS: Final = 3_600_000

_OF_ONE_SUBSCRIPTION = Section("Configurations of client metrics", dynamic=True)

CLIENT_METRICS_CONFIGS: Final[tuple[Setting, ...]] = (
    _OF_ONE_SUBSCRIPTION.whole(INTERVAL_MS, DEFAULT_INTERVAL_MS)(
        "Milliseconds between two pushes of a client, from 100 to 3600000. A client with several "
        "subscriptions pushes at the shortest of their intervals."
    ),
    _OF_ONE_SUBSCRIPTION.items(MATCH, ())(
        "Clients to which the subscription applies: a list of `SELECTOR=EXPRESSION`, all of which must "
        "match. The selectors are `client_instance_id`, `client_id`, `client_software_name`, "
        "`client_software_version`, `client_source_address` and `client_source_port`. The expression is a "
        "regular expression of RE2 that matches the whole value. An empty list applies to every client."
    ),
    _OF_ONE_SUBSCRIPTION.items(METRICS, ())(
        "Beginnings of the names of the metrics that clients push, such as `org.apache.kafka.producer.`. "
        "`*` is every metric; an empty list is none."
    ),
)
"""The configurations in the order of their names."""
BY_CLIENT_METRICS_NAME: Final[dict[str, Setting]] = {
    setting.name: setting for setting in CLIENT_METRICS_CONFIGS
}

ALL_METRICS: Final = "*"
_SIGN: Final = 1 << 31


class Subscription(msgspec.Struct, frozen=True):
    """Name prefixes of metrics, the interval of pushes (ms), and the clients that are selected."""

    metrics: frozenset[str]
    interval_ms: int
    patterns: Patterns


class ClientSubscription(msgspec.Struct, frozen=True):
    """The metrics that one client must push. `subscription_id` changes when the other two change."""

    subscription_id: int
    requested_metrics: tuple[str, ...]
    push_interval_ms: int


def subscription_of(values: Mapping[str, str]) -> Subscription | None:
    """Return the subscription with these configurations; None when this version refuses a stored value."""
    try:
        interval_ms = _number(values)
        patterns = parse_match(_items(MATCH, values))
        return Subscription(frozenset(_items(METRICS, values)), interval_ms, patterns)
    except (InvalidMatch, InvalidValueError):
        return None


def _items(name: str, values: Mapping[str, str]) -> tuple[str, ...]:
    items = BY_CLIENT_METRICS_NAME[name].parse(values.get(name, ""))
    return items if isinstance(items, tuple) else ()


def _number(values: Mapping[str, str]) -> int:
    text = values.get(INTERVAL_MS)
    number = DEFAULT_INTERVAL_MS if text is None else BY_CLIENT_METRICS_NAME[INTERVAL_MS].parse(text)
    assert isinstance(number, int)
    return min(max(number, SHORTEST_INTERVAL_MS), LONGEST_INTERVAL_MS)


class Subscriptions:
    """All subscriptions by name. `version` grows with each change."""

    def __init__(self) -> None:
        self.version = 0
        self._by_name: dict[str, Subscription] = {}

    def set(self, name: str, values: Mapping[str, str]) -> None:
        """Replace a subscription; one without values is removed."""
        self.version += 1
        subscription = subscription_of(values) if values else None
        if subscription is None:
            self._by_name.pop(name, None)
        else:
            self._by_name[name] = subscription

    def choose(self, client: ClientDescription) -> ClientSubscription:
        matching = [known for known in self._by_name.values() if is_match(known.patterns, client)]
        metrics: frozenset[str] = frozenset().union(*(known.metrics for known in matching))
        requested = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        interval_ms = min((known.interval_ms for known in matching), default=DEFAULT_INTERVAL_MS)
        return ClientSubscription(_subscription_id(requested, interval_ms, client), requested, interval_ms)


def _subscription_id(requested: tuple[str, ...], interval_ms: int, client: ClientDescription) -> int:
    """Return the CRC-32C of choice and instance id as int32, the same on all gateways of a cluster."""
    content = "\0".join((*requested, str(interval_ms))).encode()
    checksum = crc32c(client.client_instance_id.bytes + content)
    return (checksum ^ _SIGN) - _SIGN


# The description of a client: the properties by which subscriptions select clients, and the labels of the
# pushed metrics.

CLIENT_LABELS: Final = ("client_id", "client_instance_id", "client_software_name", "client_software_version")
"""The labels of each series that a client pushes. The address and port are no labels."""


class ClientDescription(msgspec.Struct, frozen=True):
    """A client as it was at its first telemetry request. Source: Kafka's ClientMetricsInstanceMetadata."""

    client_instance_id: uuid.UUID
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: int

    def selected_values(self) -> dict[str, str]:
        """Return the values that selectors compare, by selector."""
        return {
            name: instance_id_text(value) if isinstance(value, uuid.UUID) else str(value)
            for name, value in msgspec.structs.asdict(self).items()
        }

    def labels(self) -> dict[str, str]:
        values = self.selected_values()
        return {name: values[name] for name in CLIENT_LABELS}


def instance_id_text(client_instance_id: uuid.UUID) -> str:
    """Return an instance id as Kafka's clients show it: URL-safe Base64 without padding, 22 characters."""
    return urlsafe_b64encode(client_instance_id.bytes).decode().rstrip("=")


SELECTORS: Final = frozenset(ClientDescription.__struct_fields__)
MAX_EXPRESSION_CHARACTERS: Final = 1_000

Patterns = Mapping[str, Callable[[str], object]]
"""The whole-value matcher of each selector. An empty mapping selects every client."""


class InvalidMatch(ValueError):
    """An entry of a `match` list is malformed; the message names the entry and says why."""


def parse_match(entries: Iterable[str]) -> Patterns:
    """Return the matchers of `match`; as in Kafka, a selector's last entry counts. Raises InvalidMatch."""
    import re2  # noqa: PLC0415 - slow to import, and few subscriptions have a match

    options = re2.Options()
    options.log_errors = False
    patterns: dict[str, Callable[[str], object]] = {}
    for entry in entries:
        selector, expression = _parts(entry)
        if selector not in SELECTORS:
            raise InvalidMatch(
                f"Illegal client matching pattern: {entry}: the selector must be one of "
                f"{', '.join(sorted(SELECTORS))}"
            )
        if len(expression) > MAX_EXPRESSION_CHARACTERS:
            raise InvalidMatch(
                f"Illegal client matching pattern: {entry[:100]}: the expression has {len(expression)} "
                f"characters; at most {MAX_EXPRESSION_CHARACTERS} are allowed"
            )
        try:
            patterns[selector] = re2.compile(expression, options).fullmatch
        except re2.error as error:
            raise InvalidMatch(
                f"Illegal client matching pattern: {entry}: the expression is not a regular expression of "
                f"RE2: {_reason(error)}"
            ) from error
    return patterns


def _reason(error: Exception) -> str:
    """Return the text of an error of RE2, which comes as bytes."""
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _parts(entry: str) -> tuple[str, str]:
    """Return selector and expression, which has no `=` but any number behind it, as in Kafka."""
    selector, separator, expression = entry.rstrip("=").partition("=")
    if not separator or "=" in expression:
        raise InvalidMatch(
            f"Illegal client matching pattern: {entry}: write SELECTOR=EXPRESSION, with one `=`"
        )
    return selector.strip(), expression.strip()


def is_match(patterns: Patterns, client: ClientDescription) -> bool:
    if not patterns:
        return True
    values = client.selected_values()
    return all(matches(values[selector]) for selector, matches in patterns.items())


SHORTEST_LIFETIME_MS: Final = 60_000
LIFETIME_INTERVALS: Final = 3
HIGHEST_COMPRESSION_TYPE: Final = 4
_NEVER: Final = float("-inf")
_ASK_AGAIN: Final = frozenset({ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type})
"""The errors after which a client asks for its subscription at once."""


def lifetime_ms(choice: ClientSubscription) -> int:
    """Return the time (ms) without a request after which a client and its series are forgotten."""
    return max(SHORTEST_LIFETIME_MS, LIFETIME_INTERVALS * choice.push_interval_ms)


class ClientInstance(msgspec.Struct, eq=False):
    """One client: its chosen subscription and its last requests. Times are ms of one clock."""

    description: ClientDescription
    choice: ClientSubscription
    version: int
    """The version of the subscriptions from which `choice` was made."""
    expires_ms: float = 0.0
    is_terminating: bool = False
    _last_asked_ms: float = _NEVER
    _last_pushed_ms: float = _NEVER
    _last_error: ErrorCode = ErrorCode.none

    def ask(self, now_ms: float) -> ErrorCode:
        """Judge a request for the subscription: no error, or THROTTLING_QUOTA_EXCEEDED."""
        if now_ms - max(self._last_asked_ms, self._last_pushed_ms) >= self.choice.push_interval_ms:
            self._last_asked_ms = now_ms
        elif self._last_error not in _ASK_AGAIN:
            return ErrorCode.throttling_quota_exceeded
        self._last_error = ErrorCode.none
        return ErrorCode.none

    def push(
        self,
        subscription_id: int,
        compression_type: int,
        metrics_bytes: int,
        now_ms: float,
        *,
        is_terminating: bool,
        max_bytes: int,
    ) -> ErrorCode:
        """Judge a push before its metrics (their size as they arrived) are decoded; return its error."""
        error = ErrorCode.none
        is_due = now_ms - self._last_pushed_ms >= self.choice.push_interval_ms
        if self.is_terminating:
            error = ErrorCode.invalid_request
        elif not is_due and not is_terminating:
            error = ErrorCode.throttling_quota_exceeded
        else:
            if is_due:
                self._last_pushed_ms = now_ms
            if subscription_id != self.choice.subscription_id:
                error = ErrorCode.unknown_subscription_id
            elif not 0 <= compression_type <= HIGHEST_COMPRESSION_TYPE:
                error = ErrorCode.unsupported_compression_type
            elif metrics_bytes > max_bytes:
                error = ErrorCode.telemetry_too_large
        # Kafka, too, takes over the flag of a refused push.
        self.is_terminating = is_terminating
        self._last_error = error
        return error

    def refuse_content(self, error: ErrorCode) -> None:
        """Note the error that refuses the metrics of the last push."""
        self._last_error = error


class Instances:
    """The known clients by client instance id, the least recently active first."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[uuid.UUID, ClientInstance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, client_instance_id: uuid.UUID) -> bool:
        return client_instance_id in self._by_id

    def meet(
        self, description: ClientDescription, subscriptions: Subscriptions, now_ms: float, most: int
    ) -> ClientInstance:
        """Return the client, and restart its lifetime; beyond `most` the least recent ones are forgotten.
        When the subscriptions changed, a client begins anew, but keeps the description of its first request.
        """
        client_instance_id = description.client_instance_id
        known = self._by_id.get(client_instance_id)
        if known is None or known.version < subscriptions.version:
            described = description if known is None else known.description
            known = ClientInstance(described, subscriptions.choose(described), subscriptions.version)
            self._by_id[client_instance_id] = known
        known.expires_ms = now_ms + lifetime_ms(known.choice)
        self._by_id.move_to_end(client_instance_id)
        while len(self._by_id) > most:
            self._by_id.popitem(last=False)
        return known

    def drop(self, client_instance_id: uuid.UUID) -> None:
        """Forget a client, whose connection has closed."""
        self._by_id.pop(client_instance_id, None)

    def expire(self, now_ms: float) -> None:
        for client_instance_id in [key for key, known in self._by_id.items() if known.expires_ms <= now_ms]:
            del self._by_id[client_instance_id]
