"""What deploy/k8s says is valid for Kubernetes, and true of this release: settings, ports, probes, and that a drain
fits into the time that a pod is given."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from placet_server.config import Config

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/k8s"
OLDEST, NEWEST = "1.27", "1.36"
FILES = sorted(FOLDER.glob("*.yaml"))


def document(name: str) -> Any:
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text())


def settings() -> dict[str, str]:
    found: dict[str, str] = document("configmap")["data"]
    return found


def container() -> Any:
    (only,) = document("deployment")["spec"]["template"]["spec"]["containers"]
    return only


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_manifest_fits_the_schema_of_its_kind(path: Path, version: str) -> None:
    if path.stem == "kustomization":
        resources = set(document("kustomization")["resources"])
        assert {each.name for each in FILES if each != path} == resources
        return
    if os.environ.get("PLACET_REQUIRE_TOOLCHAINS") != "1":
        pytest.importorskip("kubernetes_validate", reason="needs the `dev` extra")
    import kubernetes_validate

    kubernetes_validate.validate(yaml.safe_load(path.read_text()), version, strict=True)


def test_every_setting_is_one_of_this_release() -> None:
    known = {f"PLACET_{name.upper()}" for name in Config.model_fields}
    assert set() == set(settings()) - known
    values = {name.removeprefix("PLACET_").lower(): value for name, value in settings().items()}
    assert "0.0.0.0" == Config(dsn="postgresql://store/placet", **values).host  # type: ignore[arg-type]


def test_ports_and_probes_are_those_that_the_server_has() -> None:
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    health = Config.model_fields["health_port"].default
    expected = {
        "grpc": Config.model_fields["port"].default,
        "health": health,
        "metrics": int(settings()["PLACET_METRICS_PORT"]),
    }
    assert expected == ports
    probes = {name: container()[name]["grpc"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    live, ready = {"port": health, "service": "live"}, {"port": health, "service": "ready"}
    assert {"startupProbe": live, "livenessProbe": live, "readinessProbe": ready} == probes


def test_a_drain_fits_into_what_a_pod_is_given_to_end() -> None:
    spec = document("deployment")["spec"]["template"]["spec"]
    pre_stop = float(container()["lifecycle"]["preStop"]["exec"]["command"][-1])
    notice = float(settings()["PLACET_DRAIN_NOTICE_SECONDS"])
    drain = float(settings()["PLACET_DRAIN_SECONDS"])
    assert pre_stop + notice + drain + 10 <= spec["terminationGracePeriodSeconds"]


def test_the_account_is_that_of_the_image() -> None:
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert user is not None
    security = document("deployment")["spec"]["template"]["spec"]["securityContext"]
    assert (int(user[1]), int(user[2])) == (security["runAsUser"], security["runAsGroup"])


def test_a_rollout_and_a_node_drain_leave_someone_who_serves() -> None:
    spec = document("deployment")["spec"]
    assert 0 == spec["strategy"]["rollingUpdate"]["maxUnavailable"]
    assert spec["replicas"] > document("poddisruptionbudget")["spec"]["minAvailable"] >= 1
