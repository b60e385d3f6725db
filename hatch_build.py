"""Makes the links of an editable installation, and compiles the core.

Under SEQGATE_COMPILE=1 the build of a wheel or of an editable installation compiles the core with Cython and
a C compiler. Without it nothing is compiled, and the wheel is the same for all platforms. `python
hatch_build.py` compiles the core of a checkout, as `make` does.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
COMPILE = "SEQGATE_COMPILE"
DIRECTIVES = {"annotation_typing": False, "boundscheck": False, "wraparound": False, "language_level": 3}
"""The types are those of the .pxd files; the texts check bounds themselves."""


class Build(BuildHookInterface):
    """The hook of every build of the wheel."""

    def dependencies(self) -> list[str]:
        """Return what the build needs beside hatchling: nothing, or what compiling needs."""
        return self.metadata.core.optional_dependencies["compile"] if _is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make each link to a package that is missing, and compile the core where that is wanted."""
        placed = self.build_config.target_config["sources"]
        if version == "editable":
            for folder, place in placed.items():
                link = Path(self.root, "src", place)
                if not link.exists() and Path(self.root, folder, "__init__.py").is_file():
                    link.symlink_to(Path("..", "..", folder), target_is_directory=True)
        if not _is_wanted():
            return
        compiled = compile_core(Path(self.root))
        if version != "editable":
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            for path in compiled:
                build_data["force_include"][str(path)] = f"seqgate/{path.relative_to(self.root)}"


def _is_wanted() -> bool:
    return os.environ.get(COMPILE, "0") not in {"", "0"}


def compile_core(root: Path) -> list[Path]:
    """Compile each text of the core that has no translation yet, and return the paths of all translations.
    Raises what `compile_module` raises.
    """
    sys.path.insert(0, str(root / "src"))
    from seqgate.core import MODULES, translation_of

    targets = []
    for module in MODULES:
        source = root.joinpath(*module.split(".")[1:]).with_suffix(".py")
        target = Path(translation_of(str(source)))
        if not target.exists():
            for older in target.parent.glob(f"{source.stem}.*{sysconfig.get_config_var('EXT_SUFFIX')}"):
                older.unlink(missing_ok=True)  # another build may do the same
            compile_module(source, target)
        targets.append(target)
    return targets


def compile_module(source: Path, target: Path, *, flags: tuple[str, ...] = ("-O3", "-g0")) -> None:
    """Compile one text to `target`. Raises SystemExit where Cython fails, distutils' errors where the
    compiler does, OSError.
    """
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    with tempfile.TemporaryDirectory() as scratch:
        text = shutil.copy(source, scratch)
        shutil.copy(source.with_suffix(".pxd"), scratch)
        extension = Extension(source.stem, [text], extra_compile_args=[*flags], extra_link_args=[*flags])
        said = io.StringIO()
        with contextlib.redirect_stderr(said):  # it warns of `inline` in a .pxd, and does what that says
            try:
                translated = cythonize([extension], quiet=True, compiler_directives=DIRECTIVES)
            except Exception as error:
                raise SystemExit(said.getvalue()) from error
        command = build_ext(Distribution({"ext_modules": translated}))
        command.build_lib = command.build_temp = scratch
        command.finalize_options()
        command.run()
        whole = target.with_suffix(f".{os.getpid()}")
        shutil.move(command.get_ext_fullpath(source.stem), whole)
        whole.replace(target)


def can_compile() -> bool:
    """Return whether a C compiler and Python's headers are here."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    has_compiler = any(map(shutil.which, (compiler, "cc")))
    return has_compiler and Path(sysconfig.get_path("include"), "Python.h").is_file()


def main() -> None:
    """Compile the core of this checkout, or say why it is not compiled."""
    if not can_compile():
        print("The core can't be compiled without a C compiler and Python's headers. It runs as Python.")
        return
    print("Compiling the core ...")
    try:
        compile_core(ROOT)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - distutils, Cython and the disk have their own
        print(f"{error}\nThe core could not be compiled. It runs as Python.")


if __name__ == "__main__":
    main()
