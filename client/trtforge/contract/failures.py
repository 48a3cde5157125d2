"""The one list of codes: what went wrong, who can mend it, how, and whether trying again can help."""

from dataclasses import dataclass
from typing import Literal

Who = Literal["client", "operator", "us"]


@dataclass(frozen=True)
class Code:
    """`status` is the HTTP status of a refusal; None: the code only ends builds. `retryable`: the same build may succeed later."""

    code: str
    status: int | None
    meaning: str
    remedy: str
    who: Who = "client"
    retryable: bool = False


_LIST = (
    # the request itself
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
    # models
    Code(
        "digest_mismatch",
        422,
        "The bytes have another sha256 than the address says.",
        "Take the digest with `sha256sum` and upload again.",
    ),
    Code(
        "not_an_onnx_model",
        422,
        "The bytes are not an ONNX model.",
        "Upload the .onnx file itself, not a page, pointer or part of it.",
    ),
    Code(
        "model_invalid",
        422,
        "The model breaks a rule of ONNX.",
        "Run `onnx.checker.check_model` on it and export it again.",
    ),
    Code(
        "model_unreadable",
        422,
        "Reading the model took too much time or memory, or crashed the reader.",
        "Simplify the model or export it again.",
    ),
    Code(
        "version_unsupported",
        422,
        "The opset or IR version is newer than this service reads.",
        "Export with an opset that is named, or convert it.",
    ),
    Code(
        "external_data_missing",
        422,
        "The model keeps weights in other files.",
        "Upload those files too, or save it as one file.",
    ),
    Code(
        "files_missing",
        409,
        "Some files of this model are not here.",
        "Upload those that are listed with `PUT /v1/files/{digest}`, then ask again.",
    ),
    Code(
        "upload_offset",
        409,
        "The part does not begin where the upload stands.",
        "Send the bytes from `have` on; HEAD of the same address tells it too.",
    ),
    Code(
        "external_data_unsafe",
        422,
        "The model points outside its own files.",
        "Save weights under plain file names beside the graph, with offsets and lengths inside the files.",
    ),
    Code(
        "model_too_complex",
        422,
        "The model has too many nodes or tensors, or functions that call themselves or expand without measure.",
        "Inline its functions, simplify it, and export it again.",
    ),
    Code(
        "type_unsupported",
        422,
        "An input or output has a type that TensorRT does not take.",
        "Move the part that works with this type out of the model, or cast at its border.",
    ),
    Code(
        "quantization_unsupported",
        422,
        "TensorRT does not quantize in this way.",
        "Quantize symmetrically to 8 bits: scales above 0, zero points of 0.",
    ),
    Code("model_unknown", 422, "No such model is here.", "Upload it first with `PUT /v1/models/{digest}`."),
    # what is asked for
    Code("profile_required", 422, "An input has open axes and no profile says their range.", "Fill in the template."),
    Code(
        "shape_values_required",
        422,
        "The values of an input decide shapes, and no profile gives their range.",
        'Give the values for it: `{"min": […], "opt": […], "max": […], "values": true}`.',
    ),
    Code("profile_invalid", 422, "A profile breaks a rule.", "Give 1 ≤ min ≤ opt ≤ max for every open axis."),
    Code(
        "option_unsupported",
        422,
        "The builder on this target does not do that.",
        "Leave the option out or take a value that is listed.",
    ),
    Code("target_unknown", 422, "No known target fits.", "Take one of the listed targets, or leave the target out."),
    Code(
        "target_ambiguous",
        422,
        "More than one known target fits.",
        "Name more fields, so that one of the listed targets is left.",
    ),
    Code(
        "target_unsupported",
        422,
        "The builder does not build for that hardware.",
        "Take compute capabilities from the list.",
    ),
    Code(
        "quarantined",
        409,
        "This build crashed the builder more than once.",
        "Ask an admin to send it with `retry`.",
        "operator",
    ),
    # ending a build
    Code("already_ended", 409, "The build has ended.", "Nothing is left to stop."),
    Code(
        "publishing",
        409,
        "The build is past its point of no return and will succeed in a moment.",
        "Wait for it; delete the engine if you must.",
    ),
    Code(
        "build_shared",
        409,
        "Others wait for this build.",
        "Withdraw your own request, or force it with `?force=true` as admin.",
    ),
    # engines
    Code(
        "engine_corrupt",
        410,
        "The stored plan is missing or damaged.",
        "Submit the build again; it will be built anew.",
        "operator",
        True,
    ),
    Code(
        "engine_pinned",
        409,
        "The engine is pinned.",
        "Take the pin away first with `DELETE /v1/engines/{key}/pin`.",
    ),
    Code(
        "engine_busy",
        409,
        "The engine is being built or published.",
        "Try again when that has ended.",
        retryable=True,
    ),
    Code(
        "no_compatible_engine",
        404,
        "No engine of this model fits that machine under that policy.",
        "Submit what stands under `submit`, or allow a looser policy.",
    ),
    # what the shape doctor finds: the first fails builds, the others are warnings
    Code(
        "shape_invalid",
        None,
        "A layer of the model cannot be computed at a corner of a profile.",
        "Move the corner into the range where the layer named can be computed.",
    ),
    Code(
        "shape_unusable",
        None,
        "A layer cannot be computed at the smallest or largest shapes; the engine will refuse those.",
        "Narrow the profile to shapes that the model can compute.",
    ),
    Code(
        "axis_frozen",
        None,
        "A Reshape to constant extents leaves an open axis few extents that can be computed.",
        "Export the model with -1 or a computed extent in that Reshape, or fix the axis.",
    ),
    Code(
        "range_wide",
        None,
        "A profile covers so much that its kernels are generic.",
        "Split the range into several profiles.",
    ),
    Code(
        "tensor_large",
        None,
        "A tensor inside the model is very large at the largest shapes.",
        "Lower the maximum, or make sure that the target has the memory.",
    ),
    # how builds fail
    Code(
        "op_unsupported",
        None,
        "The builder does not know some operators of this model.",
        "Replace the nodes that are listed.",
    ),
    Code("builder_error", None, "The builder refused this model with these options.", "Read `native` and the log."),
    Code("builder_crashed", None, "The builder crashed.", "Change shapes or model; the same again will crash again."),
    Code(
        "builder_killed",
        None,
        "Something outside killed the builder, most likely for lack of memory.",
        "Give the host more memory.",
        "operator",
        True,
    ),
    Code(
        "builder_unusable",
        None,
        "The builder does not start on this worker.",
        "Read the log; mend the installation.",
        "operator",
        True,
    ),
    Code(
        "builder_stalled",
        None,
        "Nobody waits any longer: the builder did nothing for longer than `stall_timeout_s`.",
        "Retry; see in the log where it stopped.",
        "operator",
        True,
    ),
    Code(
        "run_timeout",
        None,
        "Nobody waits any longer: the build ran out of time.",
        "Ask with a longer `run_timeout_s` or a cheaper spec.",
        "client",
        True,
    ),
    Code(
        "queue_timeout",
        None,
        "Nobody waits any longer: no worker took the build in time.",
        "Ask with a longer `queue_timeout_s`.",
        "operator",
        True,
    ),
    Code(
        "worker_lost",
        None,
        "Three workers in a row were lost while they ran this build.",
        "See why workers die; then retry.",
        "operator",
        True,
    ),
    Code(
        "publish_failed",
        None,
        "The plan was built and could not be stored.",
        "Mend the store; then retry.",
        "operator",
        True,
    ),
)

CODES: dict[str, Code] = {c.code: c for c in _LIST}
