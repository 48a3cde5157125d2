"""Words and numbers for people. Names and messages of a builder are data: they never reach a terminal as they came."""

import sys
import unicodedata

from rich.console import Console
from rich.text import Text

_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZES |= {
    unit: 1 << 10 * power for power, units in enumerate(("K KIB", "M MIB", "G GIB"), 1) for unit in units.split()
}


def plain(words: object) -> str:
    """Return one line without anything a terminal would act on: no control, format or direction characters."""
    return "".join(c if unicodedata.category(c)[0] != "C" else " " for c in str(words)).strip()


def lines(words: object) -> str:
    """Like `plain`, and line breaks stay."""
    return "\n".join(plain(line) for line in str(words).splitlines())


def size(count: int | None) -> str:
    if count is None:
        return "?"
    for unit, one in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= one:
            return f"{count / one:.1f} {unit}"
    return f"{count} B"


def seconds(count: float | None) -> str:
    if count is None:
        return "?"
    if count < 60:
        return f"{count:.1f} s"
    minutes, rest = divmod(round(count), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def span(low: float, high: float) -> str:
    if high < 60:
        return f"{low:.0f}–{high:.0f} s" if round(low) != round(high) else f"{high:.0f} s"
    return f"{seconds(low)} to {seconds(high)}"


def byte_count(words: str) -> int:
    """Read `1GiB`, `512 MiB`, `1000000`. Raises `ValueError` with what is accepted."""
    number = words.strip().rstrip("BbKkMmGgIi")  # a bare K, M or G counts in powers of 1024, as trtexec has it
    unit = words.strip()[len(number) :].upper()
    try:
        return round(float(number) * _SIZES[unit])
    except (ValueError, KeyError, OverflowError):
        raise ValueError(f"{words!r} is not a size; write bytes, or a number with KiB, MiB or GiB") from None


def console(quiet: bool = False) -> Console:
    """Return the console for stdout. Nothing is highlighted or taken for markup; piped lines are never wrapped."""
    width = None if sys.stdout.isatty() else 10_000
    return Console(highlight=False, markup=False, emoji=False, quiet=quiet, width=width)


def complain(words: str) -> None:
    """Say on stderr what went wrong."""
    Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True).print(
        Text(lines(words), style="red")
    )
