"""What is wrong with what is asked for, or with the moment it is asked."""

from trtforge.contract.failures.code import Code

SUBMITS = (
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
    Code(
        "plugin_unknown",
        422,
        "No plugin library of this name is approved.",
        "Take one of those that are listed, or ask the operator to approve it.",
    ),
    Code(
        "not_refittable",
        422,
        "This engine cannot be given other weights.",
        'Build it with `refit` "all" (or "identical", for a stripped plan) on a target that lists this option.',
    ),
    Code(
        "refit_mismatch",
        422,
        "The model does not fit into the engine that is to be refitted.",
        "Give a model of the same graph, with the inputs and outputs of the engine.",
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
)
