"""Declares commands: their options and arguments, what they print, and how they end.

A command is a function whose parameters are its options. An option that several commands share is a type,
`Annotated[Path | None, option(…)]`; an option of one command is the default of its parameter. `parse` takes
the words of a right command line. Help, completion and whatever may be wrong are left to typer, which
`admin/help.py` gives the same options; its import alone takes longer than most commands.
"""

from __future__ import annotations

import inspect
import os
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, NamedTuple, ParamSpec, Self, TypeVar

import msgspec

if TYPE_CHECKING:
    from seqgate.gateway.admin.tables import Block

C = TypeVar("C")
P = ParamSpec("P")
REQUIRED: Final = inspect.Parameter.empty
"""The default of an option or argument that must be given."""
AS_JSON: Final = "as_json"


class CommandOption(msgspec.Struct, frozen=True):
    """An option, or an argument if `names` is None. `facts` are parameters of typer's Option or Argument."""

    names: tuple[str, ...] | None
    default: Any
    facts: Mapping[str, Any]


def option(
    names: str, metavar: str, text: str, *, default: Any = None, show_default: bool | str = False, **more: Any
) -> Any:
    """Return an option that takes a value, such as `--lines -n`; `text` is its help."""
    facts = {"metavar": metavar, "help": text or None, "show_default": show_default, **more}
    return CommandOption(tuple(names.split()), default, facts)


def flag(names: str, text: str, *, default: bool | None = False) -> Any:
    """Return an option without a value; `text` is its help."""
    return CommandOption(tuple(names.split()), default, {"help": text})


def argument(
    metavar: str, text: str = "", *, default: Any = REQUIRED, show_default: bool | str = False, **more: Any
) -> Any:
    """Return an argument; `text` is its help."""
    facts = {"metavar": metavar, "help": text or None, "show_default": show_default, **more}
    return CommandOption(None, default, facts)


MOST_S: Final = 1_000_000
"""The longest time that an option takes. Kafka's requests have it as milliseconds, in 4 bytes."""
MOST_INT16: Final = 2**15 - 1
MOST_INT32: Final = 2**31 - 1
"""The largest number that so many bits of a request carry."""
_LARGEST: Final = 2**63 - 1
AsJson = Annotated[bool, flag("--json", "Print one JSON document.")]


class OptionsOf(NamedTuple):
    """Marks a parameter whose value `make` returns; the parameters of `make` are the options."""

    make: Callable[..., Any]


class Parameter(NamedTuple):
    """A parameter of a command: its type, and its option, or what makes its value of other options."""

    name: str
    type: Any
    mark: CommandOption | OptionsOf | None
    default: Any


class Output(NamedTuple):
    """The output of a command, and its exit code.

    `document` is what `--json` prints, `text` the tables and sentences otherwise. Each of `refusals` is
    printed on stderr after either of them; with any, the command exits with 1.
    """

    document: Any
    text: Iterable[Block] = ()
    code: int = 0
    refusals: Sequence[str] = ()


class Command(msgspec.Struct, frozen=True, dict=True):
    """A command: the name of its function, what it does with the values of its parameters, and its help.
    `declare` returns the parameters; it takes long enough that a command does it for itself alone.
    """

    name: str
    run: Callable[..., None]
    declare: Callable[[], Sequence[Parameter]]
    help: str

    @cached_property
    def parameters(self) -> Sequence[Parameter]:
        """The parameters in the order of the help."""
        return self.declare()

    def __call__(self, **given: Any) -> None:
        """Run the command. A command that ends with another code than 0 raises SystemExit."""
        for value in given.values():
            for each in value if isinstance(value, list) else (value,):
                _check_value(each)
        self.run(**given)

    def parse(self, words: Sequence[str]) -> dict[str, Any] | None:
        """Return the values of the parameters; None when typer must look: for `--help`, or an error."""
        given: dict[str, list[str]] = {each.name: [] for each in self.parameters}
        named = {name: each for each in self.parameters for name in option_of(each).names or ()}
        flags: dict[str, Any] = {}
        others: list[str] = []
        rest = iter(words)
        for word in rest:
            if not word.startswith("-"):
                others.append(word)
                continue
            name, equals, value = word.partition("=")
            found = named.get(name)
            if found is None or (equals and not name.startswith("--")):
                return None
            if _kind(found) == (False, bool):
                if equals:
                    return None
                flags[found.name] = True
                continue
            value = value if equals else next(rest, "")
            if not value or value.startswith("-"):
                return None
            given[found.name].append(value)
        for each in self.parameters:
            if option_of(each).names is None:
                taken = len(others) if _kind(each)[0] else 1
                given[each.name], others = others[:taken], others[taken:]
        try:
            values = {each.name: _value(each, given[each.name]) for each in self.parameters}
        except ValueError:
            return None
        return None if others else values | flags


def option_of(parameter: Parameter) -> CommandOption:
    """Return the option of a parameter of a command."""
    assert isinstance(parameter.mark, CommandOption), parameter.name
    return parameter.mark


def _kind(parameter: Parameter) -> tuple[bool, Any]:
    """Return whether a parameter takes several values, and the type of one."""
    kind = next(each for each in _members(parameter.type) if each is not NoneType)
    return (True, typing.get_args(kind)[0]) if typing.get_origin(kind) is list else (False, kind)


def _members(kind: Any) -> Sequence[Any]:
    is_literal_or_list = typing.get_origin(kind) in {list, typing.Literal}
    return (kind,) if is_literal_or_list else typing.get_args(kind) or (kind,)


def _value(parameter: Parameter, texts: Sequence[str]) -> Any:
    """Return the value of a parameter. Raises ValueError when typer must look."""
    if not texts:
        if parameter.default is REQUIRED:
            raise ValueError
        return parameter.default
    is_list, kind = _kind(parameter)
    facts = option_of(parameter).facts
    values = [_converted(kind, text, facts) for text in texts]
    return values if is_list else values[-1]


def _check_value(value: Any) -> None:
    """Refuse what no request can carry: a text that is not UTF-8, and a number of more than 8 bytes."""
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise stop(f"{value!r} is not UTF-8", 2) from None
    if isinstance(value, int) and value > _LARGEST:
        raise stop(f"{value} is too large: the largest number is {_LARGEST}", 2)


def _converted(kind: Any, text: str, facts: Mapping[str, Any]) -> Any:
    if kind is str:
        return text
    if kind is Path:
        path = Path(text)
        if facts.get("readable", True) and path.exists() and not os.access(path, os.R_OK):
            raise ValueError
        if not facts.get("dir_okay", True) and path.exists() and not path.is_file():
            raise ValueError
        if facts.get("exists") and not (path.exists() and path.is_dir() <= facts.get("dir_okay", True)):
            raise ValueError
        if not facts.get("file_okay", True) and not path.is_dir():
            raise ValueError
        return path
    if typing.get_origin(kind) is typing.Literal:
        if text not in typing.get_args(kind):
            raise ValueError
        return text
    assert kind in {int, float}, kind
    if not text.isascii() or not text.replace(".", "", kind is float).isdecimal():
        raise ValueError
    number = kind(text)
    if not facts.get("min", number) <= number <= facts.get("max", number):
        raise ValueError
    return number


def command(function: Callable[..., None]) -> Command:
    """Make a command of a function that prints by itself."""
    return Command(function.__name__, function, partial(_parameters, function), function.__doc__ or "")


def asks(
    reach: Callable[..., C], *, first: bool = False
) -> Callable[[Callable[Concatenate[C, P], Output | None]], Command]:
    """Make a command of a function that asks what `reach` returns.

    The command has the options of the function, of `reach` (before them with `first`), and `--json`. It calls
    the function with what `reach` returns, in most cases not opened yet, so that a wrong option is reported
    before anybody is asked. A function that prints by itself returns None, and takes `as_json` if it needs
    it.
    """

    def make(function: Callable[Concatenate[C, P], Output | None]) -> Command:
        parts = cache(lambda: _Parts.of(function, reach))

        def declare() -> Sequence[Parameter]:
            own = [each for each in parts().own if each.name != AS_JSON]
            last = [each for each in parts().own if each.name == AS_JSON] or [_JSON]
            of_reach = parts().of_reach
            return [*of_reach, *own, *last] if first else [*own, *of_reach, *last]

        def run(**given: Any) -> None:
            of_reach, own, made = parts()
            opened = _take(reach, of_reach, given)
            takes_json = any(each.name == AS_JSON for each in own)
            as_json: bool = given[AS_JSON] if takes_json else given.pop(AS_JSON)
            given |= {name: _take(maker, options, given) for name, (maker, options) in made.items()}
            output = typing.cast("Callable[..., Output | None]", function)(opened, **given)
            if output is not None:
                _end(output, as_json=as_json)

        return Command(function.__name__, run, declare, function.__doc__ or "")

    return make


def _take(maker: Callable[..., Any], parameters: Iterable[Parameter], given: dict[str, Any]) -> Any:
    return maker(**{each.name: given.pop(each.name) for each in parameters})


class _Parts(NamedTuple):
    """The parameters of a command, by what they are given to."""

    of_reach: Sequence[Parameter]
    own: Sequence[Parameter]
    """The options of the function, and of the functions that make values for it."""
    made: Mapping[str, tuple[Callable[..., Any], Sequence[Parameter]]]
    """By parameter, the function that makes its value, and the options that this function takes."""

    @classmethod
    def of(cls, function: Callable[..., Any], reach: Callable[..., Any]) -> Self:
        declared = _parameters(function, first=1)
        made = {
            each.name: (each.mark.make, _parameters(each.mark.make))
            for each in declared
            if isinstance(each.mark, OptionsOf)
        }
        own = [part for each in declared for part in (made[each.name][1] if each.name in made else [each])]
        return cls(_parameters(reach), own, made)


def _parameters(function: Callable[..., Any], first: int = 0) -> list[Parameter]:
    """Return the parameters of a function from number `first` on. Neither the types before nor that of the
    result are evaluated; they may be imported for the type checker alone.
    """
    written = inspect.unwrap(function)
    found = list(inspect.signature(written).parameters.values())[first:]

    def typed() -> None: ...

    typed.__annotations__ = {each.name: each.annotation for each in found}
    types = typing.get_type_hints(typed, written.__globals__, include_extras=True)
    return [_parameter(each.name, types[each.name], each.default) for each in found]


def _parameter(name: str, kind: Any, default: Any) -> Parameter:
    if isinstance(default, CommandOption):
        return Parameter(name, kind, default, default.default)
    marks = [
        each for each in getattr(kind, "__metadata__", ()) if isinstance(each, CommandOption | OptionsOf)
    ]
    return Parameter(name, typing.get_args(kind)[0] if marks else kind, marks[0] if marks else None, default)


_JSON: Final = _parameter(AS_JSON, AsJson, False)


class Commands(msgspec.Struct, frozen=True):
    """A group of commands in the order of its help."""

    help: str
    commands: dict[str, Command] = msgspec.field(default_factory=dict)

    def command(self, name: str) -> Callable[[Command], Command]:
        """Add a command under its name."""

        def add(added: Command) -> Command:
            self.commands[name] = added
            return added

        return add


def _end(output: Output, *, as_json: bool) -> None:
    """Print an output, and end the command unless all is well."""
    from seqgate.gateway.admin.printing import print_blocks, print_json  # noqa: PLC0415 - for a command

    if as_json:
        print_json(output.document)
    else:
        print_blocks(output.text)
    for sentence in output.refusals:
        stop(sentence)
    code = output.code or bool(output.refusals)
    if code:
        raise SystemExit(int(code))


def stop(sentence: str, code: int = 1) -> SystemExit:
    """Print a sentence on stderr and return the exit to raise."""
    print(f"seqgate: {sentence}", file=sys.stderr)
    return SystemExit(code)
