"""The files for deployment are valid to the programs that read them, and name settings, ports and files that
exist.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from seqgate.gateway.cli import parse
from seqgate.gateway.config import load_config
from seqgate.gateway.config.load import exposure_complaint
from tests.support.container import USER_ID
from tests.support.dockerfile import read_stages
from tests.support.gateway_process import REPOSITORY
from tests.support.manifests import Pod, composed, kustomized, of_kind
from tests.support.missing import missing
from tests.support.prometheus import promtool

DEPLOY = REPOSITORY / "deploy"
FOLDERS = ("gateway", "cluster")
LIMIT_S = 60.0
OLDEST_KUBERNETES = "1.31"
MOST_EXPOSURE = 15
"""The limit of `systemd-analyze security`, in tenths: "OK" begins at 50, and a unit without any limits has
96.
"""


def settings(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith("SEQGATE_")}


class TestDockerfile:
    def test_the_linter_has_no_complaint(self) -> None:
        program = Path(sys.executable).with_name("hadolint")
        done = subprocess.run(
            [program, REPOSITORY / "Dockerfile"], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stdout

    def test_it_runs_as_a_fixed_user_that_owns_the_volume(self) -> None:
        _, (_, final) = read_stages(REPOSITORY / "Dockerfile")
        assert final.value("USER") == f"{USER_ID}:{USER_ID}"
        (users,) = final.values("RUN")
        assert f"useradd --uid {USER_ID} --gid {USER_ID} " in users
        assert f"--owner {USER_ID} --group {USER_ID} --mode 0700 {final.value('VOLUME')}" in users

    def test_its_ports_and_directory_are_those_of_the_settings(self) -> None:
        _, (_, final) = read_stages(REPOSITORY / "Dockerfile")
        config = load_config(environment=settings(final.environment))
        assert config.str("log.dirs") == final.value("VOLUME")
        (listener,) = config.listeners
        metrics = config.str("seqgate.metrics.listener").rpartition(":")[2]
        assert final.value("EXPOSE").split() == [str(listener.port), metrics, "8080"]

    def test_the_page_names_its_variables_and_extras(self) -> None:
        _, (build, final) = read_stages(REPOSITORY / "Dockerfile")
        page = (REPOSITORY / "docs" / "containers.md").read_text()
        (win,) = re.findall(r"^- Variables win over the file.*:(.*)\. So ", page, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", win)) == settings(final.environment).keys()
        (installed,) = re.findall(r"'\.\[([a-z,]+)\]'", " ".join(build.values("RUN")))
        (told,) = re.findall(r"^\| extras \| (.*) of the package", page, re.MULTILINE)
        assert re.findall(r"`(\w+)`", told) == installed.split(",")

    def test_it_lets_nobody_in_without_a_word(self) -> None:
        _, (_, final) = read_stages(REPOSITORY / "Dockerfile")
        complaint = exposure_complaint(load_config(environment=settings(final.environment)))
        assert complaint is not None
        assert "seqgate.allow.insecure.listeners=true" in complaint

    def test_all_packages_and_nothing_else_enter_the_build(self) -> None:
        lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
        packages = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
            "targets"
        ]
        assert "*" in lines
        let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
        assert let_in == {
            *packages["wheel"]["only-include"],
            "hatch_build.py",
            "pyproject.toml",
            "README.md",
            "LICENSE",
        }


class TestCompose:
    def test_every_setting_exists(self) -> None:
        for name, service in composed()["services"].items():
            variables = settings(service.get("environment") or {})
            assert exposure_complaint(load_config(environment=variables)) is None, name

    def test_every_port_is_for_this_machine_only(self) -> None:
        ports = [port for service in composed()["services"].values() for port in service["ports"]]
        assert len(ports) == 4
        assert {port["host_ip"] for port in ports} == {"127.0.0.1"}

    def test_every_mounted_file_exists(self) -> None:
        mounts = [each for service in composed()["services"].values() for each in service.get("volumes", ())]
        bound = [Path(each["source"]) for each in mounts if each["type"] == "bind"]
        assert len(bound) == 4
        assert [path for path in bound if not path.exists()] == []

    def test_the_gateway_advertises_what_is_published_and_its_own_name(self) -> None:
        gateway = composed()["services"]["gateway"]
        config = load_config(environment=settings(gateway["environment"]))
        advertised = {each.name: (each.host, each.port) for each in config.advertised_listeners}
        (port,) = gateway["ports"]
        assert advertised["HOST"] == (port["host_ip"], int(port["published"]))
        assert advertised["INTERNAL"][0] == "gateway"
        assert {each.name: each.port for each in config.listeners} == {
            name: each_port for name, (_, each_port) in advertised.items()
        }

    def test_the_console_gets_the_views_of_the_listener_that_it_asks(self) -> None:
        services = composed()["services"]
        assert "--metrics=http://gateway:9644" in services["console"]["command"]
        config = load_config(environment=settings(services["gateway"]["environment"]))
        assert config.bool("seqgate.metrics.views.everywhere")

    def test_prometheus_takes_its_configuration(self, tmp_path: Path) -> None:
        for file in (DEPLOY / "compose" / "prometheus.yml", DEPLOY / "prometheus" / "alerts.yml"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
        assert "SUCCESS" in promtool("check", "config", "prometheus.yml", cwd=tmp_path)

    def test_grafana_finds_the_prometheus_and_the_dashboard(self) -> None:
        services = composed()["services"]
        (source,) = provisioned("datasources", "datasources")
        assert source["url"] == f"http://prometheus:{services['prometheus']['ports'][0]['target']}"
        (provider,) = provisioned("dashboards", "providers")
        places = {each["target"] for each in services["grafana"]["volumes"]}
        dashboard = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
        assert dashboard in places
        assert str(Path(dashboard).parent) == provider["options"]["path"]


def provisioned(folder: str, key: str) -> list[dict[str, Any]]:
    """Return what a file of Grafana's provisioning lists."""
    (file,) = (DEPLOY / "grafana" / "provisioning" / folder).iterdir()
    document = yaml.safe_load(file.read_text())
    assert document["apiVersion"] == 1
    found: list[dict[str, Any]] = document[key]
    return found


@pytest.mark.parametrize("folder", FOLDERS)
class TestKubernetes:
    @pytest.mark.parametrize("version", [OLDEST_KUBERNETES, kubernetes_validate.latest_version()])
    def test_the_schemas_of_kubernetes_accept_every_object(self, folder: str, version: str) -> None:
        objects = kustomized(folder)
        assert len(objects) >= 6
        for each in objects:
            kubernetes_validate.validate(each, version, strict=True)

    def test_every_setting_exists_and_is_allowed(self, folder: str, tmp_path: Path) -> None:
        config = pod_config(Pod(kustomized(folder), 0), tmp_path)
        assert exposure_complaint(config) is None

    def test_a_gateway_advertises_its_own_name(self, folder: str, tmp_path: Path) -> None:
        pod = Pod(kustomized(folder), 2)
        (advertised,) = pod_config(pod, tmp_path).advertised_listeners
        assert (advertised.host, advertised.port) == (pod.host, 9092)
        assert pod.host.startswith("seqgate-2.seqgate.seqgate.")

    def test_ports_of_settings_probes_and_service_agree(self, folder: str, tmp_path: Path) -> None:
        objects = kustomized(folder)
        pod = Pod(objects, 0)
        config = pod_config(pod, tmp_path)
        ports = {port["name"]: port["containerPort"] for port in pod.container["ports"]}
        (listener,) = config.listeners
        metrics = int(config.str("seqgate.metrics.listener").rpartition(":")[2])
        assert ports == {"kafka": listener.port, "metrics": metrics}
        service = of_kind(objects, "Service")["spec"]["ports"]
        assert {each["targetPort"]: each["port"] for each in service} == ports
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert pod.container[probe]["httpGet"]["port"] == "metrics"

    def test_the_data_lies_on_the_volume(self, folder: str, tmp_path: Path) -> None:
        pod = Pod(kustomized(folder), 0)
        places = {mount["name"]: mount["mountPath"] for mount in pod.container["volumeMounts"]}
        assert pod_config(pod, tmp_path).str("log.dirs").startswith(places["data"] + "/")

    def test_a_namespace_of_the_restricted_level_lets_the_pod_in(self, folder: str) -> None:
        """As the pod security standards of Kubernetes say, and with no file writable but in the volumes."""
        pod = Pod(kustomized(folder), 0)
        assert pod.spec["securityContext"]["runAsNonRoot"] is True
        assert pod.spec["securityContext"]["runAsUser"] == USER_ID
        assert pod.spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod.container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }

    def test_no_service_becomes_a_setting(self, folder: str) -> None:
        """Kubernetes sets SEQGATE_PORT and others for a service called seqgate, and the gateway refuses
        unknown settings.
        """
        assert Pod(kustomized(folder), 0).spec["enableServiceLinks"] is False

    def test_selectors_find_the_pods(self, folder: str) -> None:
        objects = kustomized(folder)
        labels = of_kind(objects, "StatefulSet")["spec"]["template"]["metadata"]["labels"].items()
        selectors = [
            of_kind(objects, "Service")["spec"]["selector"],
            of_kind(objects, "StatefulSet")["spec"]["selector"]["matchLabels"],
            of_kind(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
            of_kind(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        ]
        for selector in selectors:
            assert selector.items() <= labels


def pod_config(pod: Pod, folder: Path) -> Any:
    """Return the settings of a pod's gateway, by the gateway's own code; its arguments must be valid ones of
    `seqgate serve`.
    """
    serve, *words = pod.container["args"]
    files = pod.files(folder)
    words = [re.sub(r"(?<==)/\S+", lambda place: str(files[place[0]]), word) for word in words]
    right = parse([serve, *words])
    assert serve == "serve"
    assert right is not None
    return load_config(right[1]["config_file"], settings(pod.environment), right[1]["settings"] or ())


class TestUnit:
    UNIT = DEPLOY / "systemd" / "seqgate.service"

    @pytest.fixture
    def unit(self, tmp_path: Path) -> Path:
        """The unit, with a program that exists."""
        program = Path(sys.executable).with_name("seqgate")
        unit = tmp_path / "seqgate.service"
        unit.write_text(self.UNIT.read_text().replace("/opt/seqgate/bin/seqgate", str(program)))
        return unit

    def test_systemd_understands_every_line(self, unit: Path) -> None:
        done = analyze("verify", "--man=no", str(unit))
        assert (done.returncode, done.stdout + done.stderr) == (0, "")

    def test_a_wrong_line_would_be_found(self, unit: Path) -> None:
        unit.write_text(unit.read_text().replace("ProtectHome=true", "ProtectHomes=true"))
        assert "ProtectHomes" in analyze("verify", "--man=no", str(unit)).stderr

    def test_it_may_do_little(self, unit: Path) -> None:
        done = analyze("security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", str(unit))
        assert done.returncode == 0, done.stdout

    def test_its_command_is_one_of_seqgate(self, tmp_path: Path) -> None:
        (line,) = (each for each in self.UNIT.read_text().splitlines() if each.startswith("ExecStart="))
        program, serve, *words = line.removeprefix("ExecStart=").split()
        (tmp_path / "seqgate.toml").write_text("")
        right = parse([serve, *(word.replace("/etc", str(tmp_path)) for word in words)])
        assert (program, serve) == ("/opt/seqgate/bin/seqgate", "serve")
        assert right is not None
        assert right[1]["data_dir"] == Path("/var/lib/seqgate")
        assert "StateDirectory=seqgate\n" in self.UNIT.read_text()


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze; skip the test where it is missing, and fail in CI."""
    try:
        return subprocess.run(
            ["systemd-analyze", *words], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except FileNotFoundError:
        missing("systemd-analyze is not installed (Debian: apt-get install systemd; `make peers` does it)")


def test_every_file_is_one_of_these() -> None:
    """A new file for deployment needs a check here, or in tests/gateway/metrics/test_dashboards.py."""
    assert set(folders(DEPLOY)) == {
        "compose",
        "grafana",
        "grafana/provisioning/dashboards",
        "grafana/provisioning/datasources",
        "kubernetes/cluster",
        "kubernetes/gateway",
        "prometheus",
        "systemd",
    }


def folders(root: Path) -> Iterable[str]:
    return (
        str(path.parent.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    )
