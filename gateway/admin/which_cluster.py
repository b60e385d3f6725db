"""Which cluster or gateway a command asks: `--bootstrap`, SEQGATE_BOOTSTRAP, the gateway that runs on a data
directory, or the default address.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from seqgate.gateway.admin.client import ANSWER_TIMEOUT_S, ask, read_settings
from seqgate.gateway.admin.commands import stop
from seqgate.gateway.admin.remote.addresses import DEFAULT_ADDRESS, LOOPBACK, parse_addresses
from seqgate.gateway.admin.request import ControlError, NotRunning

DATA_DIRECTORY: Final = "./data"
"""The data directory that no setting names: the default of log.dirs. A test compares the two."""
BOOTSTRAP_VARIABLE: Final = "SEQGATE_BOOTSTRAP"
"""The environment variable that takes the place of --bootstrap."""


def bootstrap_of(bootstrap: str | None, data_dir: Path | None, config_file: Path | None) -> str | None:
    """Return the address of `--bootstrap`, or of the environment where no option names a gateway."""
    if bootstrap is not None or data_dir is not None or config_file is not None:
        return bootstrap
    return os.environ.get(BOOTSTRAP_VARIABLE) or None


def addresses_to_ask(
    bootstrap: str | None, config_file: Path | None, data_dir: Path | None, timeout_s: float
) -> tuple[tuple[str, int], ...]:
    """Return the addresses of `--bootstrap`, of the gateway on the data directory, or the default."""
    for name, value in (("--data-dir", data_dir), ("--config", config_file)):
        if bootstrap is not None and value is not None:
            raise stop(f"name the cluster either with --bootstrap or with {name}", code=2)
    if bootstrap is not None:
        try:
            return parse_addresses(bootstrap)
        except ValueError as error:
            raise stop(f"--bootstrap: {error}", code=2) from None
    try:
        return addresses_of_gateway(config_file, data_dir, timeout_s)
    except NotRunning as error:
        raise stop(f"{error}; start it, or name another cluster with --bootstrap") from None
    except ControlError as error:
        raise stop(str(error)) from None


def addresses_of_gateway(
    config_file: Path | None, data_dir: Path | None, timeout_s: float = ANSWER_TIMEOUT_S
) -> tuple[tuple[str, int], ...]:
    """Return the addresses of the gateway that runs on the data directory, or the default address where no
    gateway runs and no option names the directory. Raises ControlError.
    """
    from seqgate.gateway.admin.status import StatusRequest  # noqa: PLC0415 - for some commands

    try:
        status = ask(data_directory(config_file, data_dir), StatusRequest(), timeout_s=timeout_s)
        bound = next(iter(status.bound.values()))
    except NotRunning:
        if data_dir is not None or config_file is not None:
            raise
        bound = DEFAULT_ADDRESS
    return tuple((LOOPBACK.get(host, host), port) for host, port in parse_addresses(bound))


def data_directory(config_file: Path | None, data_dir: Path | None) -> Path:
    """Return the data directory of the options and environment. Raises ControlError for a wrong setting."""
    named = DATA_DIRECTORY if data_dir is None else str(data_dir).strip()
    has_settings = config_file is not None or any(
        name.startswith("SEQGATE_") and name != BOOTSTRAP_VARIABLE for name in os.environ
    )
    if not has_settings and named and "," not in named:
        return Path(named)
    return Path(read_settings(config_file, data_dir).str("log.dirs"))
