"""What is known of each device type: one row for each, and nowhere else."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from opsmith.errors import DeclarationError


@dataclass(frozen=True)
class Device:
    """One device type.

    Attributes:
        name: as PyTorch says it, ``"cpu"``.
        dispatch_key: of its kernels.
        autocast_key: of its autocast; `None` where there is none.
        dlpack: its number in DLPack.
        torch_type: the C shim that gives PyTorch's number of the device type.
        stream: what adapters are compiled with to ask PyTorch for a call's stream (``USE_CUDA``);
            without it `Context::stream` is an error that names the device.
        host_reads: whether the host may read its memory. Only there are value ranges compared:
            elsewhere every call would have to wait for the device.
    """

    name: str
    dispatch_key: str
    autocast_key: str | None
    dlpack: int
    torch_type: str
    stream: str = ""
    host_reads: bool = False

    def missing(self) -> str:
        """Why nothing can run on it here; empty where it can."""
        import torch

        try:
            here = torch.get_device_module(self.name).is_available()
        except Exception:  # unknown to this PyTorch, or its extension is broken
            here = False
        return "" if here else f"no {self.name} device on this machine"

    @property
    def compile_definitions(self) -> tuple[str, ...]:
        """The preprocessor definitions of everything that is compiled for the device.

        Beside the CPU and CUDA a library knows one device type: its own, or PrivateUse1.
        """
        extension = self if self.name not in ("cpu", "cuda") else DEVICES["privateuseone"]
        name = _privateuse1_name() if extension is not self else self.name
        return (
            *([self.stream] if self.stream else []),
            f"OPSMITH_EXTENSION_NAME={name or extension.name}",
            f"OPSMITH_EXTENSION_TYPE={extension.dlpack}",
            f"OPSMITH_EXTENSION_TORCH_TYPE={extension.torch_type}",
        )


DEVICES = {
    device.name: device
    for device in (
        Device("cpu", "CPU", "AutocastCPU", 1, "aoti_torch_device_type_cpu", host_reads=True),
        Device("cuda", "CUDA", "AutocastCUDA", 2, "aoti_torch_device_type_cuda", "USE_CUDA"),
        Device("mps", "MPS", None, 8, "aoti_torch_device_type_mps"),
        Device("xpu", "XPU", None, 14, "aoti_torch_device_type_xpu"),
        Device("npu", "PrivateUse1", None, 12, "aoti_torch_device_type_privateuse1"),
        Device("privateuseone", "PrivateUse1", None, 12, "aoti_torch_device_type_privateuse1"),
    )
}
"""The rows, by name."""


def find_device(name: str) -> Device | None:
    """The row of a device type, also by the name that PyTorch's PrivateUse1 was given."""
    if name not in DEVICES and name == _privateuse1_name():
        return replace(DEVICES["privateuseone"], name=name)
    return DEVICES.get(name)


def host_reads(name: str) -> bool:
    """Whether the host may read the memory of a device type."""
    device = find_device(name)
    return device is not None and device.host_reads


def get_device(name: str, what: str) -> Device:
    """The row of a device type.

    Args:
        name: the device type.
        what: who asks, for the message.

    Raises:
        DeclarationError: there is no such device type.
    """
    device = find_device(name)
    if device is None:
        raise DeclarationError(f"{what}: no such device type; there are {', '.join(DEVICES)}")
    return device


def _privateuse1_name() -> str | None:
    torch = sys.modules.get("torch")  # without it nobody has given it a name
    return torch._C._get_privateuse1_backend_name() if torch is not None else None
