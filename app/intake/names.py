"""File names that mean one file beside the graph, on any system, and nothing else."""

import re

_PLAIN = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")
_RESERVED = frozenset({"", ".", ".."})


def is_plain(name: str) -> bool:
    return (
        bool(_PLAIN.fullmatch(name))
        and name not in _RESERVED
        and not re.match(r"[A-Za-z]:", name)
        and len(name.encode(errors="replace")) <= 255
    )
