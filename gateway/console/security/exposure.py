"""Refuses to show the cluster to everybody: a console beyond the loopback needs logins."""

from __future__ import annotations

from gateway.admin.request import ControlError
from gateway.config.exposure import is_loopback
from gateway.console.asking.connections import WayIn
from gateway.console.console import ConsoleOptions

ALLOW: str = "--insecure"


def exposure_complaint(options: ConsoleOptions, way_in: WayIn) -> str | None:
    """Return why a console with these options must not start, and what to do; None when it may."""
    host, port = options.listen
    if options.is_insecure or is_loopback(host):
        return None
    try:
        if way_in.mechanisms():
            return None
        reason = "the listener at --bootstrap has no logins"
    except ControlError as error:
        reason = f"the console can't find out whether people must log in ({error})"
    return (
        f"a console on {host or 'every interface'}:{port} would let everybody who reaches it read and change everything: {reason}. "
        f"Listen on 127.0.0.1, use a listener with logins (docs/security.md), or give {ALLOW} where only trusted people reach the address"
    )
