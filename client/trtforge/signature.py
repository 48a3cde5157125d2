"""Make and check signatures of engines: Ed25519 over DSSE. Needs the extra `trtforge[verify]`, and only when used."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from trtforge.contract.engines import Manifest
from trtforge.contract.failures import CODES
from trtforge.contract.provenance import (
    MANIFEST,
    PAYLOAD_TYPE,
    PLAN,
    Envelope,
    SigningKey,
    decoded,
    digests_of,
    envelope,
    manifest_digest,
    pae,
    read_envelope,
    read_statement,
    statement_of,
)
from trtforge.errors import TrtforgeError

BEGIN = "-----BEGIN "

Given = str | Path | bytes  # PEM itself, or the file that holds it


class SignatureRefused(TrtforgeError):
    """An engine whose signature does not hold; `code` says in what, `remedy` what to do."""

    def __init__(self, code: str, detail: str | None = None) -> None:
        self.code = code
        self.detail, self.remedy = detail or CODES[code].meaning, CODES[code].remedy
        super().__init__(f"{code}: {self.detail} {self.remedy}")


class KeyUnusable(TrtforgeError):
    """A key that cannot be read, is no Ed25519 key in PEM, or the package that reads it is missing."""


class PublicKeys:
    """The keys that one trusts."""

    def __init__(self, pems: Iterable[bytes]) -> None:
        """Read every key in `pems`, several in one text too. Raises `KeyUnusable`."""
        self._keys: dict[str, Any] = {}
        for pem in pems:
            for block in _blocks(pem):
                key = _public(block)
                self._keys[key_id(key)] = key
        if not self._keys:
            raise KeyUnusable("No public key was given. Make a pair with `trtforge key create`.")

    @classmethod
    def read(cls, given: Given | Sequence[Given]) -> Self:
        """Return the keys of files or PEM texts. Raises `KeyUnusable`."""
        several = given if isinstance(given, Sequence) and not isinstance(given, str | bytes) else [given]
        return cls([_text(one) for one in several])

    @classmethod
    def named(cls, given: Given | Sequence[Given] | None) -> Self | None:
        """Like `read`; without any, the key or the file that `TRTFORGE_PUBLIC_KEY` holds. None: nothing is named.

        Whoever names an empty one, by a variable that was to be filled in, asked for a check: that is `KeyUnusable`.
        """
        given = os.environ.get("TRTFORGE_PUBLIC_KEY") if given is None else given
        if given is None:
            return None
        if not given:
            raise KeyUnusable(
                "The public key that is named (TRTFORGE_PUBLIC_KEY, say) is empty: unset it, or fill it in."
            )
        return cls.read(given)

    def check(self, signature: bytes | None, manifest: bytes) -> str:
        """Return the id of the trusted key that signed this manifest (as it was sent) and the plan it names.

        Raises `SignatureRefused`.
        """
        if signature is None:
            raise SignatureRefused("signature_missing")
        try:
            found = read_envelope(signature)
            if found.payload_type != PAYLOAD_TYPE:
                raise SignatureRefused("signature_type", f"The payload is {found.payload_type[:80]!r}.")
            payload = decoded(found.payload)
            signer = self._signer(found, payload)
            subjects = digests_of(read_statement(payload))
        except ValueError as error:
            raise SignatureRefused("signature_malformed", f"The signature cannot be read: {error}.") from error
        try:
            mine, plan = manifest_digest(manifest), Manifest.model_validate_json(manifest).plan
        except ValueError as error:
            raise SignatureRefused("signature_other_manifest", "The manifest cannot be read.") from error
        if subjects.get(PLAN) != plan.digest:
            raise SignatureRefused("signature_other_plan")
        if subjects.get(MANIFEST) != mine:
            raise SignatureRefused("signature_other_manifest")
        return signer

    def _signer(self, found: Envelope, payload: bytes) -> str:
        """Return which key made one of the signatures; the id in the envelope is a hint that nobody signed."""
        from cryptography.exceptions import InvalidSignature

        message = pae(found.payload_type, payload)
        for one in found.signatures:
            sig = decoded(one.sig)
            for name, key in self._keys.items():
                try:
                    key.verify(sig, message)
                except InvalidSignature:
                    continue
                return name
        raise SignatureRefused("signature_untrusted")


class Signer:
    """A private key at work."""

    def __init__(self, pem: bytes) -> None:
        """Raises `KeyUnusable`."""
        _library()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError) as error:
            raise KeyUnusable("It is no private key in PEM without a password. Try `trtforge key create`.") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise KeyUnusable("It is no Ed25519 key. Make one with `trtforge key create`.")
        self._key = key
        self.public = SigningKey(keyid=key_id(key.public_key()), public_key=_pem(key.public_key()))

    def sign(self, manifest: Manifest) -> bytes:
        """Return the envelope about an engine as JSON. The same engine, the same bytes."""
        payload = statement_of(manifest)
        made = envelope(payload, self.public.keyid, self._key.sign(pae(PAYLOAD_TYPE, payload)))
        return made.model_dump_json(by_alias=True).encode()


def new_key() -> tuple[str, str]:
    """Return a new pair in PEM: private, public. Raises `KeyUnusable` when the package is missing."""
    _library()
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    return private.decode(), _pem(key.public_key())


def key_id(public: Any) -> str:
    """Return the sha256 of a public key in DER."""
    from cryptography.hazmat.primitives import serialization as form

    der = public.public_bytes(form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo)
    return "sha256:" + hashlib.sha256(der).hexdigest()


def _pem(public: Any) -> str:
    from cryptography.hazmat.primitives import serialization as form

    pem: bytes = public.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()


def _public(pem: bytes) -> Any:
    _library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem)
    except ValueError as error:
        raise KeyUnusable("It is no public key in PEM.") from error
    if not isinstance(key, Ed25519PublicKey):
        raise KeyUnusable("It is no Ed25519 public key.")
    return key


def _blocks(pem: bytes) -> list[bytes]:
    marker = BEGIN.encode()
    return [marker + part for part in pem.split(marker)[1:]] or ([pem] if pem.strip() else [])


def _text(given: Given) -> bytes:
    if isinstance(given, bytes):
        return given
    if isinstance(given, str) and given.lstrip().startswith(BEGIN):
        return given.encode()
    try:
        return Path(given).read_bytes()
    except OSError as error:
        raise KeyUnusable(f"The public key {str(given)!r} cannot be read: {error.strerror}.") from error


def _library() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError as missing:
        raise KeyUnusable(
            "Signatures need the package cryptography, which is not installed: pip install 'trtforge[verify]'."
        ) from missing
