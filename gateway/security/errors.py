"""Errors of keys and certificates."""

from __future__ import annotations


class StoreError(Exception):
    """A key store, a trust store or their settings can't be used. The message says why and what to do,
    without secrets.
    """


class LoginSettingsError(Exception):
    """A listener can't log clients in with its settings. The message says why and what to do, without
    secrets.
    """
