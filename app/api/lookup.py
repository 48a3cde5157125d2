"""The request that is made most, answered before the framework looks at it: an engine's manifest that is in memory.

Routing and parameters cost several times what the answer does. Everything else, and everything that is refused, goes on
to the route, which answers the same.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.service import Service

PREFIX = "/v1/engines/"
LENGTH = len(PREFIX) + 71  # sha256: and 64 digits


class Lookup:
    def __init__(self, app: ASGIApp, wired: Service) -> None:
        self._app, self._wired = app, wired

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        manifest = self._fresh(scope) if scope["type"] == "http" and scope["method"] == "GET" else None
        if manifest is None:
            await self._app(scope, receive, send)
            return
        scope["route_path"] = f"{PREFIX}{{key}}"  # as the route that is saved here has it
        headers = [(b"content-length", str(len(manifest)).encode()), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": manifest})

    def _fresh(self, scope: Scope) -> bytes | None:
        path: str = scope["path"]
        if len(path) != LENGTH or not path.startswith(PREFIX):
            return None
        manifest = self._wired.manifests.fresh(path[len(PREFIX) :])
        if manifest is None:
            return None
        sent = next((v.decode("latin-1") for n, v in scope["headers"] if n == b"authorization"), "")
        return manifest if self._wired.keyring.at_once(sent) else None  # every scope may read
