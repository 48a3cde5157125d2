"""Whether a builder reads a model as its authors meant it: opsets it knows, or newer ones that say nothing new here."""

from collections.abc import Iterable, Iterator

import onnx
from onnx import FunctionProto, ModelProto, NodeProto

from app.intake.unfit import Unfit, listed
from app.intake.walk import nodes_in, plain_domain


def check_versions(model: ModelProto, highest: int) -> dict[str, int]:
    """Return domain → version of the model. Raises `Unfit` (version_unsupported).

    `highest` is the newest opset of ONNX's own domain that the builder knows. A newer one is taken where each node is
    written as in `highest`, because builders look at the operators and not at the number.
    """
    if model.ir_version > onnx.IR_VERSION:
        raise Unfit(
            "version_unsupported",
            f"The model has IR version {model.ir_version}; {onnx.IR_VERSION} is the newest known here.",
        )
    for function in model.functions:
        _within(versions(function), nodes_in([function.node]), highest, f"Function {function.name[:100]}")
    opset = versions(model)
    _within(opset, nodes_in([model.graph.node]), highest, "The model")
    return opset


def versions(declares: ModelProto | FunctionProto) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in declares.opset_import:
        domain = plain_domain(entry.domain)
        found[domain] = max(entry.version, found.get(domain, 0))
    return found


def _within(opset: dict[str, int], nodes: Iterable[NodeProto], highest: int, who: str) -> None:
    version = opset.get("", 0)
    if version <= highest:
        return
    newest = onnx.defs.onnx_opset_version()
    if version > max(newest, highest):
        raise Unfit(
            "version_unsupported", f"{who} has opset {version}; opset {highest} is the newest the builder knows."
        )
    if newer := sorted(set(_newer(nodes, version, highest))):
        raise Unfit(
            "version_unsupported",
            f"{who} has opset {version}; opset {highest} is the newest the builder knows, and that does not have "
            f"{listed(newer)} as it is used here.",
        )


def _newer(nodes: Iterable[NodeProto], version: int, highest: int) -> Iterator[str]:
    for node in nodes:
        if not plain_domain(node.domain) and not _same(node, version, highest):
            yield node.op_type


def _same(node: NodeProto, version: int, highest: int) -> bool:
    """Tell whether a node says in `highest` what it says in `version`. What neither knows is for the checker to say."""
    try:
        new = onnx.defs.get_schema(node.op_type, version, "")
    except onnx.defs.SchemaError:
        return True
    try:
        old = onnx.defs.get_schema(node.op_type, highest, "")
    except onnx.defs.SchemaError:
        return False
    if new.since_version == old.since_version:
        return True
    given = {attribute.name for attribute in node.attribute}
    unsaid = new.attributes.keys() & old.attributes.keys() - given
    return (
        given <= old.attributes.keys()
        and len(node.input) <= old.max_input
        and len(node.output) <= old.max_output
        and all(_default(new, name) == _default(old, name) for name in unsaid)
    )


def _default(schema: "onnx.defs.OpSchema", name: str) -> bytes:
    return bytes(schema.attributes[name].default_value.SerializeToString())
