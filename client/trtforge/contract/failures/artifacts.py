"""What is wrong with a signature, or with engines that come from elsewhere."""

from trtforge.contract.failures.code import Code

ARTIFACTS = (
    Code(
        "unsigned",
        404,
        "The engine has no signature.",
        "Ask the operator to set `TRTFORGE_SIGNING_KEY`; what is built from then on is signed.",
        "operator",
    ),
    Code(
        "signature_missing",
        422,
        "The engine comes without a signature.",
        "Sign it where it is built, or allow unsigned imports on both sides.",
        "operator",
    ),
    Code(
        "signature_malformed",
        422,
        "The signature is not a DSSE envelope with an in-toto statement about an engine.",
        "Fetch or export the engine again.",
    ),
    Code(
        "signature_type",
        422,
        "The envelope's payload is of another type than an in-toto statement.",
        "Sign with trtforge; a signature over something else says nothing about an engine.",
    ),
    Code(
        "signature_untrusted",
        422,
        "No trusted key made this signature.",
        "Check where the engine comes from, and add its public key only if you trust it.",
        "operator",
    ),
    Code(
        "signature_other_manifest",
        422,
        "The signature is over another manifest than this one.",
        "The manifest was changed after it was signed: fetch or build the engine again.",
        "operator",
    ),
    Code(
        "signature_other_plan",
        422,
        "The signature is over another plan than the manifest names.",
        "The engine was changed after it was signed: fetch or build it again.",
        "operator",
    ),
    Code(
        "archive_malformed",
        422,
        "The archive is not one of engines: a plain tar with manifest, signature and plan of each, in that order.",
        "Make it with `trtforge export`.",
    ),
    Code(
        "archive_unsafe",
        422,
        "The archive holds a link, a device, or a name that leads elsewhere.",
        "Do not use it; make one with `trtforge export`.",
    ),
    Code(
        "archive_truncated",
        422,
        "The archive ends before its last engine is whole.",
        "Send it again; engines before the cut are there already.",
    ),
    Code(
        "archive_duplicate",
        422,
        "The archive holds a member twice.",
        "Do not use it; make one with `trtforge export`.",
    ),
    Code(
        "manifest_malformed",
        422,
        "A manifest in the archive is not one this service reads.",
        "Export the engine again, with a version that is not newer than this service.",
    ),
    Code(
        "key_mismatch",
        422,
        "A manifest's engine key is not the digest of its model, spec and target.",
        "Do not use it: the manifest was changed, or another version made it.",
    ),
    Code(
        "plan_mismatch",
        422,
        "The plan in the archive is not the one its manifest names.",
        "Export the engine again.",
    ),
    Code(
        "plan_prefixed",
        422,
        "Something stands in front of the plan's header.",
        "Import the plain plan: some exporters write metadata of their own before it.",
    ),
    Code(
        "plan_unrecognized",
        422,
        "The bytes are no plan: they have no header of TensorRT.",
        "Import a plan that TensorRT has written.",
    ),
    Code(
        "triton_unsupported",
        422,
        "Triton cannot be told about this engine's inputs and outputs.",
        "Fetch the plan itself with `trtforge fetch`.",
    ),
)
