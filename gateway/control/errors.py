"""What a command can't do, said in one sentence."""

from __future__ import annotations


class ControlError(Exception):
    """An operation was refused or failed; the message is one sentence for the operator."""


class NotRunning(ControlError):
    """No gateway answers on the control socket of this data directory."""
