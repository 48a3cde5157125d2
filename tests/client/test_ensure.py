"""The engine for this machine: cached, built once for many processes, found with the service down, bounded in size."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.client.wire import manifest
from tests.conftest import Server, light
from trtforge.admin import Admin
from trtforge.aio import ADMIN_PLAIN, ADMIN_STREAMS, ARTIFACTS, PLAIN, STREAMS, AsyncClient
from trtforge.artifacts import Artifacts
from trtforge.cache import Cache, wish_of
from trtforge.cli.main import app
from trtforge.client import Client
from trtforge.contract.builds import Submit
from trtforge.contract.engines import Manifest
from trtforge.contract.spec import BuildSpec
from trtforge.contract.target import TargetSelector
from trtforge.ensure import ensure_engine, ensure_engine_async
from trtforge.errors import NoEngine, ServiceError, ServiceUnreachable
from trtforge.fingerprint import Gpu, fingerprint

ENSURE = "import sys; from trtforge.ensure import ensure_engine; print(ensure_engine(sys.argv[1], url=sys.argv[2]))"
MODEL = light("squeezenet")


def test_ten_processes_build_and_download_once_and_then_need_no_service(server: Server, tmp_path: Path):
    env = os.environ | {"TRTFORGE_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", ENSURE, str(MODEL), server.url]
    many = [subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) for _ in range(10)]
    told = {one.communicate(timeout=120)[0].strip() for one in many}
    assert [one.returncode for one in many] == [0] * 10
    [path] = told
    asked = [line for line in server.log.read_text().splitlines() if '"path"' in line]
    assert len([line for line in asked if "/plan" in line]) == 1
    with Client(server.url) as client:
        assert len(list(client.builds())) == 1
        [engine] = client.engines()
    assert Path(path).stat().st_size == engine.plan.size
    server.stop()
    again = subprocess.run(command, capture_output=True, env=env, text=True, timeout=60)
    assert (again.returncode, again.stdout.strip()) == (0, path)
    Path(path).write_bytes(b"damaged")  # then it is fetched again, or not at all
    with pytest.raises(ServiceUnreachable):
        ensure_engine(MODEL, cache=Cache(tmp_path / "cache"), url=server.url, patience_s=0)


def test_the_command_for_an_init_container_and_the_async_ways(make_server: Callable[..., Server], tmp_path: Path):
    server = make_server()
    goal = tmp_path / "model.plan"
    words = ["ensure", str(MODEL), "-o", str(goal), "--cache-dir", str(tmp_path / "cache"), "--url", server.url]
    for _ in range(2):
        ended = CliRunner().invoke(app, words)
        assert (ended.exit_code, ended.stdout) == (0, f"{goal}\n"), ended.output
    spec = BuildSpec(optimization_level=0)

    async def both() -> list[Path]:
        cache = Cache(tmp_path / "other")
        return await asyncio.gather(*(ensure_engine_async(MODEL, spec, cache=cache, url=server.url) for _ in range(2)))

    one, other = asyncio.run(both())
    assert one == other
    assert one.stat().st_size > 1 << 20

    async def follow() -> list[str]:
        async with AsyncClient(server.url) as client:
            model = await client.upload(MODEL)
            asked = await client.submit(Submit(model=model.digest, spec=BuildSpec(optimization_level=1)))
            types = [event.type async for event in client.events(asked.build.id)]
            assert (await client.request(asked.request_id)).state == "served"
            engines = [engine async for engine in client.engines()]
            assert len(engines) == 3
            await _artifacts(client, engines[0].engine_key, tmp_path / "carried")
            return types

    assert asyncio.run(follow())[-1] == "succeeded"


async def _artifacts(client: AsyncClient, key: str, folder: Path) -> None:
    """The same parts and errors as of `Client`, beside the loop."""
    proven = await client.artifacts.prove(key)
    assert proven.manifest.engine_key == key
    (laid,) = await client.artifacts.export_to([key], folder)
    assert (laid / "plan").stat().st_size == proven.manifest.plan.size
    with pytest.raises(ServiceError) as refused:
        await client.artifacts.signature(key)
    assert refused.value.code == "unsigned"
    with pytest.raises(AttributeError):
        _ = client.artifacts.tokens


def test_a_build_that_fails_says_why(make_server: Callable[..., Server], tmp_path: Path):
    server = make_server()
    import onnx
    from onnx import TensorProto
    from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

    x, y = (make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = make_graph([make_node("Nonsense", ["x"], ["y"], domain="own")], "g", [x], [y])
    path = tmp_path / "m.onnx"
    onnx.save(make_model(graph, opset_imports=[make_opsetid("", 17), make_opsetid("own", 1)], ir_version=8), path)
    with pytest.raises(NoEngine) as caught:
        ensure_engine(path, cache=Cache(tmp_path / "cache"), url=server.url)
    assert caught.value.request.failure


def kept(cache: Cache, number: int) -> str:
    plan = bytes([number]) * 1000
    wish = wish_of(number=str(number))
    cache.plan_of(wish).write_bytes(plan)
    cache.keep(wish, Manifest.model_validate(manifest(plan)))
    os.utime(cache.folder / wish / "manifest.json", (number, number))
    return wish


def test_the_least_recently_used_goes_first_and_what_is_locked_stays(tmp_path: Path):
    cache = Cache(tmp_path, most_bytes=10_000)  # a plan and its manifest: 2,700
    wishes = [kept(cache, number) for number in range(1, 4)]
    assert all(cache.find(wish) for wish in wishes)
    for number, wish in enumerate([wishes[1], wishes[2], wishes[0]]):
        os.utime(tmp_path / wish / "manifest.json", (number, number))
    with cache.lock(wishes[1]):
        more = [kept(cache, number) for number in (5, 6)]
    assert cache.find(wishes[1])
    assert cache.find(wishes[2]) is None
    assert all(cache.find(wish) for wish in more)
    small = Cache(tmp_path, most_bytes=10)
    last = kept(small, 7)
    assert small.find(last)  # one may always stay
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == [last]


def test_a_half_written_engine_is_no_hit(tmp_path: Path):
    cache = Cache(tmp_path)
    wish = kept(cache, 1)
    cache.plan_of(wish).write_bytes(b"half")  # killed before the marker
    assert cache.find(wish) is None
    wish = kept(cache, 2)
    (tmp_path / wish / "manifest.json").write_text("{")
    assert cache.find(wish) is None
    assert not (tmp_path / wish).exists()


def test_the_cache_is_where_the_desktop_standard_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("TRTFORGE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache().folder == tmp_path / "trtforge"


def test_every_field_of_a_wish_counts():
    spec = BuildSpec(optimization_level=1)
    wishes = [{"model": "a"}, {"model": "b"}, {"model": "a", "spec": spec}, {"model": "a", "spec": BuildSpec()}]
    assert len({wish_of(**wish) for wish in wishes}) == 4  # type: ignore[arg-type]


def test_a_machine_says_what_it_is():
    said = fingerprint()
    assert (said.builder, said.gpu, said.os) == ("tensorrt_rtx", None, "linux")
    assert said.builder_version  # of the runtime that is installed here
    gpu = fingerprint(Gpu("NVIDIA L40S", "580.1", "8.9"))
    assert (gpu.gpu, gpu.driver, gpu.compute_capabilities) == ("NVIDIA L40S", "580.1", ("8.9",))
    assert TargetSelector.model_validate(gpu.model_dump()) == gpu


def test_the_async_client_has_every_method_of_the_other():
    assert methods_of(Client) - {"close"} == PLAIN | STREAMS
    assert methods_of(Artifacts) == ARTIFACTS
    assert methods_of(Admin) == ADMIN_PLAIN | ADMIN_STREAMS


def methods_of(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")}
