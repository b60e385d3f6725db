"""Builds the mechanism OAUTHBEARER of a listener from its settings.

Only a listener with OAUTHBEARER imports this module.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.config.oauthbearer import INSECURE_TOKENS, KEYS_URL
from gateway.config.setting import SettingValue
from gateway.security.sasl.key_reading import read_keys, shown_url
from gateway.security.sasl.key_source import KeySource, RefreshTimes
from gateway.security.sasl.oauthbearer import OAuthBearer
from gateway.security.sasl.signed_tokens import SignedTokens
from gateway.security.sasl.tokens import ClaimRules
from gateway.security.sasl.unsecured_tokens import UnsecuredTokens

logger = logging.getLogger(__name__)

_REFRESH: Final = "sasl.oauthbearer.jwks.endpoint."

Values = Callable[[str], SettingValue | None]
"""The values of settings for one listener and its mechanism, by their names."""


def oauthbearer(value: Values, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> OAuthBearer:
    """Return the mechanism of a listener, and begin to read its keys."""
    if value(INSECURE_TOKENS):
        logger.warning("tokens without a signature are accepted: every client can log in as anybody")
        return OAuthBearer(UnsecuredTokens(_unsecured_rules(value), now_ms))
    url = str(value(KEYS_URL))
    keys = KeySource(loop, partial(read_keys, url), shown_url(url), _times(value))
    keys.begin()
    return OAuthBearer(SignedTokens(keys, _signed_rules(value), now_ms))


def _unsecured_rules(value: Values) -> ClaimRules:
    return ClaimRules(
        subject_claim=str(value("sasl.oauthbearer.sub.claim.name")),
        scope_claim=str(value("sasl.oauthbearer.scope.claim.name")),
        needs_issue_time=False,
        refuses_future_issue_time=True,
    )


def _signed_rules(value: Values) -> ClaimRules:
    audiences = value("sasl.oauthbearer.expected.audience")
    return ClaimRules(
        subject_claim=str(value("sasl.oauthbearer.sub.claim.name")),
        scope_claim=str(value("sasl.oauthbearer.scope.claim.name")),
        audiences=audiences if isinstance(audiences, tuple) else (),
        issuer=str(value("sasl.oauthbearer.expected.issuer") or ""),
        skew_s=_whole(value("sasl.oauthbearer.clock.skew.seconds")),
    )


def _times(value: Values) -> RefreshTimes:
    return RefreshTimes(
        refresh_s=_whole(value(f"{_REFRESH}refresh.ms")) / 1000,
        backoff_s=_whole(value(f"{_REFRESH}retry.backoff.ms")) / 1000,
        backoff_max_s=_whole(value(f"{_REFRESH}retry.backoff.max.ms")) / 1000,
    )


def _whole(number: SettingValue | None) -> int:
    assert isinstance(number, int)
    return number
