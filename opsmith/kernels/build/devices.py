"""What is known of each device type: one row for each, and nowhere else."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from opsmith.errors import DeclarationError
from opsmith.signature import Signature


@dataclass(frozen=True)
class Device:
    """One device type.

    Attributes:
        name: as PyTorch says it, ``"cpu"``.
        dispatch_key: of its kernels.
        autocast_key: of its autocast; `None` where there is none.
        dlpack: its number in DLPack.
        torch_type: the C shim that gives PyTorch's number of the device type.
        stream: the C shim that gives a call's stream, and what makes PyTorch declare it; without
            one it is what the backend tells PyTorch, from 2.13 on.
        host_reads: whether the host may read its memory. Only there does it compare value ranges:
            elsewhere every call would have to wait for the device.
        title: how people say it, where opsmith compiles for it something else than C++.
        torch_libraries: the names of what PyTorch has for it: the library that whatever runs there
            links, then those that its C++ interface needs too. Empty: it is in those for the CPU.
    """

    name: str
    dispatch_key: str
    autocast_key: str | None
    dlpack: int
    torch_type: str
    stream: tuple[str, str] | None = None
    host_reads: bool = False
    title: str = ""
    torch_libraries: tuple[str, ...] = ()

    def missing(self) -> str:
        """Why nothing can run on it here; empty where it can."""
        import torch

        try:
            here = torch.get_device_module(self.name).is_available()
        except Exception:  # unknown to this PyTorch, or its extension is broken
            here = False
        return "" if here else f"no {self.name} device on this machine"

    def toolkit(self) -> str:
        """What this PyTorch was built with for it, ``"CUDA 12.8"``; empty where nothing."""
        return ""

    def architectures(self) -> tuple[str, ...]:
        """What to compile for, of those here; none where there is nothing to tell of."""
        return ()

    def model(self) -> str:
        """The name of the first one here."""
        return ""

    def remedy(self) -> str:
        """What to do where there is none."""
        return ""

    def is_capturing(self) -> bool:
        """Whether calls are being recorded to be played again, when nothing may wait for one."""
        return False

    def compiled_by_inductor(self) -> bool:
        """Whether Inductor, PyTorch's compiler, makes code for it."""
        from opsmith.compat.torch_inductor import compiles_for

        return compiles_for(self.name)

    @property
    def in_every_library(self) -> bool:
        """Whether a library knows it whatever it was compiled for: a row of ``abi.h``."""
        return self.name in (HOST, "cuda")

    @property
    def compile_definitions(self) -> tuple[str, ...]:
        """The preprocessor definitions of everything that is compiled for the device.

        Beside the CPU and CUDA a library knows one device type: its own, or PrivateUse1.
        """
        extension = DEVICES["privateuseone"] if self.in_every_library else self
        name = _privateuse1_name() if extension is not self else self.name
        return (
            *([f"OPSMITH_STREAM={self.stream[0]}", self.stream[1]] if self.stream else []),
            f"OPSMITH_EXTENSION_NAME={name or extension.name}",
            f"OPSMITH_EXTENSION_TYPE={extension.dlpack}",
            f"OPSMITH_EXTENSION_TORCH_TYPE={extension.torch_type}",
        )


class _Cuda(Device):
    def toolkit(self) -> str:
        import torch

        return f"{self.title} {torch.version.cuda}" if torch.version.cuda else ""

    def architectures(self) -> tuple[str, ...]:
        import torch

        if not torch.cuda.is_available():
            return ()
        devices = range(torch.cuda.device_count())
        here = sorted({torch.cuda.get_device_capability(device) for device in devices})
        return tuple(f"sm_{major}{minor}" for major, minor in here)

    def model(self) -> str:
        import torch

        return torch.cuda.get_device_name()

    def remedy(self) -> str:
        if self.toolkit():
            return "see whether nvidia-smi lists a device"
        return "this PyTorch is a CPU build; see https://pytorch.org/get-started"

    def is_capturing(self) -> bool:
        import torch

        return torch.cuda.is_current_stream_capturing()


DEVICES = {
    device.name: device
    for device in (
        Device("cpu", "CPU", "AutocastCPU", 1, "aoti_torch_device_type_cpu", host_reads=True),
        _Cuda(
            "cuda",
            "CUDA",
            "AutocastCUDA",
            2,
            "aoti_torch_device_type_cuda",
            ("aoti_torch_get_current_cuda_stream", "USE_CUDA"),
            title="CUDA",
            torch_libraries=("torch_cuda", "c10_cuda"),
        ),
        Device("mps", "MPS", None, 8, "aoti_torch_device_type_mps"),
        Device("xpu", "XPU", None, 14, "aoti_torch_device_type_xpu"),
        *(
            Device(
                name,
                "PrivateUse1",
                "AutocastPrivateUse1",
                12,
                "aoti_torch_device_type_privateuse1",
            )
            for name in ("npu", "privateuseone")
        ),
    )
}
"""The rows, by name."""

HOST = "cpu"
"""The device type that every machine has, and every runtime calls kernels on."""


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


def dispatch_key(name: str, signature: Signature, what: str) -> str:
    """The dispatch key of an operator's kernel for a device type.

    Args:
        name: the device type.
        signature: the operator's.
        what: who asks, for the message.

    Raises:
        DeclarationError: there is no such device type, or no call would reach its kernel.
    """
    device = get_device(name, what)
    if signature.tensors:
        return device.dispatch_key
    if name != HOST:
        raise DeclarationError(
            f"{what}: the operator takes no tensor, so nothing says that a call is for {name}. "
            f"Register a kernel for {HOST!r}, or take a tensor on the device that results belong on"
        )
    # Without tensors PyTorch reaches no device's key, and this one before it looks for any.
    return "BackendSelect"


def _privateuse1_name() -> str | None:
    if "torch" not in sys.modules:
        return None  # without it nobody has given it a name
    from opsmith.compat.torch_dispatch import name_of_privateuse1

    return name_of_privateuse1()
