"""`spark_kafka_compat` is `seqgate.spark_kafka_compat`, for programs such as those of `spark-submit`. Each
module is the same object under both names, so that the class of an error, for example, is one class.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import CodeType, ModuleType
from typing import cast

from seqgate import spark_kafka_compat

_NAME = "spark_kafka_compat"


class _Same(MetaPathFinder, InspectLoader):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - Python's interface
        target: ModuleType | None = None,  # noqa: ARG002 - as above
    ) -> ModuleSpec | None:
        """Return the specification of a module by its short name; None for other and missing names."""
        there = find_spec(f"seqgate.{fullname}") if fullname.startswith(f"{_NAME}.") else None
        if there is None:
            return None
        is_package = there.submodule_search_locations is not None
        return spec_from_loader(fullname, self, origin=there.origin, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of the long name in the place of the new one."""
        sys.modules[module.__name__] = import_module(f"seqgate.{module.__name__}")

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of a module that `python -m` runs."""
        return self._loader(fullname).get_code(f"seqgate.{fullname}")

    def get_source(self, fullname: str) -> str | None:
        return self._loader(fullname).get_source(f"seqgate.{fullname}")

    def _loader(self, fullname: str) -> InspectLoader:
        there = find_spec(f"seqgate.{fullname}")
        if there is None:
            raise ImportError(f"No module named {fullname!r}", name=fullname)
        return cast("InspectLoader", there.loader)


if __name__ == "__main__":
    runpy.run_module(f"seqgate.{_NAME}", run_name="__main__", alter_sys=True)
else:
    sys.meta_path.insert(0, _Same())
    sys.modules[_NAME] = spark_kafka_compat
