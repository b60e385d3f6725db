"""Settings of delegation tokens. Source: Kafka's DelegationTokenManagerConfigs."""

from __future__ import annotations

from functools import partial
from typing import Final

from gateway.config.setting import Setting, SettingType, SettingValue, whole_number

_SECTION = "Delegation tokens"
KEY_SETTING: Final = "delegation.token.secret.key"
OLD_KEY_SETTING: Final = "delegation.token.master.key"
_HUNDRED_YEARS_MS: Final = 100 * 366 * 86_400_000


def secret_key_complaint(value: SettingValue) -> str | None:
    """Return why the setting of the key refuses the value; None when the value is allowed."""
    return None if str(value) else "the key must not be empty; leave it unset to serve no tokens"


_secret = partial(
    Setting,
    type=SettingType.PASSWORD,
    default=None,
    sensitive=True,
    check=secret_key_complaint,
    section=_SECTION,
)
_milliseconds = partial(
    Setting, type=SettingType.LONG, minimum=1, maximum=_HUNDRED_YEARS_MS, section=_SECTION
)

DELEGATION_TOKEN_SETTINGS = (
    _secret(
        name=KEY_SETTING,
        doc="The secret with which the gateway makes the passwords of delegation tokens. Unset, the gateway serves no tokens "
        "(DELEGATION_TOKEN_AUTH_DISABLED). With another key all tokens get other passwords.",
    ),
    _secret(name=OLD_KEY_SETTING, doc=f"The older name of `{KEY_SETTING}`, which wins over this one."),
    _milliseconds(
        name="delegation.token.max.lifetime.ms",
        default=7 * 86_400_000,
        doc="The longest life of a delegation token; it can't be renewed beyond it.",
    ),
    _milliseconds(
        name="delegation.token.expiry.time.ms",
        default=86_400_000,
        doc="Time after which a delegation token expires unless somebody renews it.",
    ),
    _milliseconds(
        name="delegation.token.expiry.check.interval.ms",
        default=3_600_000,
        doc="Time between two removals of expired delegation tokens. An expired token logs nobody in even before it is removed.",
    ),
    whole_number(
        _SECTION,
        "seqgate.delegation.tokens.max",
        10_000,
        "Delegation tokens that may exist. CreateDelegationToken refuses further ones with POLICY_VIOLATION.",
        dynamic=True,
    ),
)
