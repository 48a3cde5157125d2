"""A build spec against what the builder on a target can do."""

from typing import Any

from app.errors import trouble
from trtforge.contract.problem import Trouble
from trtforge.contract.spec import BuildSpec, FullOptions
from trtforge.contract.target import Capabilities, Option


def check_options(spec: BuildSpec, capabilities: Capabilities) -> list[Trouble]:
    """Return everything in `spec` that cannot be done as asked; an empty list when all can.

    The builder clamps an optimization level silently, so nothing out of range may ever reach it.
    """
    return [
        *_precision(spec, capabilities),
        *_numbers(spec, capabilities),
        *_full(spec, capabilities),
        *_plugins(spec, capabilities),
    ]


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
        for name in sorted(set(spec.plugins or ()) - capabilities.plugins.keys())
    ]


def _full(spec: BuildSpec, capabilities: Capabilities) -> list[Trouble]:
    found = []
    for name in FullOptions.model_fields:
        asked, option = getattr(spec, name), capabilities.options.get(name)
        if option is None and not (asked is None or asked is False or asked in ("none", ())):
            found.append(_lacking(name, asked))
        elif option and asked is not None and not _takes(option, asked):
            remedy = f"Take {_choices(option)}, or leave it out."
            found.append(_unsupported(name, f"{name} is {_word(asked)}, which this builder does not take.", remedy))
    found += _serialized(spec) if not found else []
    if spec.stripped_plan and spec.refit in (None, "none") and not found:
        message = "A stripped plan without refit could never be given its weights."
        found.append(_unsupported("stripped_plan", message, 'Ask also for refit "identical" or "all".'))
    return found


def _serialized(spec: BuildSpec) -> list[Trouble]:
    """TensorRT puts libraries only into version compatible plans; those that are not loaded would serve nothing."""
    asked = set(spec.plugins_to_serialize or ())
    if asked and not spec.version_compatible:
        message = "Only a version compatible plan holds plugin libraries."
        return [_unsupported("plugins_to_serialize", message, "Ask also for `version_compatible`.")]
    if odd := sorted(asked - set(spec.plugins or ())):
        message = f"{', '.join(odd)} would be in the plan without being used: `plugins` does not name it."
        return [_unsupported("plugins_to_serialize", message, "Name it in `plugins` too, or leave it out.")]
    return []


def _lacking(name: str, asked: Any) -> Trouble:
    message = f"{name} is {_word(asked)}; the builder on this target has no such option."
    return _unsupported(name, message, "Leave it out, or ask for a target of the full TensorRT that lists it.")


def _takes(option: Option, asked: Any) -> bool:
    if option.range:
        low, high = option.range
        return bool(low <= asked <= high and not (option.power_of_two and asked & (asked - 1)))
    return set(asked) <= set(option.choices) if option.several else asked in option.choices


def _choices(option: Option) -> str:
    if option.range:
        number = "a power of two" if option.power_of_two else "a value"
        return f"{number} from {option.range[0]} to {option.range[1]} bytes"
    return f"{'any' if option.several else 'one'} of: {', '.join(map(_word, option.choices))}"


def _word(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return ", ".join(value) or "empty"
    return str(value)


def _unsupported(option: str, message: str, remedy: str) -> Trouble:
    return trouble("option_unsupported", message, remedy, option=option)
