"""`/v1/schemas`: what the documents of this service look like, for readers that are not written in Python."""

from functools import cache
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from trtforge.contract.engines import Manifest

router = APIRouter(prefix="/v1/schemas", tags=["service"])

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class SchemaResponse(JSONResponse):
    media_type = "application/schema+json"


@cache
def manifest_schema() -> dict[str, Any]:
    """Return the JSON schema of manifests, version 1, made from the type that writes and reads them."""
    return {"$schema": DIALECT, "$id": "/v1/schemas/manifest"} | Manifest.model_json_schema(mode="serialization")


@router.get("/manifest", response_class=SchemaResponse)
async def get_manifest_schema() -> Response:
    """Return the JSON schema that every manifest of this service keeps to."""
    return SchemaResponse(manifest_schema())
