"""An engine's whole way: built and signed, exported, taken in elsewhere, shipped, laid out for Triton, built again."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import httpx
import pytest
from google.protobuf import text_format
from typer.testing import CliRunner

from tests.conftest import Server
from tests.domain.test_triton import SCHEMA
from tests.system.api import Api
from tests.system.models import relus
from tests.system.soundness import assert_sound
from trtforge.archive import pieces
from trtforge.cache import Cache, wish_of
from trtforge.cli.main import app
from trtforge.client import Client
from trtforge.contract.engines import Manifest
from trtforge.contract.resolve import Resolve
from trtforge.contract.spec import BuildSpec
from trtforge.ensure import ensure_engine
from trtforge.errors import ServiceError, ServiceUnreachable
from trtforge.fingerprint import fingerprint
from trtforge.signature import SignatureRefused
from trtforge.transfer import digest_of

NOWHERE = "http://127.0.0.1:9"


def told(*words: str, code: int = 0) -> str:
    """Run the command in this process; return what it said."""
    ended = CliRunner().invoke(app, list(words))
    assert ended.exit_code == code, ended.output
    return ended.output


class Home:
    """A service that signs, with one engine, and the files around it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.key = folder, folder / "key"
        told("key", "create", str(self.key))
        self.public = f"{self.key}.pub"
        self.model = folder / "model.onnx"
        self.model.write_bytes(relus())
        content = self.model.read_bytes()
        self.server = Server(folder / "data", signing_key_file=str(self.key), slots="1").start()
        api = Api(self.server)
        ended = api.ended(api.submit(api.upload(content))["build"]["id"])
        self.engine_key: str = ended["engine"]["engine_key"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    made = Home(tmp_path_factory.mktemp("home"))
    yield made
    assert_sound(made.server)
    assert made.server.stop() == 0
    assert "Traceback" not in made.server.log.read_text()


@pytest.fixture(scope="module")
def shipped(home: Home) -> Path:
    folder = home.folder / "image"
    told("export", home.engine_key, "--to", str(folder), "--url", home.server.url, "--public-key", home.public)
    return folder


def test_keys_are_never_written_over_and_only_for_their_owner(home: Home):
    before = home.key.read_text()
    assert "exist" in told("key", "create", str(home.key), code=1)
    assert home.key.read_text() == before
    assert home.key.stat().st_mode & 0o777 == 0o600
    assert Path(home.public).read_text().strip() in told("key", "list", "--url", home.server.url)


def test_a_fetch_takes_what_the_key_signed_and_nothing_else(home: Home, tmp_path: Path):
    goal = tmp_path / "model.plan"
    words = ["fetch", home.engine_key, "-o", str(goal), "--url", home.server.url, "--public-key"]
    told(*words, home.public)
    assert goal.stat().st_size
    goal.unlink()
    told("key", "create", str(tmp_path / "other"))
    assert "signature_untrusted" in told(*words, str(tmp_path / "other.pub"), code=1)
    assert "cannot be read" in told(*words, str(tmp_path / "absent"), code=1)
    assert not goal.exists()
    answer = httpx.get(f"{home.server.url}/v1/engines/{home.engine_key}/signature")
    assert answer.headers["content-type"] == "application/vnd.dsse.envelope.v1+json"
    assert answer.json()["payloadType"] == "application/vnd.in-toto+json"
    assert httpx.get(f"{home.server.url}/v1/engines/sha256:{'0' * 64}/signature").json()["code"] == "not_found"


def test_ensure_checks_what_it_fetches_and_what_lies_in_the_cache(home: Home, tmp_path: Path):
    cache = Cache(tmp_path / "cache")
    path = ensure_engine(home.model, cache=cache, url=home.server.url, public_key=home.public)
    assert ensure_engine(home.model, cache=cache, url=NOWHERE, public_key=home.public) == path
    told("key", "create", str(tmp_path / "other"))
    other = str(tmp_path / "other.pub")
    with pytest.raises(ServiceUnreachable):  # what lies there is not signed by it, so the service is asked
        ensure_engine(home.model, cache=cache, url=NOWHERE, public_key=other, patience_s=0)
    with pytest.raises(SignatureRefused, match="signature_untrusted"):
        ensure_engine(home.model, cache=cache, url=home.server.url, public_key=other)
    another = tmp_path / "another.onnx"
    another.write_bytes(relus(3))
    place = cache.folder / wish_of(want=Resolve(model=digest_of(another), spec=BuildSpec(), target=fingerprint()))
    shutil.copytree(path.parent, place)  # signed, and of another model: whoever may write here cannot pass it off
    with pytest.raises(ServiceUnreachable):
        ensure_engine(another, cache=cache, url=NOWHERE, public_key=home.public, patience_s=0)


def test_an_engine_that_ships_in_an_image_needs_no_service(home: Home, shipped: Path, tmp_path: Path):
    for path in (shipped, *shipped.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    env = os.environ | {"TRTFORGE_ENGINE_PATH": f"{tmp_path}{os.pathsep}{shipped}", "TRTFORGE_URL": NOWHERE}
    env |= {"TRTFORGE_PUBLIC_KEY": home.public, "XDG_CACHE_HOME": str(tmp_path / "none")}
    command = [sys.executable, "-m", "trtforge", "ensure", str(home.model), "--patience", "0"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    [place] = list(shipped.iterdir())
    assert Path(ran.stdout.strip()) == place / "plan"
    other = subprocess.run(
        [*command, "--builderOptimizationLevel=1"], env=env, capture_output=True, text=True, timeout=60
    )
    assert other.returncode == 3, other.stderr  # another spec is another engine
    (place / "plan").chmod(0o644)
    (place / "plan").write_bytes(b"vtrt damaged")
    assert subprocess.run(command, env=env, capture_output=True, timeout=60).returncode == 3
    place.chmod(0o755)
    with Client(home.server.url) as client:  # laid out again, it is mended
        client.artifacts.export_to([home.engine_key], shipped)
    assert subprocess.run(command, env=env, capture_output=True, timeout=60).returncode == 0


def test_an_archive_goes_to_another_service_by_the_command(home: Home, shipped: Path, tmp_path: Path):
    archive = tmp_path / "engines.tar"
    told("export", home.engine_key, "-o", str(archive), "--url", home.server.url)
    checked = tmp_path / "checked.tar"
    told("export", home.engine_key, "-o", str(checked), "--url", home.server.url, "--public-key", home.public)
    assert checked.read_bytes() == archive.read_bytes()
    told("key", "create", str(tmp_path / "other"))
    words = ["export", home.engine_key, "--url", home.server.url, "--public-key", str(tmp_path / "other.pub")]
    for way in (("-o", str(tmp_path / "never.tar")), ("--to", str(tmp_path / "never"))):
        assert "signature_untrusted" in told(*words, *way, code=1)
    assert list(tmp_path.glob("*never*")) == []
    answer = httpx.get(f"{home.server.url}/v1/export", params={"key": home.engine_key})
    assert answer.content == archive.read_bytes() == b"".join(pieces(shipped))
    assert int(answer.headers["content-length"]) == len(answer.content)
    away = Server(tmp_path / "away", trusted_keys=home.public).start()
    try:
        with Client(away.url, public_key=home.public) as client:
            goal = tmp_path / "model.plan"
            with pytest.raises(ServiceError) as caught:
                client.artifacts.import_archive(BytesIO(archive.read_bytes()[:-2000]))
            assert caught.value.code == "archive_truncated"
            assert caught.value.members["imported"] == []
            assert "imported, signed by sha256:" in told("import", str(archive), "--url", away.url)
            assert "present" in told("import", str(shipped), "--url", away.url)
            manifest = client.fetch(home.engine_key, goal)
            assert client.ready(home.engine_key)
            assert [e.engine_key for e in client.engines()] == [home.engine_key]
        assert ensure_engine(home.model, cache=Cache(tmp_path / "c"), url=away.url).read_bytes() == goal.read_bytes()
        assert manifest.plan.size == goal.stat().st_size
        big = archive.read_bytes()[:512] + bytes(40 << 20)  # refused at once, and the sender still hears why
        with Client(away.url) as client, pytest.raises(ServiceError) as caught:
            client.artifacts.import_archive(BytesIO(big))
        assert caught.value.problem.status == 422
        forbidden = told("import", str(archive), "--allow-unsigned", "--url", away.url, code=2)
        assert "TRTFORGE_ALLOW_UNSIGNED_IMPORT" in forbidden
        assert away.stop() == 0
        assert "Traceback" not in away.log.read_text()
    finally:
        if away.process and away.process.poll() is None:
            away.kill()


def test_triton_gets_a_folder_by_its_own_schema(home: Home, tmp_path: Path):
    place = Path(
        told(
            "fetch", home.engine_key, "--triton", str(tmp_path), "--triton-name", "relus", "--url", home.server.url
        ).split()[-1]
    )
    assert place == tmp_path / "relus"
    answer = httpx.get(f"{home.server.url}/v1/engines/{home.engine_key}/triton", params={"name": "relus"})
    assert int(answer.headers["content-length"]) == len(answer.content)
    with tarfile.open(fileobj=BytesIO(answer.content)) as tar:
        found = {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
    assert set(found) == {"relus/config.pbtxt", "relus/1/model.plan"}
    for name, content in found.items():
        assert (tmp_path / name).read_bytes() == content
    config = text_format.Parse(found["relus/config.pbtxt"].decode(), SCHEMA.ModelConfig())
    manifest = Manifest.model_validate_json(httpx.get(f"{home.server.url}/v1/engines/{home.engine_key}").content)
    assert manifest.model.inputs
    assert [i.name for i in config.input] == [t.name for t in manifest.model.inputs]
    assert manifest.plan.size == len(found["relus/1/model.plan"])
    bad = httpx.get(f"{home.server.url}/v1/engines/{home.engine_key}/triton", params={"name": "../x"})
    assert (bad.status_code, bad.json()["code"]) == (422, "invalid_request")


def test_a_rebuild_gives_the_same_bytes_and_leaves_the_engine_as_it_is(home: Home):
    api = Api(home.server)
    before = api.get(f"/v1/engines/{home.engine_key}")
    assert "byte-identical" in told("rebuild", home.engine_key, "--url", home.server.url)
    ended = json.loads(told("rebuild", home.engine_key, "--url", home.server.url, "--json"))
    assert ended["engine_key"] == home.engine_key
    assert ended["rebuild"]["identical"] is True
    listed = httpx.get(f"{home.server.url}/v1/builds", params={"engine_key": home.engine_key}).json()["items"]
    assert ended["id"] in [one["id"] for one in listed]
    assert ended["rebuild"]["plan"] == before["plan"] == ended["engine"]["plan"]
    assert api.get(f"/v1/engines/{home.engine_key}") == before
    assert len(api.get("/v1/engines")["items"]) == 1
    kinds = [e["type"] for e in api.events(ended["id"])]
    assert kinds.count("phase_started") > 0
    assert kinds[-1] == "succeeded"
    assert "not_found" in told("rebuild", "sha256:" + "0" * 64, "--url", home.server.url, code=2)
