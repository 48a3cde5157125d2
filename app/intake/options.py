"""A build spec against what the builder on a target can do."""

from app.errors import trouble
from trtforge.contract.problem import Trouble
from trtforge.contract.spec import BuildSpec
from trtforge.contract.target import Capabilities


def check_options(spec: BuildSpec, capabilities: Capabilities) -> list[Trouble]:
    """Return everything in `spec` that cannot be done as asked; an empty list when all can.

    The builder clamps an optimization level silently, so nothing out of range may ever reach it.
    """
    return [*_precision(spec, capabilities), *_numbers(spec, capabilities), *_plugins(spec, capabilities)]


def _precision(spec: BuildSpec, capabilities: Capabilities) -> list[Trouble]:
    if spec.precision is None or spec.precision in capabilities.precisions:
        return []
    can = ", ".join(capabilities.precisions)
    return [_unsupported("precision", f"Precision {spec.precision!r} is not available.", f"Take one of: {can}.")]


def _numbers(spec: BuildSpec, capabilities: Capabilities) -> list[Trouble]:
    found = []
    for option, unit in (("optimization_level", ""), ("workspace_bytes", " bytes")):
        asked: int | None = getattr(spec, option)
        low, high = getattr(capabilities, option)
        if asked is not None and not low <= asked <= high:
            message = f"{option} is {asked}{unit}; the builder takes {low} to {high}."
            found.append(_unsupported(option, message, f"Take a value from {low} to {high}{unit}, or leave it out."))
    return found


def _plugins(spec: BuildSpec, capabilities: Capabilities) -> list[Trouble]:
    can = ", ".join(sorted(capabilities.plugins)) or "none"
    return [
        trouble("plugin_unknown", f"No approved library is called {name!r}.", f"Approved here: {can}.", plugin=name)
        for name in sorted(set(spec.plugins) - capabilities.plugins.keys())
    ]


def _unsupported(option: str, message: str, remedy: str) -> Trouble:
    return trouble("option_unsupported", message, remedy, option=option)
