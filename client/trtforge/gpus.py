"""The GPUs of this machine, from the driver's own library (NVML) and nothing else, within a few seconds."""

import ctypes
import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

PATIENCE = 5.0  # seconds for a driver that may hang
_NOT_SUPPORTED, _FUNCTION_MISSING = 3, 13


@dataclass(frozen=True)
class Gpu:
    """What NVML tells of one GPU; plans of TensorRT for RTX need the compute capability alone."""

    name: str
    driver: str
    compute_capability: str  # "8.9"
    cuda: str | None = None  # "13.0": the newest that the driver serves
    mig_profile: str | None = None
    uuid: str | None = None
    index: str | None = None  # as nvidia-smi counts: "0"; "0:3" is the instance 3 of it


class _Attributes(ctypes.Structure):
    _fields_ = (("counts", ctypes.c_uint * 6), ("slices", ctypes.c_uint * 2), ("memory_mb", ctypes.c_ulonglong))


class _Failed(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"NVML error {code}")
        self.code = code


def own_gpu() -> Gpu | None:
    """Return the GPU that CUDA programs get here by default, None where there is no driver or it does not answer.

    That is the first of CUDA_VISIBLE_DEVICES, else the first, as nvidia-smi counts (CUDA_DEVICE_ORDER=PCI_BUS_ID).
    """
    found: list[Gpu] = []

    def ask() -> None:
        with suppress(OSError, AttributeError, _Failed):
            found.extend(_Library().gpus())

    asking = threading.Thread(target=ask, name="nvml", daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return _first(found if not asking.is_alive() else [])


def _first(gpus: list[Gpu]) -> Gpu | None:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return gpus[0] if gpus else None
    name = visible.partition(",")[0].strip()
    fitting = (
        g for g in gpus if name and ((g.index or "").partition(":")[0] == name or (g.uuid or "").startswith(name))
    )
    return next(fitting, None)


class _Library:
    """The calls that are needed, by ctypes. Raises `OSError` without a driver, `_Failed` when it refuses."""

    def __init__(self) -> None:
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._call("nvmlInitWithFlags", 0)

    def gpus(self) -> list[Gpu]:
        count, cuda = ctypes.c_uint(), ctypes.c_int()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self._call("nvmlSystemGetCudaDriverVersion", ctypes.byref(cuda))
        versions = {
            "driver": self._text("nvmlSystemGetDriverVersion"),
            "cuda": f"{cuda.value // 1000}.{cuda.value % 1000 // 10}",
        }
        found: list[Gpu] = []
        for index in range(count.value):
            with suppress(_Failed):  # one that is lost does not hide the others
                found += list(self._of(index, versions))
        return found

    def _of(self, index: int, versions: dict[str, str]) -> Iterator[Gpu]:
        """Yield the GPU, or its instances where MIG has split it."""
        handle = self._handle("nvmlDeviceGetHandleByIndex_v2", index)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
        capability = f"{major.value}.{minor.value}"
        same: dict[str, Any] = {"name": self._text("nvmlDeviceGetName", handle), "compute_capability": capability}
        if not self._is_split(handle):
            yield Gpu(**same, **versions, uuid=self._text("nvmlDeviceGetUUID", handle), index=str(index))
            return
        most = ctypes.c_uint()
        self._call("nvmlDeviceGetMaxMigDeviceCount", handle, ctypes.byref(most))
        for number in range(most.value):
            with suppress(_Failed):  # numbers have gaps
                instance = self._handle("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
                uuid, profile = self._text("nvmlDeviceGetUUID", instance), self._profile(instance)
                yield Gpu(**same, **versions, mig_profile=profile, uuid=uuid, index=f"{index}:{number}")

    def _is_split(self, handle: ctypes.c_void_p) -> bool:
        now, later = ctypes.c_uint(), ctypes.c_uint()
        try:
            self._call("nvmlDeviceGetMigMode", handle, ctypes.byref(now), ctypes.byref(later))
        except _Failed as failed:
            if failed.code in (_NOT_SUPPORTED, _FUNCTION_MISSING):
                return False
            raise
        return bool(now.value)

    def _profile(self, instance: ctypes.c_void_p) -> str:
        if named := re.search(r" MIG (\S+)$", self._text("nvmlDeviceGetName", instance)):
            return named[1]
        attributes = _Attributes()
        self._call("nvmlDeviceGetAttributes_v2", instance, ctypes.byref(attributes))
        return f"{attributes.slices[0]}g.{round(attributes.memory_mb / 1024)}gb"

    def _handle(self, name: str, *given: Any) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._call(name, *given, ctypes.byref(handle))
        return handle

    def _text(self, name: str, *given: Any) -> str:
        room = ctypes.create_string_buffer(128)
        self._call(name, *given, room, ctypes.c_uint(len(room)))
        return room.value.decode(errors="replace")

    def _call(self, name: str, *given: Any) -> None:
        if code := getattr(self._nvml, name)(*given):
            raise _Failed(code)
