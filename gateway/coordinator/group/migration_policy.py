"""Which way a group that has members may change its protocol: the setting `group.consumer.migration.policy`."""

from __future__ import annotations

import enum


class MigrationPolicy(enum.Enum):
    """The names are Kafka's ConsumerGroupMigrationPolicy."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        """To the consumer protocol."""
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE}

    @property
    def allows_downgrade(self) -> bool:
        """To the classic protocol."""
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE}
