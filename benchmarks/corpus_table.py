"""docs/corpus.md, and what in the results is not as promised."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.corpus_bare import BUILT, NOT_BUILT, NOT_PARSED
from trtforge.contract.failures import CODES

Json = dict[str, Any]
CATCH_ALL = "builder_error"
MOST_CAUGHT = 0.02  # of the models
LISTED = 40
KNOWN = {  # start of a name → why we refuse what the builder builds
    "node/test_spacetodepth_": "the builder overlooks the operator's new attribute `mode`",
}


def verdict(one: Json) -> str:
    """What became of a model over HTTP, in the bare builder's words. A refusal before the parser counts as its."""
    if one["build"] == "built":
        return BUILT
    return NOT_BUILT if one.get("stage") == "build" else NOT_PARSED


def code(one: Json) -> str:
    """The code that a client is told in the end; empty where the model was built."""
    return next((c for c in (one["upload"], one["submit"], one["build"]) if c not in (None, "built")), "")


def place(one: Json) -> str:
    """The first place that refused."""
    if one["upload"]:
        return "upload"
    if one["submit"]:
        return "submit"
    if one["preflight"]:
        return "preflight"
    return "" if one["build"] == "built" else "build"


def wrong(found: Sequence[Json]) -> list[str]:
    """Return what breaks a promise: other verdicts than the builder's, foreign codes, too much of the catch-all."""
    said = [f"{one['name']}: {words}" for one in found if (words := disagreement(one)) and not _known(one)]
    said += [f"{one['name']}: {code(one)} is no code of ours" for one in found if code(one) and code(one) not in CODES]
    caught = [one["name"] for one in found if code(one) == CATCH_ALL]
    if len(caught) > MOST_CAUGHT * len(found):
        said.append(f"{len(caught)} of {len(found)} models end with {CATCH_ALL}: {', '.join(caught[:20])}")
    return said


def _known(one: Json) -> str:
    """Return why we refuse what the builder builds, where that is known; anything else that differs is a fault."""
    reasons = (why for start, why in KNOWN.items() if one["name"].startswith(start))
    return next(reasons, "") if one["bare"] == BUILT and one["build"] != "built" else ""


def disagreement(one: Json) -> str:
    """Say where we and the builder differ about a model; empty where we agree."""
    ours = one["build"] == "built"
    if ours != (one["bare"] == BUILT):
        return f"the builder alone: {one['bare']}; ours: {code(one) or 'built'} ({one['says'] or one['bare_says']})"
    if ours and one["preflight"]:
        return f"it builds, and preflight says {', '.join(one['preflight'])}"
    return ""


def page(found: Sequence[Json]) -> str:
    unseen = [one for one in found if place(one) == "build"]
    parts = [
        "# The ONNX project's own test models",
        "",
        f"{len(found)} models of `onnx.backend.test`: uploaded, preflighted and built over HTTP, and given to the builder",
        "itself beside it. `make corpus` writes this page; models with open axes get the template of profiles that the",
        "refusal of a submit holds.",
        "",
        *_counts("verdicts of the builder alone × ours", found, lambda one: (one["bare"], verdict(one))),
        *_counts("first place that refuses", [one for one in found if place(one)], lambda one: (place(one),)),
        *_counts("codes", [one for one in found if code(one)], lambda one: (f"`{code(one)}`",)),
        f"Preflight accepted {len(unseen)} models that then failed to build.",
        "",
    ]
    if differing := [_differing(one, words) for one in found if (words := disagreement(one))]:
        parts += [f"{len(differing)} differ in whether they are built:", "", *differing[:LISTED], ""]
    return "\n".join(parts)


def _differing(one: Json, words: str) -> str:
    why = _known(one)
    return f"- `{one['name']}`: {words}" + (f" Known: {why}." if why else "")


def _counts(what: str, found: Sequence[Json], of: Callable[[Json], tuple[str, ...]]) -> list[str]:
    counts = Counter(map(of, found))
    rows = [
        f"| {' | '.join(key)} | {count} |"
        for key, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    ]
    cells = "| builder alone | ours | models |" if what.startswith("verdicts") else f"| {what} | models |"
    return [cells, "|" + " --- |" * (cells.count("|") - 1), *rows, ""]
