"""Shut a child in, with what the kernel gives to everyone: Landlock for files and TCP, seccomp against sockets.

Both hold for the calling thread and what it starts later, for ever. Call before anything else runs in the process.
"""

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER_MODE = 38, 22, 2

# Rights on files, by bit: execute, write, read, list … and what later ABIs added
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FILES_BY_ABI = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_ON_A_FILE = _EXECUTE | _WRITE | _READ | 1 << 14 | 1 << 15
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals

_SYSTEM = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/urandom", "/proc/self", "/proc/meminfo")
_HARDWARE = ("/proc", "/sys", "/dev")  # what a builder looks at to find devices

# (audit architecture, socket, ptrace); io_uring_setup could open sockets beside the filter
_CALLS = {"x86_64": (0xC000003E, 41, 101), "aarch64": (0xC00000B7, 198, 117)}
_IO_URING_SETUP = 425


def landlock_abi() -> int:
    """Return the version of Landlock that this kernel offers; 0 when it has none."""
    return max(0, _syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG))


def confine(folder: Path, builder: bool = False) -> int:
    """Leave this process only `folder` to write, only Python and system libraries to read, and no sockets.

    `builder`: it may also look at devices. Files in the folder that are links stay readable. Where the kernel lacks
    Landlock or seccomp that part is left out: the limits on memory and time and the parent's watch remain. Returns the
    ABI of Landlock that is in force.
    """
    ctypes.CDLL(None).prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    abi = landlock_abi()
    if abi:
        _landlock(abi, folder, _SYSTEM + _HARDWARE if builder else _SYSTEM)
    if calls := _CALLS.get(platform.machine()):
        _no_sockets(*calls)
    return abi


def _landlock(abi: int, folder: Path, system: Iterable[str]) -> None:
    handled = sum(rights for since, rights in _FILES_BY_ABI.items() if since <= abi)
    attributes = struct.pack("QQQ", handled, _TCP if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _syscall(_CREATE_RULESET, attributes, size, 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "Landlock refused its rules")
    try:
        _allow(ruleset, folder, handled & ~_EXECUTE)
        for entry in folder.iterdir():
            if entry.is_symlink():
                _allow(ruleset, entry.resolve(), _READ)
        for device in Path("/dev").glob("nvidia*") if "/dev" in system else ():
            _allow(ruleset, device, _READ | _WRITE | handled & 1 << 15)
        for place in [*system, *_python()]:
            _allow(ruleset, Path(place), _EXECUTE | _READ | _LIST)
        for searched in sys.path:
            _allow(ruleset, Path(searched), _LIST)
        if _syscall(_RESTRICT_SELF, ruleset, 0):
            raise OSError(ctypes.get_errno(), "Landlock refused to restrict this process")
    finally:
        os.close(ruleset)


def _python() -> Iterable[str]:
    """Folders of the interpreter, of installed packages and of ours: not the whole of what imports are looked up in."""
    import trtforge

    yield from (sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[1]), *trtforge.__path__)
    yield from (entry for entry in sys.path if entry.endswith(("-packages", "lib-dynload")) or _has_packages(entry))


def _has_packages(folder: str) -> bool:
    """Installed into, as by `pip install --target`; the folder of a checkout is not, and may hold the store."""
    return next(Path(folder or ".").glob("*.dist-info"), None) is not None


def _allow(ruleset: int, place: Path, rights: int) -> None:
    with suppress(OSError):  # what is not there needs no right
        fd = os.open(place, os.O_PATH | os.O_CLOEXEC)
        try:
            granted = rights if place.is_dir() else rights & _ON_A_FILE
            _syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", granted, fd), 0)
        finally:
            os.close(fd)


def _no_sockets(architecture: int, socket: int, ptrace: int) -> None:
    """Answer `socket` and its detours with EPERM; calls of another architecture too."""
    denied = (socket, ptrace, _IO_URING_SETUP)
    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06
    refuse, allow = 0x00050000 | 1, 0x7FFF0000
    last = len(denied) + 1  # index of the refusal, counted from behind each jump below
    program = [(load, 0, 0, 4), (equal, 0, last + 2, architecture), (load, 0, 0, 0), (at_least, last, 0, 0x40000000)]
    program += [(equal, len(denied) - number, 0, call) for number, call in enumerate(denied)]
    program += [(end, 0, 0, allow), (end, 0, 0, refuse)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    head = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    ctypes.CDLL(None).prctl(_SET_SECCOMP, _FILTER_MODE, head, 0, 0)


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return int(libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]))
