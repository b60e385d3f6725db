"""The core, compiled and interpreted: which of both Python takes, and that both keep the rules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hatch_build import can_compile
from seqgate.core import MODULES, source_of, translation_of
from tests.support.gateway_process import GatewayProcess

REPOSITORY = Path(__file__).parent.parent
LIMIT_S = 1800.0
RULES = (
    "tests/log/format",
    "tests/log/test_partition_log.py",
    "tests/gateway/handlers/records",
    "tests/properties/test_log_records.py",
)
SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def run(*arguments: str | Path, cwd: Path = REPOSITORY, **variables: str) -> str:
    """Run Python, and return all that it printed. Raises AssertionError with that when it fails."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


@pytest.mark.parametrize(
    ("further_text", "variables", "expected"),
    [("", {}, "compiled"), ("# newer\n", {}, "interpreted"), ("", {"SEQGATE_PURE": "1"}, "interpreted")],
    ids=("as it was compiled", "newer text", "switched off"),
)
def test_only_the_translation_of_this_very_text_is_used(
    tmp_path: Path, further_text: str, variables: dict[str, str], expected: str
) -> None:
    for module in MODULES:
        source = Path(source_of(module))
        folder = tmp_path.joinpath(*module.split(".")[:-1])
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder)
        shutil.copy(source.with_suffix(".pxd"), folder)
        translation = Path(translation_of(str(source)))
        if can_compile():
            shutil.copy(translation, folder)
        else:
            expected = "interpreted"
        with (folder / source.name).open("a") as file:
            file.write(further_text)
    for name in ("__init__.py", "core.py"):
        shutil.copy(REPOSITORY / "src" / "seqgate" / name, tmp_path / "seqgate")
    program = (
        f"import {MODULES[0]} as module; from seqgate import core; "
        "open(core.source_of(module.__name__), 'a').write('# changed while it runs'); "
        "print(core.kind(), module.__file__.endswith('.py'), module.largest_timestamp(memoryview(b''), *[0] * 10))"
    )
    told = run("-P", "-c", program, cwd=tmp_path, PYTHONPATH=str(tmp_path), **variables)
    assert told.split(maxsplit=2) == [expected, str(expected == "interpreted"), "0\n"]


def checkout(path: Path, damage: Callable[[bytes], bytes]) -> Path:
    """Make a checkout whose translations are damaged ones of this checkout, or of no bytes."""
    for folder in ("pid_allocator", "seq_validator", "spark_kafka_compat"):
        (path / folder).symlink_to(REPOSITORY / folder)
    without = shutil.ignore_patterns("__pycache__", "*.so")
    for folder in ("gateway", "log"):
        shutil.copytree(REPOSITORY / folder, path / folder, ignore=without)
    shutil.copytree(REPOSITORY / "src", path / "src", symlinks=True, ignore=without)
    for module in MODULES:
        source = Path(source_of(module))
        translation = Path(translation_of(str(source)))
        content = translation.read_bytes() if can_compile() else b""
        planted = path.joinpath(*module.split(".")[1:-1]) / translation.name
        planted.write_bytes(damage(content))
    return path


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "no library": lambda _: b"no library\n" * 1000,
    "empty": lambda _: b"",
    "for another machine": lambda content: content[:18] + b"\xff\xff" + content[20:],
    "cut, so that to load it would kill the process": lambda content: content[:4096],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_text_is_interpreted_where_its_translation_can_not_be_loaded(tmp_path: Path, damage: str) -> None:
    planted = checkout(tmp_path, DAMAGES[damage])
    told = run("-P", "-m", "seqgate", "--version", cwd=tmp_path, PYTHONPATH=str(planted / "src"))
    version, *others = told.splitlines()
    assert version.endswith(" (interpreted core)")
    assert [other for other in others if "the compiled core can't be used" in other] == others != []


def test_a_gateway_says_once_that_it_can_not_use_its_translation(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path / "data", settings={"seqgate.metrics.listener": "127.0.0.1:0"})
    gateway.sources = tmp_path / "planted"
    gateway.sources.mkdir()
    checkout(gateway.sources, DAMAGES["no library"])
    with gateway:
        place = ("--data-dir", gateway.data_dir)
        assert "(interpreted core)" in run("-m", "seqgate", "status", *place)
        assert 'core="interpreted"' in run("-m", "seqgate", "metrics", "seqgate_node_info", *place)
        lines = gateway.stderr_path.read_text("utf-8").splitlines()
        assert len([line for line in lines if "the compiled core can't be used" in line]) == 1, lines


def test_a_checkout_runs_without_a_translation_where_the_compiler_fails(tmp_path: Path) -> None:
    """The compiler may be there, and Python's headers not."""
    for module in MODULES:
        source = Path(source_of(module))
        folder = tmp_path.joinpath(*module.split(".")[1:-1])
        folder.mkdir(parents=True, exist_ok=True)
        for path in (source, source.with_suffix(".pxd")):
            shutil.copy(path, folder)
    shutil.copy(REPOSITORY / "hatch_build.py", tmp_path)
    told = run("hatch_build.py", cwd=tmp_path, CC="false", PYTHONPATH=str(REPOSITORY / "src"))
    assert told.endswith("It runs as Python.\n")
    assert not [*tmp_path.rglob("*.so")]


@pytest.mark.tier("all")
def test_the_rules_hold_with_an_interpreted_core() -> None:
    run("-m", "pytest", "--tier=test", "-q", "-p", "no:cacheprovider", *RULES, SEQGATE_PURE="1")


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("module", MODULES)
def test_no_bytes_make_the_compiled_core_read_beyond_them(tmp_path: Path, module: str) -> None:
    source, target = source_of(module), tmp_path / "compiled.so"
    compiling = (
        "from pathlib import Path; from hatch_build import compile_module; "
        f"compile_module(Path({source!r}), Path({str(target)!r}), flags={SANITIZERS!r})"
    )
    run("-c", compiling, PYTHONPATH=f"{REPOSITORY}:{REPOSITORY / 'src'}")
    library = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    # Python's own allocator would hide what is read beyond a small object.
    sanitized = {"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
    told = run("-m", "tests.fuzzing.sanitized", module, target, str(os.getpid()), "100000", **sanitized)
    assert told == "done\n"
