"""From what is asked for to what is built."""

from typing import Any

from trtforge.contract.spec import BuildSpec, EffectiveSpec, Plugin
from trtforge.contract.target import Capabilities, Option


def effective(spec: BuildSpec, capabilities: Capabilities) -> EffectiveSpec:
    """Return `spec` with what it leaves open filled from the capability table's constant defaults.

    Nothing is taken from this machine: a server with more memory would otherwise give the same wish another key.
    """
    defaults = capabilities.defaults
    asked = spec if spec.plugins_to_serialize else spec.model_copy(update={"plugins_to_serialize": None})
    return EffectiveSpec(
        profiles=spec.profiles,
        precision=defaults.precision if spec.precision is None else spec.precision,
        optimization_level=defaults.optimization_level if spec.optimization_level is None else spec.optimization_level,
        workspace_bytes=defaults.workspace_bytes if spec.workspace_bytes is None else spec.workspace_bytes,
        plugins=_plugins(spec, capabilities),
        **{name: _value(getattr(asked, name), option) for name, option in capabilities.options.items()},
    )


def _plugins(spec: BuildSpec, capabilities: Capabilities) -> tuple[Plugin, ...] | None:
    """Their order and how often they are named mean nothing."""
    names = sorted(set(spec.plugins or ()))
    return tuple(Plugin(name=name, digest=capabilities.plugins.get(name)) for name in names) or None


def _value(asked: Any, option: Option) -> Any:
    """What is asked for, canonically: the order of several choices means nothing."""
    value: Any = option.default if asked is None else asked
    return tuple(sorted(set(value))) if option.several and value is not None else value
