"""Settings of client quotas: the windows over which rates are measured, and the limits of what is remembered."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import whole_number

_SECTION = "Client quotas"
_number = partial(whole_number, _SECTION)

CLIENT_QUOTA_SETTINGS = (
    _number(
        "quota.window.num",
        11,
        "Windows over which the rates of client quotas are measured, the present one included.",
    ),
    _number("quota.window.size.seconds", 1, "Length of one window of client quotas."),
    _number(
        "controller.quota.window.num",
        11,
        "Windows whose unused share `controller_mutation_rate` lets a client save up for a burst.",
    ),
    _number("controller.quota.window.size.seconds", 1, "Length of one window of `controller_mutation_rate`."),
    _number(
        "seqgate.client.quotas.max",
        10_000,
        "Entities (users, client ids, pairs of both, addresses) that have quotas. Beyond the limit AlterClientQuotas refuses "
        "a new entity with INVALID_REQUEST.",
        dynamic=True,
    ),
    _number(
        "seqgate.client.quotas.measured.max",
        10_000,
        "Users, client ids and addresses whose use is measured for each kind of quota. One that was idle for an hour is "
        "forgotten. Beyond the limit the further ones share one measurement for each quota that applies to them.",
        dynamic=True,
    ),
)
