"""Options that only some versions of the builder have: one table, used to find out what is there and to set it.

Attributes are touched where they are used, so one that a version lacks is an option that it does not offer.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from app.worker.verdict import same

POOL_BYTES = (1 << 16, 1 << 40)  # below the least pool an API error; above 1 TiB a slip of the keyboard
SHARED_BYTES = (1 << 10, 1 << 30)  # the builder refuses more than 1 GiB


@dataclass(frozen=True)
class Way:
    """How one option is offered, set and read back."""

    choices: Callable[[Any], list[Any]]  # trt → values to try
    write: Callable[[Any, Any, Any], None]  # trt, config, value
    read: Callable[[Any, Any], Any]  # trt, config → value
    several: bool = False
    range: tuple[int, int] | None = None
    power_of_two: bool = False


def offered(trt: Any, builder: Any) -> dict[str, dict[str, Any]]:
    """Return the options that this builder takes, each tried on a fresh configuration, with the fields of `Option`."""
    tried = {name: _offer(trt, builder, way) for name, way in WAYS.items()}
    return {name: option for name, option in tried.items() if option}


def set_options(trt: Any, config: Any, asked: Mapping[str, Any]) -> None:
    """Set them all and read each back afterwards: setting one can change another. Raises `Ends`."""
    for name, value in asked.items():
        with suppress(AttributeError, TypeError, ValueError, OverflowError):
            WAYS[name].write(trt, config, value)
    for name, value in asked.items():
        same(name, value, WAYS[name].read(trt, config))


def _offer(trt: Any, builder: Any, way: Way) -> dict[str, Any] | None:
    try:
        if way.several:
            config = builder.create_builder_config()
            return {"choices": way.choices(trt), "several": True, "default": way.read(trt, config)}
        taken = [value for value in way.choices(trt) if _takes(trt, builder.create_builder_config(), way, value)]
    except AttributeError:
        return None
    if way.range:
        return {"range": way.range, "power_of_two": way.power_of_two} if len(taken) == 2 else None
    return {"choices": taken} if len(taken) > 1 else None  # one that cannot be changed is none


def _takes(trt: Any, config: Any, way: Way, value: Any) -> bool:
    try:
        way.write(trt, config, value)
    except (TypeError, ValueError, OverflowError):
        return False
    return bool(way.read(trt, config) == value)


def _flag(flag: Callable[[Any], Any]) -> Way:
    def write(trt: Any, config: Any, value: bool) -> None:
        (config.set_flag if value else config.clear_flag)(flag(trt))

    return Way(lambda trt: [False, True], write, lambda trt, config: bool(config.get_flag(flag(trt))))


def _pool(pool: Callable[[Any], Any], limits: tuple[int, int], power_of_two: bool) -> Way:
    def write(trt: Any, config: Any, value: int) -> None:
        config.set_memory_pool_limit(pool(trt), value)

    def read(trt: Any, config: Any) -> int:
        return int(config.get_memory_pool_limit(pool(trt)))

    return Way(lambda trt: list(limits), write, read, range=limits, power_of_two=power_of_two)


def _names(members: Any) -> list[str]:
    return [name.lower() for name in members.__members__]


def _write_compatibility(trt: Any, config: Any, value: str) -> None:
    config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.__members__[value.upper()]


def _write_verbosity(trt: Any, config: Any, value: str) -> None:
    config.profiling_verbosity = trt.ProfilingVerbosity.__members__[value.upper()]


def _refits(trt: Any) -> dict[str, Any]:
    return {"identical": trt.BuilderFlag.REFIT_IDENTICAL, "all": trt.BuilderFlag.REFIT}


def _write_refit(trt: Any, config: Any, value: str) -> None:
    for flag in _refits(trt).values():
        config.clear_flag(flag)
    if value != "none":
        config.set_flag(_refits(trt)[value])


def _read_refit(trt: Any, config: Any) -> str:
    return next((name for name, flag in _refits(trt).items() if config.get_flag(flag)), "none")


def _write_sources(trt: Any, config: Any, value: list[str]) -> None:
    members = trt.TacticSource.__members__
    config.set_tactic_sources(sum(1 << int(members[name.upper()]) for name in value))


def _read_sources(trt: Any, config: Any) -> list[str]:
    bits = config.get_tactic_sources()
    return sorted(name.lower() for name, one in trt.TacticSource.__members__.items() if bits >> int(one) & 1)


def _write_serialized(trt: Any, config: Any, value: list[str]) -> None:
    config.plugins_to_serialize = value  # files


def _read_serialized(trt: Any, config: Any) -> list[str]:
    return list(config.plugins_to_serialize)


WAYS: Mapping[str, Way] = {
    "hardware_compatibility": Way(
        lambda trt: _names(trt.HardwareCompatibilityLevel),
        _write_compatibility,
        lambda trt, config: config.hardware_compatibility_level.name.lower(),
    ),
    "version_compatible": _flag(lambda trt: trt.BuilderFlag.VERSION_COMPATIBLE),
    "refit": Way(lambda trt: ["none", *_refits(trt)], _write_refit, _read_refit),
    "stripped_plan": _flag(lambda trt: trt.BuilderFlag.STRIP_PLAN),
    "weight_streaming": _flag(lambda trt: trt.BuilderFlag.WEIGHT_STREAMING),
    "sparsity": _flag(lambda trt: trt.BuilderFlag.SPARSE_WEIGHTS),
    "tactic_dram_bytes": _pool(lambda trt: trt.MemoryPoolType.TACTIC_DRAM, POOL_BYTES, power_of_two=True),
    "tactic_shared_memory_bytes": _pool(
        lambda trt: trt.MemoryPoolType.TACTIC_SHARED_MEMORY, SHARED_BYTES, power_of_two=False
    ),
    "tactic_sources": Way(lambda trt: _names(trt.TacticSource), _write_sources, _read_sources, several=True),
    "plugins_to_serialize": Way(lambda trt: [], _write_serialized, _read_serialized, several=True),
    "profiling_verbosity": Way(
        lambda trt: _names(trt.ProfilingVerbosity),
        _write_verbosity,
        lambda trt, config: config.profiling_verbosity.name.lower(),
    ),
}
