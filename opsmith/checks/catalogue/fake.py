"""Check that the fake kernel, which tracing runs, predicts the real kernel's results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case, show_shape
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.layouts import LAYOUTS
from opsmith.checks.cases.wanted import DYNAMIC_SIZES, Wanted
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.trial import Trial
from opsmith.compat.torch_dispatch import as_in_traces
from opsmith.compat.torch_modules import FAKES
from opsmith.compat.torch_tracing import fake_mode, named_source
from opsmith.operators.core.arguments import (
    dtype_name,
    every_tensor_in,
    flatten,
    holds_tensors,
    output_names,
)
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.shapes import Fixed


@define_check(
    "fake",
    "the fake kernel gives the real one's shapes, dtypes, devices and strides",
    order=30,
    runtime="fake tensors",
    prepares=(
        FAKES,
        "torch.fx.experimental.symbolic_shapes",
        # The compiler modules that the first symbolic size imports.
        "torch.fx.experimental.validator",
    ),
)
def fake(trial: Trial) -> None:
    """Try plain sizes in every layout, then symbolic sizes, none of which may become a number.

    A size is told as fixed when a second number of it is fixed too, or when no other was drawn:
    PyTorch itself compares some sizes with 1, such as the last of three differences, which fixes
    one number of the size and leaves every other open.
    """
    trial.attribution.about("fake kernel", trial.operator.written_fake)

    def plain(case: Case) -> None:
        trial.accept(case)
        _compare(trial, case)

    trial.each(plain, wanted=Wanted(layouts=LAYOUTS), examples=trial.some(2))
    small = Wanted(sizes=(0, 1, 2))
    favourite = (trial.subject.favourite,)
    trial.each(plain, dtypes=favourite, wanted=small, examples=4, registered_cases=False)

    sizes = _Sizes()

    def symbolic(case: Case) -> None:
        trial.accept(case)
        _compare(trial, case, sizes)

    # Eight cases are enough where all stay open; a number that was fixed once asks for more.
    for examples in (8, 16):
        trial.each(
            symbolic,
            dtypes=favourite,
            wanted=Wanted(sizes=DYNAMIC_SIZES, distinct=True),
            examples=examples,
            keep=lambda case: all(size > 1 for _, t in case.tensors() for size in t.shape),
        )
        if not sizes.fixed:
            break
    for axis, fixed in sizes.fixed.items():
        if axis not in sizes.free:
            raise _fixes(*axis, set().union(*fixed.values()))


class _Sizes:
    """The axes of arguments that a fake kernel fixed, with the numbers, and those left open.

    The numbers are kept by the arguments that are no tensors: PyTorch fixes every size from which a
    size of 1 follows, and that is another one for each window of a convolution.
    """

    def __init__(self) -> None:
        self.fixed: dict[tuple[str, int], dict[str, set[int]]] = {}
        self.free: set[tuple[str, int]] = set()


def _compare(trial: Trial, case: Case, symbolic: _Sizes | None = None) -> None:
    # Imported late, since symbolic_shapes imports half of the compiler.
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    signature = trial.signature
    arguments = case.make(trial.subject.device)
    returned = trial.call(arguments)
    real = flatten(signature, returned, arguments)
    names = output_names(signature, returned, arguments)
    # The shape environment creates symbols for sizes that only the data decides. A fake kernel
    # written by hand needs it too, if the declaration does not name these sizes.
    mode = fake_mode(shape_env=ShapeEnv(duck_shape=False), allow_non_fake_inputs=False)
    own = {
        name: _fake_value(mode, name, value, symbolic is not None)
        for name, value in case.make(trial.subject.device).items()
    }
    before = {name: value.shape for name, value in every_tensor_in(own)}
    try:
        with mode, as_in_traces():
            returned = trial.call(own)
    except Exception as error:
        raise Failure(f"the fake kernel {trial.raised(error)}", code="OPS-FAKE-RAISED") from error
    if symbolic:
        plain = [v for v in arguments.values() if not (isinstance(v, Tensor) or holds_tensors(v))]
        _require_free(trial, before, symbolic, repr(plain))
    promised = flatten(signature, returned, own)
    if len(promised) != len(real):
        raise Failure(
            f"the fake kernel gives {len(promised)} tensors, the kernel {len(real)}",
            code="OPS-FAKE-SHAPE",
        )
    for name, fake_tensor, tensor in zip(names, promised, real, strict=True):
        _require_equal(name, fake_tensor, tensor)


def _fake_value(mode: Any, name: str, value: Any, symbolic: bool) -> Any:
    if holds_tensors(value):
        return [_fake_value(mode, f"{name}[{n}]", item, symbolic) for n, item in enumerate(value)]
    if not isinstance(value, Tensor):
        return value
    if not symbolic:
        return mode.from_tensor(value, static_shapes=True)
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * value.dim())
    return mode.from_tensor(value, symbolic_context=context, source=named_source(name))


def _require_free(trial: Trial, shapes: Mapping[str, Any], seen: _Sizes, others: str) -> None:
    """Make sure that the fake kernel left every open size of the declaration symbolic."""
    for name, sizes in shapes.items():
        told = trial.signature.told_dims
        shape = trial.signature.by_name[name.partition("[")[0]].shape
        # A size that is a number because of the declaration itself is no fault.
        constant = {
            axis % len(sizes)
            for axis, dim in (shape.axes() if shape else ())
            if isinstance(dim, Fixed) and expressions.names(dim.expression) <= told
        }
        for axis, size in enumerate(sizes):
            if axis in constant or not isinstance(size, torch.SymInt):
                continue
            number = size.node.maybe_as_int()
            if number is None:
                seen.free.add((name, axis))
                continue
            fixed = seen.fixed.setdefault((name, axis), {}).setdefault(others, set())
            fixed.add(number)
            if len(fixed) > 1:
                raise _fixes(name, axis, fixed)


def _fixes(name: str, axis: int, numbers: set[int]) -> Failure:
    return Failure(
        f"the fake kernel fixes dimension {axis} of {name!r} to a number "
        f"({', '.join(map(str, sorted(numbers)))} in the cases tried): a model exported or "
        "compiled with it takes no other size. It must not turn a size into an int, compare it "
        "with a number, or loop over it.",
        code="OPS-FAKE-FIXED",
    )


def _require_equal(name: str, fake_tensor: Tensor, tensor: Tensor) -> None:
    def refuse(code: str, given: object, right: object) -> NoReturn:
        what = f"{name}: the fake kernel gives {given}, the kernel {right}"
        raise Failure(what, code=code)

    if fake_tensor.dim() != tensor.dim():
        refuse("OPS-FAKE-SHAPE", f"{fake_tensor.dim()} dimensions", tensor.dim())
    sizes = [_plain(size) for size in fake_tensor.shape]
    if any(size not in (None, real) for size, real in zip(sizes, tensor.shape, strict=True)):
        refuse("OPS-FAKE-SHAPE", f"shape {_show(sizes)}", show_shape(tensor.shape))
    if fake_tensor.dtype != tensor.dtype:
        refuse("OPS-FAKE-DTYPE", f"dtype {dtype_name(fake_tensor.dtype)}", dtype_name(tensor.dtype))
    if fake_tensor.device != tensor.device:
        refuse("OPS-FAKE-DEVICE", f"device {fake_tensor.device}", tensor.device)
    if not tensor.numel():
        return
    strides = [_plain(stride) for stride in fake_tensor.stride()]
    for axis, (stride, real) in enumerate(zip(strides, tensor.stride(), strict=True)):
        # The stride of a dimension of one element is never used.
        if tensor.shape[axis] > 1 and stride not in (None, real):
            refuse("OPS-FAKE-STRIDE", f"strides {_show(strides)}", show_shape(tensor.stride()))


def _plain(size: Any) -> int | None:
    """Return a size or stride as a number; `None` if only the data decides it."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    return size.node.hint if size.node.has_hint() else None


def _show(sizes: list[int | None]) -> str:
    inner = ", ".join("?" if size is None else str(size) for size in sizes)
    return f"({inner},)" if len(sizes) == 1 else f"({inner})"
