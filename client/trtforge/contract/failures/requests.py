"""The request itself: body, token, limits, the state of the service."""

from trtforge.contract.failures.code import Code

REQUESTS = (
    Code("malformed_json", 400, "The body is not JSON.", "Send one JSON object, encoded as UTF-8."),
    Code(
        "upload_incomplete",
        400,
        "The body ended before its announced length.",
        "Send the upload again; nothing of it was kept.",
    ),
    Code("unauthorized", 401, "No token, or one this service does not know.", "Send `Authorization: Bearer <token>`."),
    Code("forbidden", 403, "The token may not do this.", "Use a token with the scope that is named.", "operator"),
    Code("not_found", 404, "There is nothing under this address.", "Check the id or digest; lists show what exists."),
    Code(
        "method_not_allowed",
        405,
        "This address does not take that method.",
        "Use one of the methods in the Allow header.",
    ),
    Code(
        "too_large",
        413,
        "The body is larger than this service takes.",
        "Send less, or ask the operator to raise the limit that is named.",
    ),
    Code(
        "unsupported_media_type",
        415,
        "The body has a type this address does not take.",
        "Send the content type that is named.",
    ),
    Code(
        "range_not_satisfiable",
        416,
        "The range lies outside the plan.",
        "Ask for bytes below the size in Content-Range.",
    ),
    Code(
        "invalid_request",
        422,
        "A field is unknown, missing or of the wrong type.",
        "Mend the fields listed under errors.",
    ),
    Code(
        "idempotency_mismatch",
        422,
        "This Idempotency-Key came before with another body.",
        "Use a new key for a new request.",
    ),
    Code("too_many", 429, "Too many requests at once.", "Wait as long as Retry-After says.", retryable=True),
    Code(
        "internal_error",
        500,
        "The service failed; it is not your doing.",
        "Try again; report the request id if it stays.",
        "us",
        retryable=True,
    ),
    Code(
        "unavailable",
        503,
        "The service cannot do this at the moment.",
        "Wait as long as Retry-After says.",
        "operator",
        retryable=True,
    ),
    Code(
        "store_full",
        507,
        "The store has no room left.",
        "Free space, or give the store more.",
        "operator",
        retryable=True,
    ),
)
