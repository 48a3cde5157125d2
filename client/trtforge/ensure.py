"""What an inference service calls at start: the engine for this machine, from here if it is here, else built once."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from trtforge import shipped
from trtforge.cache import Cache, Kept, wish_of
from trtforge.client import Client
from trtforge.contract.builds import Submit, Submitted
from trtforge.contract.engines import Manifest
from trtforge.contract.events import Event
from trtforge.contract.resolve import Policy, Resolve
from trtforge.contract.spec import BuildOptions, BuildSpec
from trtforge.contract.target import TargetSelector
from trtforge.download import Moved
from trtforge.errors import NoEngine, ServiceError
from trtforge.fingerprint import fingerprint
from trtforge.signature import Given, PublicKeys, SignatureRefused
from trtforge.transfer import digest_of


def ensure_engine(
    model: str | Path,
    spec: BuildSpec | None = None,
    *,
    target: TargetSelector | None = None,
    policy: Policy = "exact",
    options: BuildOptions | None = None,
    cache: Cache | None = None,
    url: str | None = None,
    token: str | None = None,
    patience_s: float = 60.0,
    on_event: Callable[[Event], None] | None = None,
    on_bytes: Moved | None = None,
    public_key: Given | Sequence[Given] | None = None,
) -> Path:
    """Return where the verified plan of an engine lies that this machine can load; build it first if need be.

    `model` is an .onnx file, or the digest of one that the service has. `target` is what this machine says of itself, by
    default `fingerprint()`. What is in a folder of `TRTFORGE_ENGINE_PATH` or in the local cache is returned without asking anybody, so it works with the service
    down; processes of one host that ask together fetch it once. The path stays while the cache has room: open it now.

    `public_key` (PEM, or files of it; else what `TRTFORGE_PUBLIC_KEY` names): then only an engine that one of these
    signed is returned, wherever it lies.

    Raises `NoEngine` when the build fails, `ServiceError`, `ServiceUnreachable`, `PlanMismatch`, `SignatureRefused`,
    `OSError`. Interrupted, it takes its request back.
    """
    return ensure(
        model, spec, target, policy, options, cache, url, token, patience_s, on_event, on_bytes, public_key
    ).path


def ensure(
    model: str | Path,
    spec: BuildSpec | None = None,
    target: TargetSelector | None = None,
    policy: Policy = "exact",
    options: BuildOptions | None = None,
    cache: Cache | None = None,
    url: str | None = None,
    token: str | None = None,
    patience_s: float = 60.0,
    on_event: Callable[[Event], None] | None = None,
    on_bytes: Moved | None = None,
    public_key: Given | Sequence[Given] | None = None,
) -> Kept:
    """Like `ensure_engine`, and return the manifest too."""
    keys, path = PublicKeys.named(public_key), _model_file(model)
    digest = digest_of(path) if path else str(model)
    want = Resolve(model=digest, spec=spec or BuildSpec(), target=target or fingerprint(), policy=policy)
    if there := shipped.find(want, keys):
        return there
    cache, wish = cache or Cache(), wish_of(want=want)
    if kept := _trusted(cache.find(wish), keys, digest):
        return kept
    with cache.lock(wish):
        if kept := _trusted(cache.find(wish), keys, digest):  # another process of this host fetched it while we waited
            return kept
        with Client(url, token, patience_s=patience_s, public_key=public_key) as client:
            found = _look(client, want)
            if isinstance(found, TargetSelector):
                ask = Submit(model=digest, spec=spec or BuildSpec(), target=found, options=options or BuildOptions())
                found = _built(client, ask, path, on_event)
            if keys:
                _of_model(client.artifacts.prove(found).manifest, digest)
            proven = client.artifacts.fetch(found, cache.plan_of(wish), on_bytes)
            return cache.keep(wish, proven.manifest, proven.raw, proven.signature)


async def ensure_engine_async(
    model: str | Path,
    spec: BuildSpec | None = None,
    *,
    target: TargetSelector | None = None,
    policy: Policy = "exact",
    options: BuildOptions | None = None,
    cache: Cache | None = None,
    url: str | None = None,
    token: str | None = None,
    patience_s: float = 60.0,
    public_key: Given | Sequence[Given] | None = None,
) -> Path:
    """Like `ensure_engine`, beside the event loop. A cancelled wait lets go; the engine is fetched for the next call."""
    kept = await asyncio.to_thread(
        ensure, model, spec, target, policy, options, cache, url, token, patience_s, public_key=public_key
    )
    return kept.path


def _model_file(model: str | Path) -> Path | None:
    return None if isinstance(model, str) and model.startswith("sha256:") else Path(model)


def _trusted(kept: Kept | None, keys: PublicKeys | None, model: str) -> Kept | None:
    """Return what the cache holds if its signature holds too; else the service is asked again, and checked."""
    if kept and keys:
        try:
            keys.check(kept.signature, kept.raw)
            _of_model(kept.manifest, model)
        except SignatureRefused:
            return None
    return kept


def _of_model(manifest: Manifest, model: str) -> None:
    """A signature says that an engine is genuine, not that it is the one wanted. Raises `SignatureRefused`."""
    if manifest.model.digest != model:
        raise SignatureRefused("signature_other_manifest", f"It is an engine of {manifest.model.digest}.")


def _look(client: Client, want: Resolve) -> str | TargetSelector:
    """Return the key of an engine that is there already, or the target to build for when there is none."""
    try:
        return client.resolve(want).engine.engine_key
    except ServiceError as error:
        if error.code != "no_compatible_engine":
            raise
        return TargetSelector.model_validate(error.members["submit"]["target"])


def _built(client: Client, ask: Submit, path: Path | None, on_event: Callable[[Event], None] | None) -> str:
    """Ask for the engine, wait for it, and return its key."""
    if path:
        client.upload(path)
    submitted = client.submit(ask)
    try:
        return _served(client, submitted, on_event)
    except NoEngine:
        raise
    except BaseException:
        with suppress(Exception):  # what made us leave is what matters
            client.withdraw(submitted.request_id)
        raise


def _served(client: Client, submitted: Submitted, on_event: Callable[[Event], None] | None) -> str:
    if on_event:
        for _, event in client.follow(submitted.request_id):
            on_event(event)
    request = client.wait(submitted.request_id)
    if request.served is None:
        raise NoEngine(request)
    return request.served.engine_key
