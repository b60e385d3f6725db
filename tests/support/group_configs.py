"""Sets configs of groups, as an administrator does."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.wire import Wire

GROUP_RESOURCE = 32
READ_FROM_THE_START = {"share.auto.offset.reset": "earliest"}


def set_group_configs(bootstrap: str, group_id: str, configs: Mapping[str, str]) -> None:
    """Set some configs of a group, durably."""
    rows = [{"name": name, "config_operation": 0, "value": value} for name, value in configs.items()]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group_id, "configs": rows}
    with Wire(bootstrap) as wire:
        (answer,) = wire.call("incremental_alter_configs", 1, resources=[resource]).fields["responses"]
    assert answer["error_code"] == 0, answer
