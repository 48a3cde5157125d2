"""What is exported comes in whole elsewhere; what was changed, is unsigned or is no engine stays out, each by its name."""

import asyncio
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.builds.importing import keep
from app.builds.parts import Parts
from app.builds.publish import whole_engine
from app.builds.removal import remove
from app.builds.resolve import resolve
from app.db import engines
from app.errors import NotReady, Refused
from app.settings import Settings
from app.store.local import LocalStore
from app.worker.locks import try_lock
from tests.builds.carried import (
    HEAD,
    OTHER_PRIVATE,
    OTHER_PUBLIC,
    PRIVATE,
    PUBLIC,
    exported,
    files_of,
    made,
    service,
    taken,
    tar_of,
)
from tests.domain.test_key import MODEL, SPEC, TARGET
from trtforge.contract.engines import Manifest
from trtforge.contract.resolve import Resolve
from trtforge.contract.target import TargetSelector
from trtforge.signature import PublicKeys, Signer

PLAN = HEAD + bytes(range(256)) * 300
LEVEL = SPEC.model_copy(update={"optimization_level": 5})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Parts, list[Manifest], bytes]]:
    """A service that signs, its two engines, and the archive of them."""
    with service(tmp_path_factory.mktemp("home") / "data", signing_key=PRIVATE) as parts:
        engines = made(parts, (MODEL, SPEC, TARGET, PLAN), (MODEL, LEVEL, TARGET, PLAN + b"more"))
        yield parts, engines, asyncio.run(exported(parts, [e.engine_key for e in engines]))


@pytest.fixture
def away(tmp_path: Path) -> Iterator[Parts]:
    with service(tmp_path / "away", trusted_keys=PUBLIC) as parts:
        yield parts


def refused(parts: Parts, content: bytes, **how: Any) -> str:
    with pytest.raises(Refused) as caught:
        asyncio.run(taken(parts, content, **how))
    assert list(parts.store.scratch("probe").parent.glob("import.*")) == []
    return caught.value.code


def changed(archive: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """Return the first engine's part of an archive with one of its files changed."""
    files = files_of(archive)
    key = files[0][0].split("/")[0]
    mine = [(n, c) for n, c in files if n.startswith(key)]
    return tar_of([(n, change(c) if n.endswith(name) else c) for n, c in mine])


def edited(**fields: Any) -> Callable[[bytes], bytes]:
    return lambda raw: json.dumps({**json.loads(raw), **fields}).encode()


def test_an_archive_is_the_same_for_the_same_engines_and_any_reader_opens_it(home: Any):
    parts, made_, archive = home
    keys = [e.engine_key for e in made_]
    assert asyncio.run(exported(parts, [*reversed(keys), *keys])) == archive
    files = dict(files_of(archive))
    assert len(files) == 6
    for engine in made_:
        folder = engine.engine_key.removeprefix("sha256:")
        assert Manifest.model_validate_json(files[f"{folder}/manifest.json"]) == engine
        assert PublicKeys.read(PUBLIC).check(files[f"{folder}/signature.json"], files[f"{folder}/manifest.json"])
    assert files[f"{made_[0].engine_key[7:]}/plan"] == PLAN


def test_what_was_imported_is_found_and_served_as_if_built_here(home: Any, database_url: str, tmp_path: Path):
    _, made_, archive = home
    with service(tmp_path / "away", database_url, trusted_keys=PUBLIC) as away:
        answer = asyncio.run(taken(away, archive))
        signer = Signer(PRIVATE.encode()).public.keyid
        assert {(i.engine_key, i.outcome, i.signed_by) for i in answer.items} == {
            (e.engine_key, "imported", signer) for e in made_
        }
        for engine in made_:
            assert whole_engine(away, engine.engine_key) == engine
            with away.database.read() as tx:
                stored = engines.manifest(tx, engine.engine_key)
            assert stored is not None
            signature = away.store.signature(engine.engine_key)
            assert PublicKeys.read(PUBLIC).check(signature, stored.encode()) == signer
        found = resolve(away, Resolve(model=MODEL, target=TargetSelector(compute_capabilities=("8.9",))))
        assert found.engine.engine_key in {e.engine_key for e in made_}
        assert asyncio.run(exported(away, [e.engine_key for e in made_])) == archive
        assert {i.outcome for i in asyncio.run(taken(away, archive, piece=1)).items} == {"present"}


def test_folders_and_leading_dots_of_a_repacked_archive_are_fine(home: Any, away: Parts, tmp_path: Path):
    _, made_, archive = home
    folders = [tarfile.TarInfo(name) for name in (".", f"./{made_[0].engine_key[7:]}")]
    for folder in folders:
        folder.type = tarfile.DIRTYPE
    content = tar_of([*folders, *((f"./{name}", content) for name, content in files_of(archive))])
    assert len(asyncio.run(taken(away, content)).items) == 2


def test_unsigned_and_foreign_engines_stay_out_unless_both_sides_say_otherwise(home: Any, tmp_path: Path):
    _, made_, archive = home
    unsigned = tar_of([f for f in files_of(archive) if not f[0].endswith("signature.json")])
    with service(tmp_path / "strict", trusted_keys=OTHER_PUBLIC) as strict:
        assert refused(strict, archive) == "signature_untrusted"
        assert refused(strict, unsigned) == "signature_missing"
        assert refused(strict, unsigned, allow_unsigned=True) == "forbidden"
    with service(tmp_path / "open", allow_unsigned_import=True) as open_:
        assert refused(open_, archive) == "signature_untrusted"  # no key is trusted here
        assert refused(open_, unsigned) == "signature_missing"
        assert [i.signed_by for i in asyncio.run(taken(open_, archive, allow_unsigned=True)).items] == [None, None]
        assert open_.store.signature(made_[0].engine_key) is None  # nobody here vouches for it
    with service(tmp_path / "lax", allow_unsigned_import=True, trusted_keys=PUBLIC) as lax:
        assert len(asyncio.run(taken(lax, unsigned, allow_unsigned=True)).items) == 2
        broken = changed(archive, "manifest.json", edited(warnings=["changed"]))
        assert refused(lax, broken, allow_unsigned=True) == "signature_other_manifest"  # signed, and not this


def test_a_changed_engine_is_refused_by_what_was_changed(home: Any, away: Parts):
    _, _, archive = home

    def plan(change: Callable[[bytes], bytes]) -> str:
        return refused(away, changed(archive, "/plan", change))

    def manifest(**fields: Any) -> str:
        return refused(away, changed(archive, "manifest.json", edited(**fields)))

    assert plan(lambda p: p[:-1] + b"x") == "plan_mismatch"
    assert plan(lambda p: p + b"x") == "plan_mismatch"
    assert manifest(warnings=["all is well"]) == "signature_other_manifest"
    assert manifest(engine_key="sha256:" + "0" * 64) == "key_mismatch"
    assert manifest(key_schema=2) == "key_mismatch"
    assert manifest(model={"digest": "sha256:" + "cd" * 32, "files": []}) == "key_mismatch"
    assert manifest(schema=2) == "manifest_malformed"
    assert manifest(news="of a later version") == "manifest_malformed"
    assert refused(away, changed(archive, "manifest.json", lambda _: b"[" * 100_000)) == "manifest_malformed"
    assert refused(away, changed(archive, "signature.json", lambda _: b"{}")) == "signature_malformed"
    other = Signer(OTHER_PRIVATE.encode())
    foreign = other.sign(Manifest.model_validate_json(dict(files_of(archive))[files_of(archive)[0][0]]))
    assert refused(away, changed(archive, "signature.json", lambda _: foreign)) == "signature_untrusted"
    with away.database.read() as tx:
        assert engines.of_model(tx, MODEL, 9) == []
    assert list(away.store.manifests()) == []


def test_a_model_that_is_not_made_of_its_files_is_refused(home: Any, away: Parts):
    _, _, archive = home
    listed = [{"name": "model.onnx", "digest": "sha256:" + "0" * 64, "size": 1}]
    content = changed(archive, "manifest.json", edited(model={"digest": MODEL, "files": listed}))
    assert refused(away, content) == "key_mismatch"


@pytest.mark.parametrize(
    ("plan", "code"),
    [(b"\x10\x00\x00\x00{'stride': 32}" + HEAD, "plan_prefixed"), (b"GIF89a" * 99, "plan_unrecognized")],
)
def test_a_plan_that_does_not_begin_with_its_header_is_refused_by_name(plan: bytes, code: str, tmp_path: Path):
    with service(tmp_path / "home", signing_key=PRIVATE) as home:
        [engine] = made(home, (MODEL, SPEC, TARGET, plan))
        archive = asyncio.run(exported(home, [engine.engine_key]))
    with service(tmp_path / "away", trusted_keys=PUBLIC) as away:
        assert refused(away, archive) == code


def entry(name: str, kind: bytes, **more: Any) -> tarfile.TarInfo:
    made_ = tarfile.TarInfo(name)
    made_.type = kind
    for field, value in more.items():
        setattr(made_, field, value)
    return made_


KEY = "ab" * 32
HOSTILE = {
    "a link": (entry(f"{KEY}/plan", tarfile.SYMTYPE, linkname="/etc/passwd"), "archive_unsafe"),
    "a hard link": (entry(f"{KEY}/plan", tarfile.LNKTYPE, linkname="x"), "archive_unsafe"),
    "a device": (entry(f"{KEY}/plan", tarfile.CHRTYPE), "archive_unsafe"),
    "a FIFO": (entry(f"{KEY}/plan", tarfile.FIFOTYPE), "archive_unsafe"),
    "a name above": (entry(f"../{KEY}/plan", tarfile.REGTYPE), "archive_unsafe"),
    "a way round": (entry(f"{KEY}/../../plan", tarfile.REGTYPE), "archive_unsafe"),
    "an absolute name": (entry(f"/{KEY}/plan", tarfile.REGTYPE), "archive_unsafe"),
    "another system's name": (entry(f"{KEY}\\..\\plan", tarfile.REGTYPE), "archive_unsafe"),
    "a folder above": (entry("..", tarfile.DIRTYPE), "archive_unsafe"),
    "another file": (entry(f"{KEY}/run.sh", tarfile.REGTYPE), "archive_malformed"),
    "no key": (entry("engine/plan", tarfile.REGTYPE), "archive_malformed"),
    "a plan first": (entry(f"{KEY}/plan", tarfile.REGTYPE), "archive_malformed"),
    "a sparse file": (entry(f"{KEY}/plan", tarfile.GNUTYPE_SPARSE), "archive_malformed"),
    "other headers": (entry(f"{KEY}/manifest.json", tarfile.XHDTYPE), "archive_malformed"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_plain_file_of_an_engine_is_refused(name: str, away: Parts):
    member, code = HOSTILE[name]
    assert refused(away, tar_of([member])) == code


def test_sizes_that_are_announced_are_not_believed(home: Any, away: Parts):
    huge = entry(f"{KEY}/manifest.json", tarfile.REGTYPE, size=1 << 50)
    assert refused(away, huge.tobuf(tarfile.GNU_FORMAT)) == "archive_malformed"
    _, _, archive = home
    before = archive.index(archive_header(archive, 2))
    plan = entry(files_of(archive)[2][0], tarfile.REGTYPE, size=1 << 50)
    assert refused(away, archive[:before] + plan.tobuf(tarfile.GNU_FORMAT)) == "plan_mismatch"


def test_an_archive_that_ends_early_leaves_the_engines_before_the_cut(home: Any, away: Parts):
    _, _, archive = home
    second = archive.index(archive_header(archive, 3))
    for cut in (0, 1, 512, 700, second - 512, second + 512, len(archive) - 2000, len(archive) - 1024):
        assert refused(away, archive[:cut]) == "archive_truncated", cut
    assert len(list(away.store.manifests())) == 2  # the last cut took only the end marks
    assert refused(away, bytes(100) + archive) == "archive_malformed"


def archive_header(archive: bytes, number: int) -> bytes:
    header = tarfile.TarInfo(files_of(archive)[number][0])
    header.size = len(files_of(archive)[number][1])
    return header.tobuf(tarfile.GNU_FORMAT)


def test_a_member_that_comes_twice_is_refused(home: Any, away: Parts):
    _, _, archive = home
    manifest, *_ = files = files_of(archive)
    assert refused(away, tar_of([manifest, manifest])) == "archive_duplicate"
    assert refused(away, tar_of([*files[:3], *files[:3]])) == "archive_duplicate"
    assert refused(away, tar_of([manifest])) == "signature_missing"
    assert refused(away, tar_of(files[:2])) == "archive_truncated"
    assert refused(away, tar_of([files[0], files[4], files[2]])) == "archive_malformed"


def test_a_key_that_is_being_built_is_busy_and_a_full_disk_is_full(home: Any, away: Parts, tmp_path: Path):
    _, made_, archive = home
    lock = try_lock(away.store.key_lock(made_[0].engine_key), {})
    assert lock
    with lock:
        assert refused(away, archive) == "engine_busy"
    with service(tmp_path / "full", trusted_keys=PUBLIC, min_free_bytes=1 << 60) as full:
        assert refused(full, archive) == "store_full"


def test_an_engine_behind_the_end_of_an_archive_is_no_secret(home: Any, away: Parts):
    _, made_, archive = home
    assert refused(away, archive + archive) == "archive_malformed"
    assert refused(away, archive + bytes(2 << 20)) == "archive_malformed"
    assert len(asyncio.run(taken(away, archive + bytes(10240))).items) == len(made_)


def test_an_instant_outside_the_calendar_is_a_malformed_manifest(home: Any, away: Parts):
    _, _, archive = home
    for at in ("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"):
        assert refused(away, changed(archive, "manifest.json", edited(created_at=at))) == "manifest_malformed"


def test_who_signed_is_said_of_what_is_kept(home: Any, tmp_path: Path):
    _, made_, archive = home
    signer = Signer(PRIVATE.encode()).public.keyid
    unsigned = tar_of([(name, content) for name, content in files_of(archive) if not name.endswith("signature.json")])
    with service(tmp_path / "lax", trusted_keys=PUBLIC, allow_unsigned_import=True) as lax:
        assert {one.signed_by for one in asyncio.run(taken(lax, unsigned, allow_unsigned=True)).items} == {None}
        again = asyncio.run(taken(lax, archive)).items
        assert {(one.outcome, one.signed_by) for one in again} == {("present", signer)}
        assert all(lax.store.signature(engine.engine_key) for engine in made_)  # it came with the same engine
    other = changed(archive, "manifest.json", edited(warnings=["planted"]))
    bare = tar_of([(name, content) for name, content in files_of(other) if not name.endswith("signature.json")])
    with service(tmp_path / "other", trusted_keys=PUBLIC, allow_unsigned_import=True) as lax:
        asyncio.run(taken(lax, bare, allow_unsigned=True))
        answers = asyncio.run(taken(lax, archive)).items
        assert {one.signed_by for one in answers if one.outcome == "present"} == {None}


class Removing(LocalStore):
    """A store on which a removal ends at the worst moment: when the plan is kept and nothing speaks for it yet."""

    def put_manifest(self, manifest: Manifest) -> Manifest:
        self.remove_plan(manifest.plan.digest)
        return super().put_manifest(manifest)


def test_bytes_that_a_removal_takes_meanwhile_leave_no_engine(home: Any, away: Parts, tmp_path: Path):
    _, made_, _ = home
    engine = made_[0]
    staged = away.store.scratch("test") / "plan"
    staged.write_bytes(PLAN)
    store = Removing(away.settings.data_dir / "store")
    store.open_staging("removing")
    with pytest.raises(Refused, match="engine_busy"):
        keep(replace(away, store=store), engine, staged, None)
    store.close()
    assert away.store.manifest(engine.engine_key) is None
    with away.database.read() as tx:
        assert not engines.is_there(tx, engine.engine_key)


def test_a_removal_takes_the_signature_too_and_an_unsigned_build_after_it_has_none(tmp_path: Path):
    with service(tmp_path / "data", signing_key=PRIVATE) as parts:
        [engine] = made(parts, (MODEL, SPEC, TARGET, PLAN))
        assert parts.store.signature(engine.engine_key)
        remove(parts, engine.engine_key)
        assert parts.store.signature(engine.engine_key) is None
        parts.store.put_signature(engine.engine_key, b"left by a crash")
    with service(tmp_path / "data") as keyless:
        made(keyless, (MODEL, SPEC, TARGET, PLAN))
        assert keyless.store.signature(engine.engine_key) is None


def test_keys_that_cannot_be_used_keep_the_service_from_starting(tmp_path: Path):
    from app.builds.signing import signer_of, trusted_keys

    with pytest.raises(NotReady, match="TRTFORGE_SIGNING_KEY"):
        signer_of(Settings(data_dir=tmp_path, signing_key=PUBLIC))
    with pytest.raises(NotReady, match="TRTFORGE_TRUSTED_KEYS"):
        trusted_keys(Settings(data_dir=tmp_path, trusted_keys=str(tmp_path / "absent")))
