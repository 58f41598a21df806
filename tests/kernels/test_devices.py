"""What is known of devices, and which language a source is in."""

from __future__ import annotations

import ast
import ctypes
import re
from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.checks.cases.subject import subjects_of
from opsmith.errors import DeclarationError, MissingDependencyError
from opsmith.kernels import (
    DEVICES,
    INCLUDE,
    Device,
    Recipe,
    adapters,
    find_device,
    kernel_source,
)
from opsmith.kernels.toolchain.torch_paths import TorchPaths
from opsmith.signature import Signature, signature_of


def test_a_device_is_one_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    row = Device("fake", "PrivateUse2", "AutocastXPU", 14, "aoti_torch_device_type_meta")
    monkeypatch.setitem(DEVICES, "fake", row)

    @opsmith.op("kernels_devices::on_fake")
    def on_fake(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x + y

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    assert not has(on_fake.name, "PrivateUse2")
    assert has(on_fake.name, "AutocastXPU")  # for its arguments may differ in dtype
    on_fake.register_kernel("fake", lambda x, y: x + y)
    assert has(on_fake.name, "PrivateUse2")
    on_fake.register_autocast("fake", torch.float32)
    (subject,) = [one for one in subjects_of(on_fake) if one.device == "fake"]
    assert subject.missing == "no fake device on this machine"
    source = tmp_path / "on_fake.cpp"
    source.write_text("")
    on_fake.register_kernel("fake", source=source)
    built = on_fake.kernels["fake"].source
    assert built is not None
    assert built.language.unit(built).defines == (
        "OPSMITH_EXTENSION_NAME=fake",
        "OPSMITH_EXTENSION_TYPE=14",
        "OPSMITH_EXTENSION_TORCH_TYPE=aoti_torch_device_type_meta",
    )
    adapter = adapters.torch_adapter(built.signature, "fake", strided=False)
    assert "PrivateUse2" in adapter
    with pytest.raises(DeclarationError, match=r"there are cpu, cuda, .*, fake"):
        on_fake.register_kernel("other", lambda x, y: x)


def test_a_renamed_backend_has_the_row_of_privateuse1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "renamed")
    device = find_device("renamed")
    assert device is not None
    assert device.dispatch_key == "PrivateUse1"
    assert "OPSMITH_EXTENSION_NAME=renamed" in device.compile_definitions
    assert "OPSMITH_EXTENSION_NAME=renamed" in DEVICES["cpu"].compile_definitions


def test_cpp_has_the_rows_of_the_table_for_the_devices_that_every_library_knows() -> None:
    text = (INCLUDE / "opsmith" / "abi.h").read_text()
    rows = re.findall(r"\bROW\((\w+), (\d+), (\w+)\)", text)
    assert [name for name, _, _ in rows] == ["cpu", "cuda"]
    for name, number, key in rows:
        assert (DEVICES[name].dlpack, DEVICES[name].dispatch_key) == (int(number), key)


def test_only_the_table_and_the_languages_name_a_device() -> None:
    package = Path(opsmith.__file__).parent
    may = {
        package / "__init__.py",  # `opsmith.cuda`, which takes a kernel as text
        package / "kernels" / "toolchain" / "devices.py",
        package / "kernels" / "languages",
        package / "kernels" / "toolchain" / "nvcc.py",  # drives the compiler of one
        package / "targets" / "jax" / "package",  # where it is the name of a platform of JAX
        package / "targets" / "onnxruntime" / "providers.py",  # ... of a provider
        package / "targets" / "aotinductor" / "compile.py",  # ... of a setting of Inductor
        package / "signature" / "binding.py",  # what messages call the device of no tensor
    }
    named = [
        f"{path.relative_to(package)}:{node.lineno} {node.value}"
        for path in sorted(package.rglob("*.py"))
        if not may & {path, *path.parents}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in DEVICES
    ]
    assert not named, "the row of a device has what is known of it; HOST is the host's"


@pytest.fixture
def signature() -> Signature:
    """One tensor in, one out."""

    def scale(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]: ...

    return signature_of(scale, "kernels_devices::scale")


def test_every_row_names_keys_that_pytorch_has() -> None:
    for device in DEVICES.values():
        assert hasattr(torch._C.DispatchKey, device.dispatch_key)
        assert device.autocast_key is None or hasattr(torch._C.DispatchKey, device.autocast_key)
    assert [name for name, device in DEVICES.items() if device.host_reads] == ["cpu"]


def test_cuda_sources_need_a_pytorch_with_cuda_and_nothing_is_compiled_before(
    signature: Signature, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TorchPaths, "links", lambda self, names: [])
    source = tmp_path / "scale.cu"
    source.write_text("no CUDA at all")
    for api in ("opsmith", "torch"):
        with pytest.raises(MissingDependencyError) as caught:
            kernel_source(signature, "cuda", source, api=api).build()
        assert str(caught.value) == (
            f"kernels_devices::scale (cuda): {source} is CUDA, and this PyTorch "
            f"({torch.__version__}) has no CUDA. Install a PyTorch that has it (https://pytorch.org/get-started/locally)."
        )


def test_a_source_in_no_language_is_refused_when_it_is_registered(
    signature: Signature, tmp_path: Path
) -> None:
    with pytest.raises(DeclarationError, match=r"api='jax'; there are 'opsmith' and 'torch'"):
        kernel_source(signature, "cpu", tmp_path / "scale.cpp", api="jax")
    with pytest.raises(DeclarationError, match=r"scale.rs is in no kernel language"):
        kernel_source(signature, "cpu", tmp_path / "scale.rs")


SHOW = """
#include <opsmith/detail/check.h>
extern "C" OPSMITH_EXPORT const char* shown() {
  using opsmith::detail::show;
  static const std::string text = show({opsmith::device_extension, 1}) + " " +
                                  show({opsmith::device_cpu, 0}) + " " +
                                  show({opsmith::device_cuda, 2});
  return text.c_str();
}
"""


def test_a_cuda_adapter_asks_pytorch_for_the_stream() -> None:
    assert DEVICES["cuda"].compile_definitions[:2] == (
        "OPSMITH_STREAM=aoti_torch_get_current_cuda_stream",
        "USE_CUDA",
    )
    assert not [row for row in DEVICES["cpu"].compile_definitions if "STREAM" in row]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["npu", "xpu", "cpu"])
def test_messages_name_a_device_as_pytorch_does(name: str) -> None:
    device = find_device(name)
    assert device is not None
    path = Recipe(
        "device_name",
        generated={"shown.cpp": SHOW},
        defines=device.compile_definitions,
        torch="none",
        flags=("-O0",),
    ).build()
    shown = ctypes.CDLL(str(path)).shown
    shown.restype = ctypes.c_char_p
    privateuse1 = torch._C._get_privateuse1_backend_name()
    extension = privateuse1 if name == "cpu" else name
    assert shown().decode() == f"{extension}:1 cpu cuda:2"
