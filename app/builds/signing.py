"""Sign what is published, and know whose signatures count."""

from app.builds.parts import Parts
from app.errors import NotReady
from app.settings import Settings
from trtforge.contract.engines import Manifest
from trtforge.contract.provenance import SigningKeys
from trtforge.signature import KeyUnusable, PublicKeys, Signer


def signer_of(settings: Settings) -> Signer | None:
    """Return who signs; None when no key is set. Raises `NotReady` with the fix."""
    if settings.signing_key is None:
        return None
    try:
        return Signer(settings.signing_key.get_secret_value().encode())
    except KeyUnusable as error:
        raise NotReady(f"TRTFORGE_SIGNING_KEY: {error}") from error


def trusted_keys(settings: Settings) -> PublicKeys | None:
    """Return the keys whose engines are taken in, our own among them; None: there are none. Raises `NotReady`."""
    own = signer_of(settings)
    given = [*([settings.trusted_keys] if settings.trusted_keys else []), *([own.public.public_key] if own else [])]
    try:
        return PublicKeys.read(given) if given else None
    except KeyUnusable as error:
        raise NotReady(f"TRTFORGE_TRUSTED_KEYS: {error}") from error


def sign(parts: Parts, manifest: Manifest) -> None:
    """Put the signature of an engine where its manifest goes. May be repeated.

    Without a key none is put, and one that an engine before this one left behind is taken away.
    """
    store, key = parts.store, manifest.engine_key
    if parts.signer:
        store.put_signature(key, parts.signer.sign(manifest))
    elif store.signature(key) is not None and store.manifest(key) is None:
        store.remove_signature(key)


def signing_keys(parts: Parts) -> SigningKeys:
    return SigningKeys(items=(parts.signer.public,) if parts.signer else ())
