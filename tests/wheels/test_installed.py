"""What a wheel installs: it works where there is neither opsmith nor a compiler."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import textwrap
from pathlib import Path

import pytest
from wheel_samples import LEVEL, USE, WITHOUT, run

import opsmith
from opsmith.errors import BuildError, MissingDependencyError
from opsmith.kernels.libraries import prebuilt
from opsmith.system import machine


@pytest.mark.slow
def test_it_works_without_opsmith_a_compiler_or_a_cache(site: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    done = run(
        site, WITHOUT + USE, PATH=str(empty), HOME=str(empty), OPSMITH_CACHE=str(empty / "cache")
    )
    assert done.returncode == 0, done.stderr
    _, value, thrown, dtype = done.stdout.split("sample::pick: ")
    assert value.startswith("argument 'rows' has value 7 at index 0, expected 0 <= value < 3 (N).")
    assert thrown == "a negative element\n"
    assert dtype.startswith("argument 'x' has dtype float64, expected float32.")
    assert f"libraries/{LEVEL}/" in done.stdout
    assert "calls 3" in done.stdout
    assert not (empty / "cache").exists()


@pytest.mark.long  # test_it_works_without_... states the main promise
def test_a_folder_that_is_named_opsmith_is_not_taken_for_it(site: Path) -> None:
    (site / "opsmith").mkdir()
    # opsmith itself lies where the program runs, and an editable install adds its folder.
    itself = ["", str(Path(opsmith.__file__).parents[1])]
    alone = f"import sys; sys.path = [one for one in sys.path if one not in {itself}]; "
    done = run(site, f"{alone}import sample_ops; print(sample_ops._opsmith.__name__)")
    assert (done.stdout, done.stderr) == ("sample_ops._opsmith\n", "")


@pytest.mark.long
def test_torch_writes_its_standard_forms_into_onnx_without_opsmith(site: Path) -> None:
    pytest.importorskip("onnxscript")
    text = """
        import torch
        from sample_ops import weighted_square, pick
        from sample_ops._opsmith import onnx_translations

        class Model(torch.nn.Module):
            def forward(self, x, weight):
                return weighted_square(x, weight)

        program = torch.onnx.export(
            Model().eval(), (torch.randn(3, 2), torch.ones(2)), dynamo=True, verbose=False,
            opset_version=20, custom_translation_table=onnx_translations(opset=20),
        )
        print([node.op_type for node in program.model.graph])
        x, weight = torch.randn(3, 2), torch.randn(2)
        from onnx.reference import ReferenceEvaluator
        names = [value.name for value in program.model.graph.inputs]
        feed = dict(zip(names, (x.numpy(), weight.numpy())))
        (found,) = ReferenceEvaluator(program.model_proto).run(None, feed)
        torch.testing.assert_close(torch.from_numpy(found), weighted_square(x, weight))
        try:
            onnx_translations(pick)
        except RuntimeError as error:
            print(error)
    """
    done = run(site, WITHOUT + textwrap.dedent(text))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "['Mul', 'Mul']",
        "sample::pick: does not say how standard ONNX operators compute it; "
        "declare this by pick.register_onnx",
    ]


@pytest.mark.long  # test_it_works_without_... states the main promise
def test_it_takes_dtensors_without_opsmith(site: Path) -> None:
    text = """
        import torch
        import torch.distributed as dist
        from sample_ops import weighted_square
        from torch.distributed._local_tensor import LocalTensorMode
        from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
        from torch.distributed.tensor import init_device_mesh

        dist.init_process_group("fake", rank=0, world_size=3)
        x, weight = torch.randn(7, 2), torch.tensor([2.0, 3.0])
        with LocalTensorMode(3):
            mesh = init_device_mesh("cpu", (3,))
            dx = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_()
            dw = distribute_tensor(weight, mesh, [Replicate()]).requires_grad_()
            out = weighted_square(dx, dw)
            out.sum().backward()
            found = out.detach().full_tensor().reconcile()
            torch.testing.assert_close(found, weight * x * x)
            print(out.placements, dx.grad.placements, dw.grad.placements)
            try:
                weighted_square(dx, weight)
            except RuntimeError as error:
                print(error)
    """
    done = run(site, WITHOUT + textwrap.dedent(text))
    assert done.returncode == 0, done.stderr
    placements, refused = done.stdout.splitlines()
    assert placements == "(Shard(dim=0),) (Shard(dim=0),) (Partial(sum),)"
    assert refused.startswith("sample::weighted_square: argument 'weight' is a plain torch.Tensor")


@pytest.mark.slow
def test_with_opsmith_its_operators_are_opsmiths_and_nothing_is_compiled(
    site: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    text = """
        import opsmith, sample_ops
        from opsmith.sources.importing import import_operators
        names = [operator.name for operator in import_operators("sample_ops").operators]
        assert "sample::pick" in names, names
        assert isinstance(sample_ops.pick, opsmith.Operator)
        print(sample_ops.pick.build("cpu")[0])
    """
    done = run(site, text, OPSMITH_CACHE=str(cache), PATH="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith(str(site / "sample_ops" / "_opsmith"))
    assert not (cache / "libraries" / "sample__pick__cpu").exists()


@pytest.mark.long
def test_a_source_that_was_changed_is_compiled_again(site: Path, tmp_path: Path) -> None:
    source = site / "sample_ops" / "kernels" / "pick.cpp"
    source.write_text(source.read_text().replace("a negative element", "below zero"))
    text = "import sample_ops; print(sample_ops.pick.build('cpu')[0])"
    done = run(site, text, OPSMITH_CACHE=str(tmp_path / "cache"))
    assert done.stdout.startswith(str(tmp_path / "cache")), done.stderr
    alone = run(site, WITHOUT + text)
    assert (
        "sample::pick (cpu): no library came with" in alone.stderr
        and "for pick.cpp as it is. To compile it, pip install 'opsmith[build]'." in alone.stderr
    )


@pytest.mark.slow
def test_a_call_of_what_it_does_not_hold_says_how_to_get_it(site: Path) -> None:
    text = """
        import torch, sample_ops
        calls = (
            lambda: sample_ops.negated(torch.ones(2)),
            lambda: sample_ops.pick.build("cuda"),
            lambda: sample_ops.weighted_square.kernels["cuda"].kernel.function,
        )
        for call in calls:
            try:
                call()
            except Exception as error:
                print(type(error).__name__, error)
    """
    done = run(site, WITHOUT + textwrap.dedent(text))
    source, cuda, in_triton = done.stdout.splitlines()
    kernels = site / "sample_ops" / "kernels"
    assert source == (
        'BuildError sample::negated (cpu): negated.cpp has api="torch", which binds to one '
        f"PyTorch, so no library came with {kernels}. To compile it, pip install 'opsmith[build]'."
    )
    assert cuda == (
        f"BuildError sample::pick (cuda): no library came with {kernels} for pick.cu as it is. "
        "To compile it, pip install 'opsmith[build]'."
    )
    if importlib.util.find_spec("triton") is None:
        assert in_triton.startswith("MissingDependencyError sample::weighted_square (cuda): ")


@pytest.mark.long  # test_it_works_without_... states the main promise
def test_two_packages_with_operators_of_one_name_are_told_apart(wheel: Path, site: Path) -> None:
    other = site / "other_ops"
    shutil.copytree(site / "sample_ops", other)
    for path in other.glob("*.py"):
        path.write_text(path.read_text().replace("sample_ops", "other_ops"))
    done = run(site, WITHOUT + "import sample_ops, other_ops")
    first, second = (site / name / "squares.py" for name in ("sample_ops", "other_ops"))
    line = next(
        number for number, text in enumerate(first.read_text().splitlines(), 1) if "@op(" in text
    )
    assert (
        "sample::weighted_square: PyTorch already has an operator of this name, declared in "
        f"{first}:{line}. Give yours, declared in {second}:{line}, another name." in done.stderr
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An installed package with one kernel, whose libraries are only listed."""
    folder = tmp_path / "pack"
    (folder / "_opsmith" / "libraries").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "k.cpp").write_text("//\n")
    entries = []
    for level in ("low", "high"):
        library = folder / "_opsmith" / "libraries" / f"{level}.so"
        library.write_bytes(level.encode())
        entries.append(
            {
                "source": "k.cpp",
                "operator": "a::b",
                "device": "cpu",
                "machine": machine.platform_name().partition("-")[2],
                "level": level,
                "needs": [level],
                "file": f"libraries/{level}.so",
                "sha256": hashlib.sha256(level.encode()).hexdigest(),
            }
        )
    entries[1]["needs"] = ["low", "high"]
    sources = {"k.cpp": hashlib.sha256(b"//\n").hexdigest()}
    listed = {"opsmith": "0", "sources": sources, "libraries": entries}
    (folder / "_opsmith" / "libraries.json").write_text(json.dumps(listed))
    return folder


def test_the_library_for_the_highest_level_of_this_processor_is_taken(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def processor(*has: str) -> None:
        monkeypatch.setattr(machine, "lacking", lambda needs: sorted(set(needs) - set(has)))

    def found(device: str = "cpu") -> str | None:
        path = prebuilt.find(package / "k.cpp", "a::b", device)
        return None if path is None else path.stem

    processor("low", "high")
    assert (found(), found("cuda")) == ("high", None)
    processor("low")
    assert found() == "low"
    processor()
    with pytest.raises(
        MissingDependencyError,
        match=r"a::b \(cpu\): pack has libraries for high, low, and .* without low\. ",
    ):
        found()
    processor("low")
    (package / "_opsmith" / "libraries" / "low.so").write_bytes(b"other")
    with pytest.raises(BuildError, match=r"low\.so is damaged\. Install the package again\."):
        found()
    (package / "k.cpp").write_text("// changed\n")
    assert found() is None
