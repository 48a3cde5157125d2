"""What the ONNX parser said, as one failure that names the nodes."""

import threading
from typing import Any

from app.worker.messages import Failed, Stopped
from app.worker.native_log import without_noise
from app.worker.scrub import Scrubber

MOST = 100  # nodes and errors that are listed
_WHOLE_NUMBERS = frozenset({"INT32", "INT64", "BOOL"})  # nothing else can be a shape tensor


class Ends(Exception):
    """The build is over before there is a plan."""

    def __init__(self, outcome: Failed | Stopped) -> None:
        self.outcome = outcome


def unless_stopped(stop: threading.Event) -> None:
    if stop.is_set():
        raise Ends(Stopped("between_stages"))


def same(option: str, asked: Any, got: Any) -> None:
    """A builder that takes another value than the engine key says would build another engine under that key."""
    if asked != got:
        where = {"option": option, "asked": asked, "got": got}
        raise Ends(Failed("option_unsupported", f"The builder made {got} of {option} = {asked}.", where=where))


def parse_failure(parser: Any, model: str, logged: str | None, scrub: Scrubber) -> Failed:
    """Return the parser's errors, all of them (up to `MOST`).

    `op_unsupported` when it does not know an operator or not in this form, `node_refused` when it blames nodes of
    operators that it knows, else `builder_error`. A missing plugin comes as INVALID_NODE from the parser, so what it
    says about the operator's name counts too.
    """
    errors = [parser.get_error(i) for i in range(min(parser.num_errors, MOST))]
    native = _text(errors[0], scrub) if errors else logged
    unknown = [error for error in errors if _unsupported(parser, error)]
    blamed = unknown or [error for error in errors if error.node_operator()]
    if not blamed:
        where = {"errors": [_where(error, None, scrub) for error in errors]}
        return Failed("builder_error", f"The parser refused the model: {first_line(native)}", native, where)
    domains = _domains(model)
    nodes = [_where(error, domains.get(error.node()), scrub) for error in blamed]
    kinds = sorted({node["op"] for node in nodes})
    code, does = ("op_unsupported", "support") if unknown else ("node_refused", "take")
    message = f"The builder does not {does} {len(nodes)} of the model's nodes: {', '.join(kinds[:10])}."
    return Failed(code, message, native, {"nodes": nodes})


def values_missing(network: Any, profiles: list[dict[str, dict[str, Any]]]) -> Failed | None:
    """Say which inputs the builder takes values of, whatever the graph looked like before, and no profile gives any."""
    inputs = [network.get_input(i) for i in range(network.num_inputs)]
    needed = [tensor.name for tensor in inputs if _decides_shapes(tensor)]
    for number, ranges in enumerate(profiles or ([{}] if needed else [])):
        if missing := [name for name in needed if not ranges.get(name, {}).get("values")]:
            message = f"Profile {number} gives no values of {', '.join(missing)}, which decide shapes."
            return Failed("shape_values_required", message, where={"profile": number, "input": missing[0]})
    return None


def _decides_shapes(tensor: Any) -> bool:
    return tensor.dtype.name in _WHOLE_NUMBERS and tensor.is_shape_tensor


# Words of the builder's error → what they mean. Only what it says itself; all else stays `builder_error`.
_BUILD_ERRORS = (
    ("Cannot compile for target(s)", "target_unsupported"),
    ("MyelinCheckException", "compiler_failed"),
    ("Error Code 1: Myelin", "compiler_failed"),
    ("has no runners that implement it", "kernel_missing"),
    ("Could not find any implementation for node", "kernel_missing"),
)


def build_failure(native: str | None) -> Failed:
    """Return what the first error of a build that gave up says."""
    code = next((code for words, code in _BUILD_ERRORS if words in (native or "")), "builder_error")
    return Failed(code, f"The builder gave up: {first_line(native)}", native)


def first_line(native: str | None) -> str:
    """What fits into a sentence of ours; the whole goes along as `native`."""
    return native.splitlines()[0] if native else "it did not say why"


def _unsupported(parser: Any, error: Any) -> bool:
    code = error.code().name
    if code.startswith("UNSUPPORTED"):
        return True
    operator = error.node_operator()
    return code == "INVALID_NODE" and bool(operator) and not parser.supports_operator(operator)


def _where(error: Any, known: tuple[str, str] | None, scrub: Scrubber) -> dict[str, Any]:
    """`known`: (op_type, domain) of the main graph's node with that number; inside a function it is another node."""
    operator = error.node_operator()
    domain = known[1] if known and known[0] == operator else ""
    return {
        "node": error.node(),
        "name": scrub(error.node_name(), 200),
        "op": scrub(operator, 200),
        "domain": scrub(domain, 200),
        "text": scrub(without_noise(error.desc()), 500),
    }


def _text(error: Any, scrub: Scrubber) -> str:
    operator, name = error.node_operator(), error.node_name()
    node = f"node {error.node()} ({operator}{f' {name}' if name else ''}): " if operator else ""
    return scrub(f"{node}{without_noise(error.desc())} [{error.code().name}]")


def _domains(model: str) -> dict[int, tuple[str, str]]:
    """The parser does not tell a node's domain; the file does."""
    import onnx  # only when something has failed already: 0.15 s

    try:
        nodes = onnx.load(model, load_external_data=False).graph.node
    except Exception:
        return {}
    return {number: (node.op_type, node.domain) for number, node in enumerate(nodes)}
