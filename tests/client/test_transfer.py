"""Models up, plans down: cuts are resumed, bytes are verified, nothing half-made is left."""

from pathlib import Path

import pytest

from tests.client.scripted import Scripted, answer, problem
from tests.client.wire import DIGEST, MODEL, PLAN, client, digest, manifest
from trtforge.errors import PlanMismatch, ServiceError

TAG = digest(PLAN)


def names_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_cut_download_is_resumed_and_verified(tmp_path: Path):
    cut = answer(body=PLAN, cut=5000, tag=TAG)
    rest = answer("206 Partial Content", PLAN[5000:], tag=TAG)
    seen: list[tuple[int, int]] = []
    with Scripted([answer(body=manifest()), cut, rest]) as server, client(server) as c:
        c.fetch(DIGEST, tmp_path / "e.plan", progress=lambda *moved: seen.append(moved))
        assert (tmp_path / "e.plan").read_bytes() == PLAN
        assert names_in(tmp_path) == ["e.plan"]
        assert server.asked[2].headers["range"] == "bytes=5000-"
        assert server.asked[2].headers["if-range"] == f'"{TAG}"'
        assert seen[-1] == (len(PLAN), len(PLAN))


def test_a_whole_answer_to_a_resume_starts_over(tmp_path: Path):
    answers = [answer(body=manifest()), answer(body=PLAN, cut=5000, tag=TAG), answer(body=PLAN, tag=TAG)]
    with Scripted(answers) as server, client(server) as c:
        c.fetch(DIGEST, tmp_path / "e.plan")
        assert (tmp_path / "e.plan").read_bytes() == PLAN


@pytest.mark.parametrize(
    "wrong",
    [
        answer(body=PLAN[:-1] + b"x", tag=TAG),
        answer(body=PLAN + b"x", tag=TAG),
        answer(body=PLAN, tag="sha256:other"),
    ],
    ids=["another byte", "too long", "another tag"],
)
def test_other_bytes_leave_what_was_there(tmp_path: Path, wrong: bytes):
    (tmp_path / "e.plan").write_bytes(b"old")
    with Scripted([answer(body=manifest()), wrong]) as server, client(server) as c, pytest.raises(PlanMismatch):
        c.fetch(DIGEST, tmp_path / "e.plan")
    assert (tmp_path / "e.plan").read_bytes() == b"old"
    assert names_in(tmp_path) == ["e.plan"]


def test_a_damaged_engine_is_refused_and_leaves_nothing(tmp_path: Path):
    gone = answer("410 Gone", problem(410, "engine_corrupt"))
    with Scripted([answer(body=manifest()), gone]) as server, client(server) as c, pytest.raises(ServiceError):
        c.fetch(DIGEST, tmp_path / "e.plan")
    assert names_in(tmp_path) == []


def test_a_known_model_is_not_sent(tmp_path: Path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"abc")
    with Scripted([answer(body=MODEL)]) as server, client(server) as c:
        assert c.upload(path).node_count == 1
        assert [(a.method, a.path) for a in server.asked] == [("GET", "/v1/models/" + digest(b"abc"))]


def test_a_cut_upload_is_sent_again_whole(tmp_path: Path):
    path = tmp_path / "m.onnx"
    path.write_bytes(PLAN)
    seen: list[tuple[int, int]] = []
    unknown = answer("404 Not Found", problem(404, "not_found"))
    with Scripted([unknown, b"", answer("201 Created", MODEL)]) as server, client(server) as c:
        c.upload(path, progress=lambda *moved: seen.append(moved))
        assert [a.method for a in server.asked] == ["GET", "PUT", "PUT"]
        assert server.asked[2].body == PLAN
        assert seen[-1] == (len(PLAN), len(PLAN))
