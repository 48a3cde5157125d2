"""`deploy/` without a cluster: compose, systemd, and every variable that any of it names."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from app.settings import Settings
from tests.deploy.image import ROOT, stages
from tests.deploy.test_kubernetes import MARGIN_S, longest_stop_s, settings_of

DEPLOY = ROOT / "deploy"
CLIENT = {"TRTFORGE_URL", "TRTFORGE_TOKEN"}


def test_every_variable_that_is_named_is_a_setting():
    known = {f"TRTFORGE_{name.upper()}" for name in Settings.model_fields} | CLIENT
    known |= {f"{name}_FILE" for name in ("TRTFORGE_DATABASE_URL", "TRTFORGE_ADMIN_TOKEN")}
    texts = {path: path.read_text() for path in [*DEPLOY.rglob("*"), ROOT / "Dockerfile"] if path.is_file()}
    named = {name for text in texts.values() for name in re.findall(r"TRTFORGE_[A-Z_]*[A-Z]", text)}
    assert len(named) > 5
    assert named - known == set()


def test_compose_hangs_together():
    said: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = said["services"]
    for service in services.values():
        assert set(service.get("secrets", [])) <= said["secrets"].keys()
        assert {volume.partition(":")[0] for volume in service["volumes"]} <= said["volumes"].keys()
        assert set(service.get("depends_on", {})) <= services.keys()
        for name, value in service["environment"].items():
            if name.endswith("_FILE"):
                assert Path(value).parent == Path("/run/secrets")
                assert Path(value).name in service["secrets"]
    ours = services["trtforge"]
    assert ours["build"]["target"] in stages((ROOT / "Dockerfile").read_text())
    assert (DEPLOY / ours["build"]["context"]).resolve() == ROOT
    assert float(ours["stop_grace_period"].rstrip("s")) >= longest_stop_s(settings_of(ours["environment"])) + MARGIN_S
    assert all(port.startswith("127.0.0.1:") for port in ours["ports"])


def unit() -> dict[str, dict[str, list[str]]]:
    """Return sections of the unit, each name with all its values."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in (DEPLOY / "trtforge.service").read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            assert equals, line
            section.setdefault(name, []).append(value)
    return found


def test_the_unit_starts_the_service_and_gives_it_time_to_stop():
    service = unit()["Service"]
    assert service["Type"] == ["exec"]
    assert service["ExecStart"] == ["/opt/trtforge/bin/trtforge serve"]
    env = dict(value.split("=", 1) for value in service["Environment"])
    [stop] = service["TimeoutStopSec"]
    assert float(stop) >= longest_stop_s(settings_of(env)) + MARGIN_S
    assert service["KillSignal"] == ["SIGTERM"]
    assert env["TRTFORGE_DATA_DIR"] == f"/var/lib/{service['StateDirectory'][0]}"
    assert Path(env["TRTFORGE_LOCK_DIR"]).parent == Path("/run") / service["RuntimeDirectory"][0]
    credential, _, _ = service["LoadCredential"][0].partition(":")
    assert env["TRTFORGE_ADMIN_TOKEN_FILE"] == f"%d/{credential}"


def test_the_unit_leaves_builders_what_they_shut_themselves_in_with():
    service = unit()["Service"]
    allowed = service["SystemCallFilter"][0].split()
    assert {"seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"} <= set(allowed)
    assert service["NoNewPrivileges"] == ["yes"]


def test_systemd_takes_the_unit(tmp_path: Path):
    """Where systemd is at hand it reads the unit itself; everywhere no name is misspelt or comes twice."""
    text = (DEPLOY / "trtforge.service").read_text()
    many = {"Environment", "LoadCredential"}
    assert [
        name for part in unit().values() for name, values in part.items() if len(values) > 1 and name not in many
    ] == []
    assert list(unit()) == ["Unit", "Service", "Install"]
    configparser.ConfigParser(strict=False, interpolation=None).read_string(text)
    if analyze := shutil.which("systemd-analyze"):
        copy = tmp_path / "trtforge.service"
        copy.write_text(text.replace("/opt/trtforge/bin/trtforge", "/bin/true"))
        done = subprocess.run([analyze, "verify", str(copy)], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
