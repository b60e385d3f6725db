"""`seqgate serve`: its options, its run and what it prints, without what other commands import."""

from __future__ import annotations

import gc
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from seqgate.gateway.admin.commands import command, flag, option
from seqgate.gateway.config import Config, ConfigError, load_config
from seqgate.gateway.config.cluster import address_complaint
from seqgate.gateway.config.listeners import address_complaint as console_complaint
from seqgate.gateway.config.listeners import parse_listener
from seqgate.gateway.config.metrics import METRICS_LISTENER

if TYPE_CHECKING:
    from seqgate.gateway.running import Announce, Announcement

USAGE_ERROR: Final = 2
_ONE_PROCESS: Final = (
    "--test-control controls one process with its own data: leave --cluster and --workers out, and the "
    "settings seqgate.cluster and seqgate.workers"
)
_OTHER_DIRECTORY: Final = (
    "--test-control empties its data directory: name the directory with --data-dir, or leave log.dirs out of "
    "the environment (SEQGATE_LOG_DIRS) and the settings file for a temporary one"
)
_NO_CONSOLE: Final = (
    "--console shows one process; with --workers, or seqgate.workers, start "
    "`seqgate console --bootstrap HOST:PORT --metrics URL` beside the gateway"
)


@command
def serve(
    listen: list[str] | None = option(
        "--listen",
        "HOST:PORT",
        "The address to listen on, also as NAME://HOST:PORT; may be repeated. [default: 127.0.0.1:9092]",
    ),
    data_dir: Path | None = option(
        "--data-dir", "DIRECTORY", "The data directory (log.dirs). [default: ./data]", readable=False
    ),
    cluster: str | None = option(
        "--cluster",
        "ADDRESS",
        "The bucket, or the directory, in which records are durable: s3://BUCKET/PREFIX or "
        "file:///DIRECTORY.",
    ),
    workers: int | None = option(
        "--workers",
        "N",
        "Serve the data directory, or the bucket, with N processes, each a broker on the next port. "
        "[default: 1]",
        min=1,
    ),
    settings: list[str] | None = option(
        "--set", "NAME=VALUE", "A setting (`seqgate help configuration`); may be repeated."
    ),
    config_file: Path | None = option(
        "--config", "FILE", "A TOML file with settings.", exists=True, dir_okay=False
    ),
    guide: bool = flag("--guide", "Also print a first command to try."),
    with_console: bool = flag(
        "--console", "Also run the console beside the gateway, on 127.0.0.1:8080 if that is free."
    ),
    console_listen: str | None = option(
        "--console-listen", "HOST:PORT", "Run the console beside the gateway, on this address."
    ),
    test_control: str | None = option(
        "--test-control",
        "HOST:PORT",
        "Let programs on this machine order faults and move the clock (`seqgate help testing`). For tests "
        "only.",
    ),
    exit_with: int | None = option(
        "--exit-with",
        "PID",
        "With --test-control: stop when the process with this id, that of the test, has ended, however "
        "it ended.",
        min=1,
    ),
) -> None:
    """Run the gateway until Ctrl-C or SIGTERM. Print one line when the gateway answers, with --test-control
    another for that.

    Exits with 2 for options that are wrong or do not go together: --test-control with --console-listen, with
    several workers or a bucket (as options or settings), or with a data directory that the environment or the
    file names, --console with several workers, --exit-with without --test-control. Exits with 1 when the
    gateway can't start or ends by itself: a wrong setting, a missing package, a port that is taken, a data
    directory that another gateway uses or that a later release wrote.
    """
    code = run_with(
        Options(
            listen or (),
            data_dir,
            settings or (),
            config_file,
            guide,
            with_console or console_listen is not None,
            console_listen,
            cluster,
            workers,
            test_control,
            exit_with,
        )
    )
    if code:
        raise SystemExit(code)


class Options(NamedTuple):
    listen: Sequence[str] = ()
    data_dir: Path | None = None
    settings: Sequence[str] = ()
    config_file: Path | None = None
    guide: bool = False
    console: bool = False
    console_listen: str | None = None
    cluster: str | None = None
    workers: int | None = None
    test_control: str | None = None
    exit_with: int | None = None


class _Refused(Exception):
    """An option or a setting that `serve` refuses: the sentence for the person, and the exit code."""

    def __init__(self, sentence: str, code: int = 1) -> None:
        super().__init__(sentence)
        self.code = code


def run_with(options: Options) -> int:
    """Run the gateway until Ctrl-C or SIGTERM; return the exit code. An error is one sentence on stderr."""
    # Collect no garbage during the imports: modules stay anyway, and it would take a sixth of the start.
    gc.disable()
    # a wrong option is reported before the slow imports
    from seqgate.gateway.admin.restart.live import Passed  # noqa: PLC0415
    from seqgate.gateway.backends.backend import Ended, StartFailed  # noqa: PLC0415
    from seqgate.gateway.running import run  # noqa: PLC0415

    passed = Passed.from_environment(os.environ)
    told: Announce = partial(announce, guide=options.guide)
    if passed.restart:  # nobody may read the output any more, so only the log says that clients can connect
        told = lambda ready: passed.log(ready.pids)  # noqa: E731 - of one line
    try:
        config = _config(options)
        if passed.is_check:
            from seqgate.gateway.start_check import check_start  # noqa: PLC0415 - only before a restart

            check_start(config, passed, console=options.console)
        elif config.int("seqgate.workers") > 1:
            from seqgate.gateway.running_workers import run_workers  # noqa: PLC0415 - only with workers

            run_workers(config, told, passed=passed)
        elif options.test_control is not None:
            from seqgate.gateway.testing.control.serving import serve_under_test  # noqa: PLC0415 - seldom

            serve_under_test(
                config, options.test_control, told, console=options.console, exit_with=options.exit_with
            )
        else:
            run(config, told, passed=passed, console=options.console, console_listen=options.console_listen)
    except (_Refused, StartFailed, Ended) as error:
        print(f"seqgate: {error}", file=sys.stderr)
        return error.code if isinstance(error, _Refused) else 1
    return 0


def announce(ready: Announcement, *, guide: bool) -> None:
    """Print the line that says that clients can connect, and with `guide` what to try."""
    tells = "" if set(ready.told) == set(ready.bound) else f", tells clients {', '.join(ready.told)}"
    place = f"data in {ready.data}, pid {os.getpid()}{ready.pids}"
    print(f"seqgate ready on {', '.join(ready.bound)}{tells} ({place})", flush=True)
    if not guide:
        return
    address, console = ready.told[0], ready.console
    print(f"  any Kafka client: bootstrap.servers={address}")
    if console is not None and not console.listen.endswith(":0"):
        taken = f" ({console.taken} is taken)" if console.taken else ""
        print(f"  console, once it says that it is ready: http://{console.listen}{taken}")
    print("  try, in another terminal:")
    command = command_name()
    print(f"    echo hello | {command} produce greetings --create --bootstrap {address}")
    print(f"    {command} consume greetings --follow --bootstrap {address}")
    print("  Ctrl-C stops it.", flush=True)


def command_name() -> str:
    """Return how this command was started, as a person in the same directory can type it."""
    script = Path(sys.argv[0])
    if script.name != "seqgate":
        return f"{shlex.quote(sys.executable)} -m seqgate"
    found = shutil.which("seqgate")
    is_found = found is not None and script.exists() and script.samefile(found)
    return "seqgate" if is_found else shlex.quote(str(script))


def _config(options: Options) -> Config:
    """Return the settings from file, environment and flags. Raises _Refused."""
    overrides = list(options.settings)
    if options.test_control is not None:
        overrides = [*_under_test(options.test_control), *overrides]
    elif options.exit_with is not None:
        raise _Refused("--exit-with is for tests: it needs --test-control", USAGE_ERROR)
    if options.data_dir is not None:
        overrides.append(f"log.dirs={options.data_dir}")
    if options.cluster is not None:
        reason = address_complaint(options.cluster)
        if reason is not None:
            raise _Refused(f"--cluster {options.cluster}: {reason}", USAGE_ERROR)
        overrides.append(f"seqgate.cluster={options.cluster}")
    if options.workers is not None:
        overrides.append(f"seqgate.workers={options.workers}")
    if options.console_listen is not None:
        _check_console_address(options)
    if options.listen:
        overrides.append(f"listeners={','.join(_listeners(options.listen))}")
    try:
        config = load_config(options.config_file, os.environ, overrides)
    except ConfigError as error:
        raise _Refused(str(error)) from None
    _check_processes(options, config)
    if options.test_control is not None and config.is_set("log.dirs") and not _names_directory(overrides):
        raise _Refused(_OTHER_DIRECTORY, USAGE_ERROR)
    if options.console and config.optional_str(METRICS_LISTENER) is None:
        # The console reads what only this listener tells, and gets the port that the system chooses.
        config.choose(METRICS_LISTENER, "127.0.0.1:0")
    return config


def _check_processes(options: Options, config: Config) -> None:
    """Raise _Refused for several processes, or a bucket, where an option needs one process."""
    has_workers = config.int("seqgate.workers") > 1
    has_bucket = config.optional_str("seqgate.cluster") is not None
    if options.test_control is not None and (has_workers or has_bucket):
        raise _Refused(_ONE_PROCESS, USAGE_ERROR)
    if options.console and has_workers:
        raise _Refused(_NO_CONSOLE, USAGE_ERROR)


def _names_directory(overrides: Sequence[str]) -> bool:
    return any(override.partition("=")[0].strip() == "log.dirs" for override in overrides)


def _check_console_address(options: Options) -> None:
    """Raise _Refused for an address that the console can't take, before the gateway starts."""
    address = str(options.console_listen)
    host, _, port = address.rpartition(":")
    complaint = console_complaint(address)
    if not host or not port.isdecimal():
        complaint = "must be HOST:PORT, such as 127.0.0.1:8081"
    if complaint is not None:
        raise _Refused(f"--console-listen {address}: {complaint}", USAGE_ERROR)
    if options.test_control is not None:
        raise _Refused("--console-listen has no effect with --test-control; use --console", USAGE_ERROR)


def _under_test(address: str) -> Iterator[str]:
    """Yield the settings of a gateway under test. Raises _Refused."""
    from seqgate.gateway.testing.broker import SETTINGS  # noqa: PLC0415
    from seqgate.gateway.testing.control.serving import address_complaint  # noqa: PLC0415 - seldom

    complaint = address_complaint(address)
    if complaint is not None:
        raise _Refused(f"--test-control {address}: {complaint}", USAGE_ERROR)
    return (f"{name}={value}" for name, value in SETTINGS.items())


def _listeners(addresses: Sequence[str]) -> Iterator[str]:
    """Yield the addresses of `--listen` with names. Raises _Refused."""
    for number, address in enumerate(addresses):
        name = "PLAINTEXT" if not number else f"PLAINTEXT{number}"
        try:
            parse_listener(address)
        except ValueError as error:
            reason = str(error).removeprefix(f"{address!r}: ")
            raise _Refused(f"--listen {address}: {reason}", USAGE_ERROR) from None
        yield address if "://" in address else f"{name}://{address}"
