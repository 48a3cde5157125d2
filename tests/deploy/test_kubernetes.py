"""The manifests of `deploy/kubernetes`: of the right shape, whole, and agreeing with the service they start."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import yaml
from kubernetes_validate import latest_version, validate

from app.builds.attempt import UNKILLABLE
from app.cli import GRACE
from app.main import create_app
from app.settings import Settings
from tests.deploy.image import ROOT, USER, stages
from tests.deploy.kustomize import Misfit, Object, containers, identity, listed, pod_of, render
from trtforge.cli.main import app

KUBERNETES = ROOT / "deploy/kubernetes"
OURS = ("base", "overlays/postgres", "overlays/gpu")
ALL = (*OURS, "example")
SECRETS = {"trtforge-token", "trtforge-database", "trtforge-reader"}  # made by hand, as the comments say
MARGIN_S = 10.0
DATABASE = "TRTFORGE_DATABASE_URL_FILE"


def servers(folder: str) -> Iterator[tuple[Object, Object, dict[str, str]]]:
    """Yield each Deployment with its one container and the variables it sets."""
    for one in render(KUBERNETES / folder):
        if one["kind"] == "Deployment":
            [container] = containers(one)
            yield one, container, {e["name"]: e["value"] for e in container["env"]}


def settings_of(env: dict[str, str]) -> Settings:
    given = {name.removeprefix("TRTFORGE_").lower(): value for name, value in env.items() if not name.endswith("_FILE")}
    return Settings(**given)  # type: ignore[arg-type]  # text, as from the environment


def longest_stop_s(settings: Settings) -> float:
    """Return the seconds from SIGTERM to the last a server may need: drain, grace, kills, open connections."""
    return settings.drain_s + settings.cancel_grace_s + 3 * UNKILLABLE + GRACE


@pytest.mark.parametrize("folder", ALL)
def test_every_object_has_the_shape_of_its_kind(folder: str):
    objects = render(KUBERNETES / folder)
    for one in objects:
        validate(one, latest_version(), strict=True)
    names = [identity(one) for one in objects]
    assert len(set(names)) == len(names)


def test_every_file_belongs_to_a_kustomization():
    known = set[Path]().union(*(listed(KUBERNETES / folder) for folder in ALL))
    there = {path.resolve() for path in KUBERNETES.rglob("*.yaml")}
    assert there - known == {(KUBERNETES / "servicemonitor.yaml").resolve()}


def test_a_patch_without_its_object_and_a_lost_file_are_noticed(tmp_path: Path):
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["gone.yaml"]}))
    with pytest.raises(Misfit, match=r"gone\.yaml"):
        render(tmp_path)
    (tmp_path / "patch.yaml").write_text("{apiVersion: v1, kind: Service, metadata: {name: other}}")
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"patches": [{"path": "patch.yaml"}]}))
    with pytest.raises(Misfit, match="other"):
        render(tmp_path)


@pytest.mark.parametrize("folder", OURS)
def test_a_server_is_given_the_time_it_needs_to_stop(folder: str):
    for one, _, env in servers(folder):
        given = one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert given >= longest_stop_s(settings_of(env)) + MARGIN_S


@pytest.mark.parametrize("folder", OURS)
def test_probes_ask_what_the_service_answers_without_a_token(folder: str, tmp_path: Path):
    paths = create_app(Settings(data_dir=tmp_path / "data", lock_dir=tmp_path / "locks")).openapi()["paths"]
    for _, container, _ in servers(folder):
        asked = {probe: container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "liveness", "readiness")}
        assert asked == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
        assert set(asked.values()) <= paths.keys()
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports[container["readinessProbe"]["httpGet"]["port"]] == Settings().port


@pytest.mark.parametrize("folder", OURS)
def test_sqlite_has_one_server_at_a_time_and_a_disk_is_shared_only_by_those_that_can(folder: str):
    objects = render(KUBERNETES / folder)
    [volume] = [one for one in objects if one["kind"] == "PersistentVolumeClaim"]
    found = list(servers(folder))
    shared = all(DATABASE in env for _, _, env in found)
    assert shared or len(found) == 1
    assert volume["spec"]["accessModes"] == (["ReadWriteMany"] if shared else ["ReadWriteOnce"])
    for one, _, env in found:
        if DATABASE not in env:
            assert (one["spec"]["replicas"], one["spec"]["strategy"]["type"]) == (1, "Recreate")


@pytest.mark.parametrize("folder", OURS)
def test_a_server_has_no_rights_and_writes_only_where_a_volume_is(folder: str):
    for one, container, env in servers(folder):
        pod = one["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == USER
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        writable = [Path(m["mountPath"]) for m in container["volumeMounts"] if not m.get("readOnly")]
        for setting in ("TRTFORGE_DATA_DIR", "TRTFORGE_LOCK_DIR"):
            assert any(Path(env[setting]).is_relative_to(mount) for mount in writable)
        readable = [Path(m["mountPath"]) for m in container["volumeMounts"] if m.get("readOnly")]
        secrets = [Path(value) for name, value in env.items() if name.endswith("_FILE")]
        assert env["TRTFORGE_ADMIN_TOKEN_FILE"]  # it listens for others
        assert all(secret.parent in readable for secret in secrets)


@pytest.mark.parametrize("folder", ALL)
def test_what_is_mounted_claimed_and_selected_exists(folder: str):
    objects = render(KUBERNETES / folder)
    claims = {one["metadata"]["name"] for one in objects if one["kind"] == "PersistentVolumeClaim"}
    for one in objects:
        pod = pod_of(one) or {}
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        for container in containers(one):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
            keys = [e["valueFrom"]["secretKeyRef"]["name"] for e in container.get("env", []) if "valueFrom" in e]
            assert set(keys) <= SECRETS
        assert {
            v["persistentVolumeClaim"]["claimName"] for v in volumes.values() if "persistentVolumeClaim" in v
        } <= claims
        assert {v["secret"]["secretName"] for v in volumes.values() if "secret" in v} <= SECRETS
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in objects if one["kind"] == "Deployment"]
    for one in objects:
        if one["kind"] == "Service":
            assert all(one["spec"]["selector"].items() <= label.items() for label in labels)


def test_no_deployment_selects_the_pods_of_another():
    deployments = [one for one, _, _ in servers("overlays/gpu")]
    assert len(deployments) == 3
    for a, b in combinations(deployments, 2):
        for one, other in ((a, b), (b, a)):
            wanted = one["spec"]["selector"]["matchLabels"].items()
            assert not wanted <= other["spec"]["template"]["metadata"]["labels"].items()
            assert wanted <= one["spec"]["template"]["metadata"]["labels"].items()


def test_a_gpu_server_has_one_gpu_of_its_product_and_the_builder_for_it():
    found = [(one, c, env) for one, c, env in servers("overlays/gpu") if "nvidia.com/gpu" in c["resources"]["limits"]]
    assert {one["spec"]["template"]["spec"]["nodeSelector"]["nvidia.com/gpu.product"] for one, _, _ in found} == {
        "NVIDIA-L40S",
        "NVIDIA-H100-80GB-HBM3",
    }
    targets = stages((ROOT / "Dockerfile").read_text())
    for _, container, env in found:
        assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
        assert (settings_of(env).slots, settings_of(env).builder) == (1, "tensorrt")
        assert container["image"].removeprefix("trtforge:") in targets


def test_the_pod_fetches_with_a_command_that_exists():
    [pod] = render(KUBERNETES / "example")
    [init] = pod["spec"]["initContainers"]
    group: Any = typer.main.get_command(app)
    name, command, rest = group.resolve_command(click.Context(group, info_name="trtforge"), list(init["args"]))
    said = command.make_context(name, rest).params
    assert (name, said["name"], said["wait"]) == ("fetch", "detector", 3600)
    [container] = pod["spec"]["containers"]
    assert container["readinessProbe"]["exec"]["command"][-1] == str(said["output"])
    assert said["output"].parent == Path(init["volumeMounts"][0]["mountPath"])


def test_the_monitor_selects_the_service_and_its_port():
    [monitor] = yaml.safe_load_all((KUBERNETES / "servicemonitor.yaml").read_text())
    [service] = [one for one in render(KUBERNETES / "base") if one["kind"] == "Service"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["authorization"]["credentials"]["name"] in SECRETS
    assert endpoint["path"] == "/metrics"
