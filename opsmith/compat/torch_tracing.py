"""PyTorch's tracing: tensors without values, functional tensors, decompositions of operators.

Every name exists in each release from 2.10 on. Most of these modules import half of a compiler, so
they are imported where they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils._python_dispatch import (
    TorchDispatchMode as _TorchDispatchMode,
    _disable_current_modes,
)

from opsmith.untyped import Untyped


class TorchDispatchMode(_TorchDispatchMode):
    """A block that intercepts each operator call.

    Private: ``torch.utils._python_dispatch.TorchDispatchMode``. Without it, checks cannot estimate
    the rounding errors of a reference.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return that `torch.compile` may look into the block.

        Private, since 2.9. By default the first call in a block imports `torch.compile` to turn it
        off there, which takes 4 seconds.
        """
        return False


#: Private: ``torch.utils._python_dispatch._disable_current_modes``. A block that no trace sees.
#: Without it, an exported reference loses its constants.
unseen_by_traces: Untyped = _disable_current_modes


def is_functional(tensor: Tensor) -> bool:
    """Return whether a tensor belongs to a trace without mutation.

    Private: ``torch._is_functional_tensor``. Without it, an exported reference treats its arguments
    as constants.
    """
    return bool(torch._is_functional_tensor(tensor))


def demand(condition: object, message: Callable[[], str]) -> None:
    """Demand a condition on sizes, some of which may be symbols.

    Private: ``torch._check``. Without it, a trace does not know the conditions on sizes in the
    declaration, and refuses to branch on them.
    """
    torch._check(condition, message)


def fake_mode(**settings: Untyped) -> Untyped:
    """Return a block in which tensors have no values.

    Private: ``torch._subclasses.fake_tensor.FakeTensorMode``. Without it, fake kernels are not
    checked, and no derivative is translated to JAX.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(**settings)


def named_source(name: str) -> Untyped:
    """Return an object that says that a symbol comes from the input of this name.

    Private: ``torch._dynamo.source.ConstantSource``. Without it, conditions on sizes do not name
    the argument.
    """
    from torch._dynamo.source import ConstantSource

    return ConstantSource(name)


def asks_for_values(error: BaseException) -> bool:
    """Return whether an error says that code branches on values, or on sizes that values decide.

    Private: ``torch._subclasses.fake_tensor.DataDependentOutputException``. Without it, PyTorch's
    own message refuses a reference that reads values.
    """
    from torch._subclasses.fake_tensor import DataDependentOutputException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return isinstance(error, GuardOnDataDependentSymNode | DataDependentOutputException)


def functional_mode() -> object:
    """Return the class of the block in which traces replace writes into tensors.

    Private: ``torch._subclasses.functional_tensor.FunctionalTensorMode``. Without it, a compiler
    does not see into operators that launch Triton kernels.
    """
    from torch._subclasses.functional_tensor import FunctionalTensorMode

    return FunctionalTensorMode


def functionalized(function: Callable[..., object]) -> Untyped:
    """Return a function that computes the same without writing into tensors, for a trace.

    Private: ``torch._subclasses.functional_tensor.dispatch_functionalize``. Without it, a reference
    that writes into its own tensors is not exported.
    """
    from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize

    return dispatch_functionalize(function, FunctionalTensorMode())


def keeps_triton_operators() -> bool:
    """Return whether an export is traced, which keeps operators that launch Triton kernels.

    Private: ``torch.export._trace.custom_triton_ops_decomposition_disabled``. Without it, exported
    programs hold steps that other programs cannot read.
    """
    from torch.export._trace import custom_triton_ops_decomposition_disabled

    return bool(custom_triton_ops_decomposition_disabled())


def capturing_triton(enabled: bool) -> AbstractContextManager[None]:
    """Return a block in which launches of Triton kernels are captured, or are not.

    Private: ``torch._library.triton.set_wrap_triton_enabled``. Without it, a launch on real tensors
    fails inside a trace.
    """
    from torch._library.triton import set_wrap_triton_enabled

    return set_wrap_triton_enabled(enabled)


def all_decompositions() -> Mapping[Untyped, Callable[..., Untyped]]:
    """Return PyTorch's decompositions of its operators, by overload.

    Private: ``torch._decomp.decomposition_table``. Without it, checks assume for too many of
    PyTorch's operators that they round once, and flag right kernels.
    """
    from torch._decomp import decomposition_table

    return decomposition_table


def sizes_apart() -> AbstractContextManager[None]:
    """Return a block in which two sizes that are equal by chance are two symbols.

    Private: ``torch.fx.experimental._config``. Without it, the row ``compile`` flags operators for
    compiling again.
    """
    from torch.fx.experimental import _config

    config: Untyped = _config
    block: AbstractContextManager[None] = config.patch(use_duck_shape=False)
    return block


def backend(name: str) -> Untyped:
    """Return a backend of torch.compile by its name.

    Private: ``torch._dynamo.lookup_backend``. Without it, the row ``compile`` cannot count graphs.
    """
    return torch._dynamo.lookup_backend(name)


def noting_backend(graphs: list[object]) -> Untyped:
    """Return a backend of torch.compile that runs ATen graphs, and adds each to a list.

    The graphs of the backward are among them.

    Private: ``torch._dynamo.backends.common.aot_autograd``, and ``boxed_nop`` of ``debugging``,
    which runs a graph as it is. Without them, the row ``sharding`` does not try torch.compile.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop

    def note(graph: Untyped, inputs: list[Tensor]) -> object:
        graphs.append(graph)
        return boxed_nop(graph, inputs)

    return aot_autograd(fw_compiler=note, bw_compiler=note)


def updated(program: ExportedProgram, module: object, signature: object) -> ExportedProgram:
    """Return an ``ExportedProgram`` with another graph and signature.

    Private: ``torch.export.ExportedProgram._update``. Without it, a model that calls operators that
    write is not exported.
    """
    return program._update(module, signature)
