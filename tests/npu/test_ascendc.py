"""Ascend C: what is refused without CANN, and the gallery's kernel on the tests' device."""

import os
from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from on_device import on_device
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.errors import DeclarationError, MissingDependencyError
from opsmith.kernels import kernel_source
from opsmith.signature import Signature, signature_of
from opsmith.sources.importing import import_all

ADD_CUSTOM = Path(__file__).parents[2] / "gallery" / "add_custom" / "add_custom.py"
CHECKS = ["reference", "layouts"]


@pytest.fixture
def signature() -> Signature:
    """One tensor in, one out."""

    def scale(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]: ...

    return signature_of(scale, "ascendc::scale")


def test_without_cann_the_kernel_is_refused_before_anything_is_compiled(
    signature: Signature, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "scale.cpp"
    source.write_text("no Ascend C at all")
    kernel = kernel_source(signature, "npu", source, asked="ascendc")
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    with pytest.raises(MissingDependencyError) as caught:
        kernel.build()
    assert str(caught.value) == (
        "ascendc::scale (npu): needs CANN, whose compiler bisheng takes Ascend C, and "
        "ASCEND_HOME_PATH is not set. Install the CANN toolkit "
        "(https://www.hiascend.com/software/cann), and source the set_env.sh in its folder."
    )
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError) as caught:
        kernel.build()
    assert str(caught.value) == (
        "ascendc::scale (npu): needs CANN's compiler bisheng, and there is none below "
        f"ASCEND_HOME_PATH ({tmp_path}), in bin, compiler/ccec_compiler/bin, "
        "tools/bisheng_compiler/bin. Install the CANN toolkit, not its runtime alone."
    )


def test_a_language_is_asked_for_by_a_name_that_there_is_and_on_its_device(
    signature: Signature, tmp_path: Path
) -> None:
    source = tmp_path / "scale.cpp"
    with pytest.raises(DeclarationError, match=r"language='ascend'; expected 'ascendc', or none"):
        kernel_source(signature, "npu", source, asked="ascend")
    with pytest.raises(DeclarationError, match=r"\(cpu\): Ascend C is for NPUs: register_kernel"):
        kernel_source(signature, "cpu", source, asked="ascendc")
    with pytest.raises(DeclarationError, match=r"scale.cu is in no kernel language; there are Asc"):
        kernel_source(signature, "npu", source.with_suffix(".cu"), asked="ascendc")


def test_calls_on_the_cpu_need_no_cann(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    (add_custom,) = import_all([str(ADD_CUSTOM)])
    x = torch.arange(4.0)
    assert add_custom(x, x).tolist() == [0, 2, 4, 6]
    assert add_custom.build() == []  # what needs a device that is not here is left out


@pytest.mark.slow
@on_device
def test_the_gallerys_kernel_is_compiled_by_bisheng_and_right_on_the_device(tmp_path: Path) -> None:
    from emulated_cann import install

    install(tmp_path / "cann")
    os.environ["ASCEND_HOME_PATH"] = str(tmp_path / "cann")
    (add_custom,) = import_all([str(ADD_CUSTOM)])
    for dtype in (torch.float32, torch.float16):
        for size in (0, 1, 15, 4095, 4096, 4097, 40 * 4096, 3 * 40 * 4096 + 33):
            x, y = torch.randn(2, size).to(dtype)
            result = add_custom(x.to("npu:1"), y.to("npu:1"))
            torch.testing.assert_close(result.cpu(), x + y)
    assert add_custom.kernels["npu"].dtypes == ("float32", "float16")
    with pytest.raises(opsmith.OpsmithError, match="the npu kernel has no float64; it has float32"):
        add_custom(x.double().to("npu"), y.double().to("npu"))
    report = checks.run(add_custom, select=CHECKS, devices=["npu"], isolate=False, examples=4)
    assert {row.status for row in report.rows} == {"passed"}, report
