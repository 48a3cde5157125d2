"""What is wrong with an engine, or with the want of one."""

from trtforge.contract.failures.code import Code

ENGINES = (
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
        "gc_running",
        409,
        "Another process is removing things from this store.",
        "Try again when it has ended; what it removes is in its log.",
        retryable=True,
    ),
    Code(
        "no_compatible_engine",
        404,
        "No engine of this model fits that machine under that policy.",
        "Submit what stands under `submit`, or allow a looser policy.",
    ),
)
