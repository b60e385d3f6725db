"""The configurations of one subscription of client metrics (KIP-714): CLIENT_METRICS resources of AlterConfigs.

Names, types, defaults and the range of the interval are Kafka's (ClientMetricsConfigs).
"""

from __future__ import annotations

from typing import Final

from gateway.config.setting import Setting, SettingType

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"
DEFAULT_INTERVAL_MS: Final = 300_000
"""The push interval (ms) of a subscription that sets none, and of a client without a subscription."""
SHORTEST_INTERVAL_MS: Final = 100
LONGEST_INTERVAL_MS: Final = 3_600_000

_SECTION: Final = "Configurations of client metrics"

CLIENT_METRICS_CONFIGS: Final[tuple[Setting, ...]] = (
    Setting(
        name=INTERVAL_MS,
        type=SettingType.INT,
        default=DEFAULT_INTERVAL_MS,
        dynamic=True,
        section=_SECTION,
        doc="Milliseconds between two pushes of a client, from 100 to 3600000. A client with several subscriptions pushes at the shortest "
        "of their intervals.",
    ),
    Setting(
        name=MATCH,
        type=SettingType.LIST,
        default=(),
        dynamic=True,
        section=_SECTION,
        doc="Clients to which the subscription applies: a list of `SELECTOR=EXPRESSION`, all of which must match. The selectors are "
        "`client_instance_id`, `client_id`, `client_software_name`, `client_software_version`, `client_source_address` and "
        "`client_source_port`. The expression is a regular expression of RE2 that matches the whole value. An empty list "
        "applies to every client.",
    ),
    Setting(
        name=METRICS,
        type=SettingType.LIST,
        default=(),
        dynamic=True,
        section=_SECTION,
        doc="Beginnings of the names of the metrics that clients push, such as `org.apache.kafka.producer.`. `*` is every metric; an empty "
        "list is none.",
    ),
)
"""The configurations in the order of their names."""
BY_CLIENT_METRICS_NAME: Final[dict[str, Setting]] = {
    setting.name: setting for setting in CLIENT_METRICS_CONFIGS
}
