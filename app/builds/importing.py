"""Take engines in that were built elsewhere: nothing of an archive counts until it was checked, plans are code.

Per engine: the manifest's own key, then who signed it, and only then the plan's bytes come in, into a folder of ours.
It is kept under the lock of its key, in the order of a build's publish: plan, signature, manifest, row. A removal that ends
between plan and row may have taken the bytes, since no build in stage publish spoke for them; then the engine is taken
out again, and the import is to be repeated.
"""

import hashlib
from collections.abc import AsyncIterator
from functools import cached_property, partial
from pathlib import Path

from pydantic import ValidationError

from app.builds.exporting import MANIFEST, PLAN, SIGNATURE
from app.builds.parts import Parts, in_thread
from app.builds.publish import whole_engine
from app.builds.room import lacks
from app.builds.signing import trusted_keys
from app.builds.untar import Entry, Untar
from app.db import engines
from app.domain.digests import digest_of_files
from app.domain.key import KEY_SCHEMA, engine_key
from app.errors import Refused
from app.store.disk import disk_errors
from app.worker.locks import try_lock
from trtforge.contract.artifacts import Imported, ImportedEngine
from trtforge.contract.engines import Manifest
from trtforge.contract.provenance import manifest_digest
from trtforge.signature import PublicKeys, SignatureRefused

BATCH = 4 << 20  # bytes written per hop to a thread
HEAD = 1 << 16  # bytes in which a header that does not come first is looked for
MAGIC = (b"vtrt", b"ftrt", b"ptrt")  # TensorRT for RTX; TensorRT, and its older versions


class Importing:
    """One import. `done`: the engines that are in, also when it is refused further on."""

    def __init__(self, parts: Parts, allow_unsigned: bool = False) -> None:
        self._parts, self._allow_unsigned = parts, allow_unsigned
        self.done: list[ImportedEngine] = []

    async def run(self, body: AsyncIterator[bytes]) -> Imported:
        """Take in every engine of an archive. Raises `Refused`: archive_…, manifest_malformed, key_mismatch,
        signature_…, plan_…, store_full, engine_busy, forbidden."""
        if self._allow_unsigned and not self._parts.settings.allow_unsigned_import:
            raise Refused("forbidden", "This service takes signed engines only (TRTFORGE_ALLOW_UNSIGNED_IMPORT).")
        tar = Untar(body)
        entry = await tar.next()
        while entry:
            entry = await self._engine(tar, entry)
        await tar.finish()
        return Imported(items=tuple(self.done))

    async def _engine(self, tar: Untar, entry: Entry) -> Entry | None:
        """Take in the engine that begins with `entry`; return the entry after it."""
        key = entry.key
        raw = await tar.text(_expected(entry, key, MANIFEST))
        signature, plan = None, await tar.next()
        if plan and plan.name == SIGNATURE:
            signature = await tar.text(_expected(plan, key, SIGNATURE))
            plan = await tar.next()
        manifest = await in_thread(lambda: read_manifest(raw, key))
        signed_by = await in_thread(lambda: self._signed_by(signature, raw))
        if plan is None:
            raise Refused("archive_truncated", f"The plan of {key} is missing.")
        if _expected(plan, key, PLAN).size != manifest.plan.size:
            raise Refused("plan_mismatch", f"The plan has {plan.size} bytes, its manifest says {manifest.plan.size}.")
        folder = await in_thread(lambda: self._parts.store.scratch("import"))
        try:
            await self._receive(tar, folder / PLAN, manifest)
            kept = signature if signed_by else None  # a signature nobody here knows is worth nothing to those who ask
            new = await in_thread(lambda: keep(self._parts, manifest, folder / PLAN, kept))
        finally:
            await in_thread(lambda: self._parts.store.discard(folder))
        if not new:
            signed_by = await in_thread(lambda: self._present(manifest, kept))
        self.done.append(ImportedEngine(engine_key=key, outcome="imported" if new else "present", signed_by=signed_by))
        return await tar.next()

    def _present(self, manifest: Manifest, signature: bytes | None) -> str | None:
        """Return who signed the engine that was here already; the signature that came with the same one is kept."""
        store, key = self._parts.store, manifest.engine_key
        here = store.manifest(key)
        if signature and here == manifest and store.signature(key) is None:
            store.put_signature(key, signature)
        there = store.signature(key)
        if here is None or there is None or self._trusted is None:
            return None
        try:
            return self._trusted.check(there, here.model_dump_json().encode())
        except SignatureRefused:
            return None

    @cached_property
    def _trusted(self) -> PublicKeys | None:
        return trusted_keys(self._parts.settings)

    def _signed_by(self, signature: bytes | None, raw: bytes) -> str | None:
        keys = self._trusted
        try:
            if keys is None:
                code = "signature_untrusted" if signature else "signature_missing"
                raise SignatureRefused(code, "No key is trusted here (TRTFORGE_TRUSTED_KEYS)." if signature else None)
            return keys.check(signature, raw)
        except SignatureRefused as refused:
            if self._allow_unsigned and refused.code in ("signature_missing", "signature_untrusted"):
                return None
            raise Refused(refused.code, refused.detail) from refused

    async def _receive(self, tar: Untar, goal: Path, manifest: Manifest) -> None:
        """Write the plan to `goal`, if it begins as plans do and is the one its manifest names."""
        if why := await in_thread(lambda: lacks(self._parts, manifest.plan.size)):
            raise Refused("store_full", why)
        sha, batch, begun = hashlib.sha256(), bytearray(), False

        def take(ready: bytes) -> None:
            sha.update(ready)
            file.write(ready)

        with disk_errors(), goal.open("xb") as file:
            async for piece in tar.content():
                batch += piece
                if len(batch) >= BATCH:
                    begun = begun or check_header(batch)
                    await in_thread(partial(take, bytes(batch)))
                    batch.clear()
            if not begun:
                check_header(batch)
            await in_thread(partial(take, bytes(batch)))
        if f"sha256:{sha.hexdigest()}" != manifest.plan.digest:
            raise Refused("plan_mismatch", f"The plan is sha256:{sha.hexdigest()}, its manifest says another.")


def read_manifest(raw: bytes, key: str) -> Manifest:
    """Return a manifest that holds together. Raises `Refused`: manifest_malformed, key_mismatch."""
    try:
        manifest = Manifest.model_validate_json(raw)
        whole = manifest_digest(raw) == manifest_digest(manifest.model_dump_json().encode())
    except (ValidationError, ValueError) as error:
        raise Refused("manifest_malformed", f"The manifest of {key} is none.") from error
    if not whole:
        raise Refused("manifest_malformed", f"The manifest of {key} says things that this version does not know.")
    if manifest.key_schema != KEY_SCHEMA:
        raise Refused("key_mismatch", f"The key of {key} is of schema {manifest.key_schema}, not {KEY_SCHEMA}.")
    made = engine_key(manifest.model.digest, manifest.spec.effective, manifest.target)
    if not made == manifest.engine_key == key:
        raise Refused("key_mismatch", f"What stands under {key} has the key {made}.")
    files = manifest.model.files
    if manifest.model.digest not in (digest_of_files(files), files[0].digest if len(files) == 1 else None):
        raise Refused("key_mismatch", f"The model of {key} is not made of the files that its manifest lists.")
    return manifest


def check_header(head: bytes | bytearray) -> bool:
    """Return True when the bytes begin as a plan does. Raises `Refused`: plan_prefixed, plan_unrecognized."""
    if head[:4] in MAGIC:
        return True
    places = [place for magic in MAGIC if (place := head.find(magic, 0, HEAD)) > 0]
    if places:
        raise Refused("plan_prefixed", f"{min(places)} bytes stand in front of the plan's header.")
    raise Refused("plan_unrecognized")


def keep(parts: Parts, manifest: Manifest, staged: Path, signature: bytes | None) -> bool:
    """Keep an engine whose plan lies at `staged`; False: one of its key is here already, and stays as it is.

    Raises `Refused`: engine_busy.
    """
    key, store = manifest.engine_key, parts.store
    lock = try_lock(store.key_lock(key), {"import": key})
    if lock is None:
        raise Refused("engine_busy", retry_after=1)
    with lock:
        there = whole_engine(parts, key)
        if there is None:
            with store.take_plan(staged) as plan:
                store.put_plan(plan)
            store.put_signature(key, signature) if signature else store.remove_signature(key)
        kept = there or store.put_manifest(manifest)
        with parts.database.write() as tx:
            engines.add(tx, kept)
        if not store.has_plan(kept.plan.digest, kept.plan.size):
            with parts.database.write() as tx:
                engines.remove(tx, key)
            store.remove_manifest(key)
            raise Refused("engine_busy", "Its bytes were removed with another engine's meanwhile.", retry_after=1)
    return there is None


def _expected(entry: Entry, key: str, name: str) -> Entry:
    if (entry.key, entry.name) != (key, name):
        raise Refused("archive_malformed", f"{entry.name} of {entry.key} comes where {name} of {key} is due.")
    return entry
