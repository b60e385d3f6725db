"""`seqgate certify`: runs an application's producer through fault scripts."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from seqgate.gateway.admin.commands import AsJson, command, flag, option, stop


@command
def certify(
    command: str | None = option(
        "--command",
        "COMMAND",
        "The command that starts the application. Words may hold placeholders (`seqgate help certify`).",
    ),
    lists: bool = flag("--list", "Print the scripts, and run nothing."),
    scripts: str | None = option("--scripts", "NAME,...", "Run these scripts only. [default: all thirty]"),
    records: int = option("--records", "N", "Records of each run.", show_default=True, min=20, default=200),
    topic: str = option(
        "--topic", "TOPIC", "The topic that the application writes to.", show_default=True, default="certify"
    ),
    partitions: int = option(
        "--partitions", "N", "Partitions of the topic.", show_default=True, min=1, default=1
    ),
    timeout: float = option(
        "--timeout",
        "SECONDS",
        "Time after which a run counts as hung.",
        show_default=True,
        min=1,
        default=60.0,
    ),
    request_timeout: float = option(
        "--request-timeout",
        "SECONDS",
        "The request timeout of the application's client: late answers come after it.",
        show_default=True,
        min=0.1,
        default=2.0,
    ),
    seed: int = option("--seed", "N", "The seed of the random scripts.", show_default=True, default=1),
    jobs: int | None = option(
        "--jobs", "N", "Runs at a time. [default: one for each processor, at most 4]", min=1
    ),
    allow_giving_up: bool = flag(
        "--allow-giving-up", "A reported failure is good enough, whatever the script is."
    ),
    reports: list[Path] | None = option(
        "--report",
        "FILE",
        "Write the report into this file: JUnit's XML if its name ends in .xml, otherwise JSON; may "
        "be repeated.",
        dir_okay=False,
    ),
    as_json: AsJson = False,
) -> None:
    """Run an application's producer through thirty fault scripts; report what it loses, doubles or reorders.

    The application reads values from its standard input, sends each to the topic as it reads it, and ends
    with exit code 0 when all are acknowledged (`seqgate help certify`). It finds the address and the topic in
    SEQGATE_BOOTSTRAP and SEQGATE_TOPIC. Each run has a broker of its own.

    The exit code is 0 if the application passed every script.

    \b
    For example:
      seqgate certify --command "python orders.py"
      seqgate certify --command "java -jar orders.jar" --report certify.xml
      seqgate certify --command ./orders --scripts broker-killed,power-cut
    """  # noqa: D301 - \b keeps the lines of the list apart
    from seqgate.gateway.certify import certification  # noqa: PLC0415 - slow to import
    from seqgate.gateway.certify.run import Setup  # noqa: PLC0415 - slow to import
    from seqgate.gateway.certify.scripts import SCRIPTS, named  # noqa: PLC0415 - slow to import

    if lists:
        certification.print_scripts()
        return
    if command is None:
        raise stop("--command is missing: name the command that starts the application", code=2)
    for path in reports or ():
        if not path.parent.is_dir():
            raise stop(f"--report: there is no directory {path.parent}", code=2)
    try:
        chosen = SCRIPTS if scripts is None else named([name.strip() for name in scripts.split(",")])
    except ValueError as error:
        raise stop(f"--scripts: {error}", code=2) from None
    # The brokers run in this process, and log what the scripts do to them.
    logging.getLogger().addHandler(logging.NullHandler())
    setup = Setup(command, topic, records, partitions, timeout, request_timeout, seed)
    try:
        certificate = certification.certify(
            setup,
            chosen,
            jobs=jobs or min(4, os.cpu_count() or 1),
            report=(lambda _: None) if as_json else certification.print_outcome,
        )
    except certification.NotReady as error:
        raise stop(str(error)) from None
    except ValueError as error:
        raise stop(str(error), code=2) from None
    try:
        for path in reports or ():
            certification.write(path, certificate, may_give_up=allow_giving_up)
    except OSError as error:
        raise stop(f"--report: {error}") from None
    if as_json:
        from seqgate.gateway.admin.printing import print_json  # noqa: PLC0415 - slow to import

        print_json(certification.as_json(certificate, may_give_up=allow_giving_up))
    else:
        certification.print_summary(certificate)
    if not certificate.is_good(may_give_up=allow_giving_up):
        raise SystemExit(1)
