"""The table of device types, the only place that has facts on them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from opsmith.errors import DeclarationError
from opsmith.signature import Signature


@dataclass(frozen=True)
class Device:
    """A device type.

    Attributes:
        name: PyTorch's name, ``"cpu"``.
        autocast_key: the dispatch key of its autocast; `None` if PyTorch has no autocast for it.
        dlpack: its number in DLPack.
        torch_type: the C shim that returns PyTorch's number of the device type.
        stream: the C shim that returns the current stream, and the macro that makes PyTorch declare
            the shim. `None` where the stream is the one that the backend reports to PyTorch, from
            2.13 on.
        host_reads: whether the host may read its memory. Value ranges are checked on such devices
            only: on others every call would have to wait for the device.
        title: the device's name in messages, for a device that opsmith compiles a language other
            than C++ for.
        torch_libraries: PyTorch's libraries for the device: first the library that all code for the
            device links, then those that code using the C++ interface links too. Empty if they are
            part of the libraries for the CPU.
        alignment: bytes of which tensors of kernels begin at a multiple, without ``strided``.
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
    alignment: int = 1

    def missing(self) -> str:
        """Return why nothing can run on the device on this machine; empty if it is available."""
        import torch

        try:
            here = torch.get_device_module(self.name).is_available()
        except Exception:  # unknown to this PyTorch, or its extension is broken
            here = False
        return "" if here else f"no {self.name} device on this machine"

    def toolkit(self) -> str:
        """Return the toolkit that this PyTorch was built with, ``"CUDA 12.8"``; else empty."""
        return ""

    def architectures(self) -> tuple[str, ...]:
        """Return the architectures of this machine's devices; empty if unknown."""
        return ()

    def model(self) -> str:
        """Return the model name of the first device of this machine; empty if unknown."""
        return ""

    def remedy(self) -> str:
        """Return what to do if no device is found; empty if there is no advice."""
        return ""

    def compiled_by_inductor(self) -> bool:
        """Return whether Inductor, PyTorch's compiler, generates code for the device."""
        from opsmith.compat.torch_inductor import compiles_for

        return compiles_for(self.name)

    @property
    def in_every_library(self) -> bool:
        """Return whether every library supports the device, as ``abi.h`` lists it."""
        return self.name in (HOST, "cuda")

    @property
    def compile_definitions(self) -> tuple[str, ...]:
        """The preprocessor definitions of all code that is compiled for the device.

        Besides the CPU and CUDA, a library supports one device type: its own, or PrivateUse1.
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
            alignment=16,
        ),
        Device("mps", "MPS", None, 8, "aoti_torch_device_type_mps"),
        Device("xpu", "XPU", None, 14, "aoti_torch_device_type_xpu"),
        *(
            Device(
                name, "PrivateUse1", "AutocastPrivateUse1", 12, "aoti_torch_device_type_privateuse1"
            )
            for name in ("npu", "privateuseone")
        ),
    )
}
"""Device types by name."""

HOST = "cpu"
"""The device type that every machine has, and that every runtime can call kernels on."""


def find_device(name: str) -> Device | None:
    """Return a device type by its name, or by the name that PrivateUse1 was given; else `None`."""
    if name not in DEVICES and name == _privateuse1_name():
        return replace(DEVICES["privateuseone"], name=name)
    return DEVICES.get(name)


def host_reads(name: str) -> bool:
    """Return whether the host may read the memory of a device type."""
    device = find_device(name)
    return device is not None and device.host_reads


def get_device(name: str, what: str) -> Device:
    """Return a device type by name.

    Args:
        name: the device type.
        what: what names the device type, for the message.

    Raises:
        DeclarationError: there is no such device type.
    """
    device = find_device(name)
    if device is None:
        raise DeclarationError(f"{what}: no such device type; there are {', '.join(DEVICES)}")
    return device


def dispatch_key(name: str, signature: Signature, what: str) -> str:
    """Return the dispatch key of an operator's kernel for a device type.

    Args:
        name: the device type.
        what: the kernel, for the message.

    Raises:
        DeclarationError: there is no such device type, or no call would reach its kernel.
    """
    device = get_device(name, what)
    if signature.tensors:
        return device.dispatch_key
    if name != HOST:
        raise DeclarationError(
            f"{what}: the operator takes no tensor, whose device would select {name} in a call. "
            f"Register a kernel for {HOST!r}, or take a tensor on the device of the results"
        )
    # A call without tensors reaches no device's dispatch key; PyTorch dispatches it to this key.
    return "BackendSelect"


def _privateuse1_name() -> str | None:
    if "torch" not in sys.modules:
        return None  # without torch, PrivateUse1 has no name
    from opsmith.compat.torch_dispatch import name_of_privateuse1

    return name_of_privateuse1()
