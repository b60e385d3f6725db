"""The options of `serve` that are taken without typer are those that typer takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from seqgate.gateway.cli import app
from seqgate.gateway.serving import Options, parse


def serve_command() -> typer.core.TyperCommand:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    command = group.commands["serve"]
    assert isinstance(command, typer.core.TyperCommand)
    return command


def by_typer(words: list[str]) -> Options:
    given = serve_command().make_context("serve", list(words)).params
    return Options(
        listen=list(given["listen"] or ()),
        data_dir=given["data_dir"],
        settings=list(given["settings"] or ()),
        config_file=given["config_file"],
        guide=given["guide"],
        console=given["with_console"],
        cluster=given["cluster"],
        test_control=given["test_control"],
        exit_with=given["exit_with"],
    )


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--guide",
        "--listen 127.0.0.1:0",
        "--listen=127.0.0.1:0 --listen INSIDE://[::1]:9093",
        "--data-dir a --data-dir=b --guide",
        "--set node.id=3 --set=log.dirs=x=y --set a=",
        "--set nonsense --listen nonsense",
        "--cluster s3://bucket/prefix",
        "--cluster=nonsense --cluster=file:///mnt/objects --guide",
        "--config FILE",
        "--config=FILE --data-dir data",
        "--console --test-control 127.0.0.1:0",
        "--test-control=127.0.0.1:0 --exit-with 17",
    ],
)
def test_right_options_are_taken_as_typer_takes_them(words: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.touch()
    given = words.replace("FILE", str(file)).split()
    assert parse(given) == by_typer(given)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["-h"],
        ["--listen"],
        ["--listen", "--guide"],
        ["--listen", ""],
        ["--data-dir="],
        ["--guide=yes"],
        ["--gui"],
        ["--unknown", "x"],
        ["data"],
        ["--"],
        ["--config", "no/such/file"],
        ["--config", "/"],
        ["--exit-with", "me"],
    ],
    ids=" ".join,
)
def test_typer_looks_at_all_others(words: list[str]) -> None:
    assert parse(words) is None


def test_no_option_of_typer_is_forgotten() -> None:
    flags, others = [], []
    for parameter in serve_command().params:
        (flags if getattr(parameter, "is_flag", False) else others).extend(parameter.opts)
    file = str(Path(__file__))
    assert [
        name
        for name in others
        if parse([name, "2" if name in {"--workers", "--exit-with"} else file]) is None
    ] == []
    assert [name for name in flags if parse([name]) is None] == []
    assert {*flags, *others} == {
        "--listen",
        "--data-dir",
        "--cluster",
        "--workers",
        "--set",
        "--config",
        "--guide",
        "--console",
        "--test-control",
        "--exit-with",
    }
