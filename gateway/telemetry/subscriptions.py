"""The subscriptions of client metrics: their configurations, and the clients that each selects.

The `match` list of a subscription selects clients (`parse_match`). An entry is `SELECTOR=EXPRESSION`; the
expression must match the whole value of the selector. Expressions are those of RE2, which match in linear
time, so lookaround, backreferences and possessive quantifiers are refused. Source: Kafka's
ClientMetricsConfigs.parseMatchingPatterns.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from seqgate.gateway.config.setting import Section, Setting
from seqgate.gateway.regular_expressions import pattern_of

# The configurations of one subscription, a CLIENT_METRICS resource of AlterConfigs. Names, types, defaults
# and the range of the interval are Kafka's (ClientMetricsConfigs).

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"
FIVE_MINUTES_MS: Final = 300_000
"""The push interval (ms) of a subscription that sets none, and of a client without a subscription."""
SHORTEST_INTERVAL_MS: Final = 100
LONGEST_INTERVAL_MS: Final = 3_600_000

_OF_ONE_SUBSCRIPTION = Section("Configurations of client metrics", dynamic=True)

CLIENT_METRICS_CONFIGS: Final[tuple[Setting, ...]] = (
    _OF_ONE_SUBSCRIPTION.whole(INTERVAL_MS, FIVE_MINUTES_MS)(
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
            patterns[selector] = pattern_of(expression).fullmatch
        except ValueError as error:
            raise InvalidMatch(
                f"Illegal client matching pattern: {entry}: the expression is not a regular expression of "
                f"RE2: {error}"
            ) from error
    return patterns


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
