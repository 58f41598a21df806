"""Inductor, PyTorch's compiler, and AOTInductor, which runs compiled models without Python.

Every name exists in each release from 2.10 on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
from torch.export import ExportedProgram

from opsmith.compat.patch import Patch
from opsmith.compat.torch_ops import OpOverload, is_written, out_of, overload_schema
from opsmith.system.post_import import when_imported
from opsmith.untyped import Untyped


def settings() -> Untyped:
    """Return the settings of Inductor.

    Private: ``torch._inductor.config``. Without it, models are compiled for another processor than
    kernels, and an unknown setting is not refused by name.
    """
    from torch._inductor import config

    return config


def compile_and_package(program: ExportedProgram, path: str, configs: Mapping[str, object]) -> None:
    """Compile a model to a package.

    Private: ``torch._inductor.aoti_compile_and_package``. Without it, there is no AOTInductor.
    """
    torch._inductor.aoti_compile_and_package(
        program, package_path=path, inductor_configs=dict(configs)
    )


def autotune_among(overload: OpOverload, choices: Callable[[str], list[Untyped]]) -> None:
    """Let Inductor time an operator and what else computes the same, and take the fastest.

    Private: ``torch._inductor.kernel.custom_op``. Without it, calls reach the operator's kernel.

    Args:
        choices: returns other functions of the operator's arguments, for a device type.
    """
    from torch._inductor.kernel import custom_op
    from torch._inductor.virtualized import V

    def configurations(tensors: Mapping[str, torch.Tensor]) -> list[custom_op.CustomOpConfig]:
        # A package has the library of the kernel, and of no other choice.
        (device,) = {tensor.device.type for tensor in tensors.values()}
        found = [] if V.aot_compilation else choices(device)
        return [custom_op.CustomOpConfig(one) for one in found]

    custom_op.register_custom_op_autotuning(overload, config_generator=configurations)


def has_loader() -> bool:
    """Return whether PyTorch was built with the loader of packages.

    Private: ``torch._C._aoti``. Without it, there is no AOTInductor.
    """
    return hasattr(torch._C, "_aoti")


def load_package(path: str) -> Untyped:
    """Load a package.

    Private: ``torch._C._aoti.AOTIModelPackageLoader``. Without it, there is no AOTInductor. The
    public ``torch._inductor.aoti_load_package`` hides whether one thread runs the package.
    """
    return torch._C._aoti.AOTIModelPackageLoader(path, "model", False, 1, -1)


def function_name(operator: str, device: str) -> str:
    """Return the name by which compiled code calls an operator.

    Private: ``torch._inductor.codegen.cpp_wrapper_cpu.CppWrapperCpu.get_c_shim_func_name``. Without
    it, AOTInductor calls kernels through PyTorch's dispatcher, which takes longer.
    """
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

    return str(CppWrapperCpu.get_c_shim_func_name(operator, device))


def compiles_for(device: str) -> bool:
    """Return whether Inductor generates code for a device type.

    Private: ``torch._inductor.codegen.common``. Without it, operators are not compiled on device
    types of other packages.
    """
    from torch._inductor.codegen import common

    common.init_backend_registration()
    return common.get_scheduling_for_device(device) is not None


@functools.cache
def take_calls_that_write_nothing() -> None:
    """Let Inductor compile a call that has one result and could write, but writes nothing.

    Inductor replaces a functional call, which returns the result and what was written, by the call
    itself. If nothing was written, Inductor treats the result like the tuple that contains it, and
    fails. From now on, such a tuple has `None` beside the result.

    Private: ``torch._inductor.pattern_matcher.ReplacementPatternEntry``. Without it, calls in which
    every optional argument that is written is absent are not compiled.
    """
    from torch._inductor.pattern_matcher import ReplacementPatternEntry

    original = ReplacementPatternEntry.replace_with_graph

    @functools.wraps(original)
    def replace(match: Untyped, graph: object, by: Untyped, *args: object, **how: object) -> object:
        if match.nodes[0].target is torch.ops.higher_order.auto_functionalized_v2:
            (output,) = (node for node in by.graph.nodes if node.op == "output")
            if isinstance(output.args[0], list | tuple) and len(output.args[0]) == 1:
                output.args = ((*output.args[0], None),)
        return original(match, graph, by, *args, **how)

    # A static method, which the name of the class finds in each call.
    ReplacementPatternEntry.replace_with_graph = staticmethod(replace)


def _out_variants() -> Untyped:
    """Return the module in which Inductor looks for out variants.

    Private: ``torch._library._out_variant``. Without it, AOTInductor fails at operators with one.
    """
    from torch._library import _out_variant

    return _out_variant


_none_found = Patch(_out_variants, "to_out_variant", lambda _: lambda overload: None)


def plan_results(has_out: Callable[[str], bool]) -> None:
    """Let Inductor plan the memory of the results of operators that have an out variant.

    PyTorch 2.13's own lowering fails at sizes that are symbols, and at results that nothing reads.
    With one result it passes tensors before other arguments, flattens lists, repeats arguments by
    name, and writes C++ that calls a function which does not exist. Earlier releases have none.

    Private: ``torch._inductor.ir``. Without it, such calls are not compiled, or with arguments in
    another order.

    Args:
        has_out: whether the operator of a name has an out variant of opsmith's.
    """
    when_imported("torch._inductor.ir", functools.partial(_lower, has_out))


def _lower(has_out: Callable[[str], bool], ir: Untyped) -> None:
    if not hasattr(ir, "ExternKernelMultiOut"):
        return
    original = ir.FallbackKernel.create.__func__

    class CallIntoBuffers(ir.ExternKernelMultiOut):  # type: ignore[misc]  # a class that is not known here
        def codegen(self, wrapper: Untyped) -> None:
            # The call writes results that nothing reads, too: their memory has to be allocated.
            unread = {result.get_name() for result in self.outputs}
            ir.V.graph.removed_buffers.difference_update(unread)
            super().codegen(wrapper)

    def create(cls: Untyped, /, kernel: Untyped, *args: object, **kwargs: object) -> object:
        if not isinstance(kernel, OpOverload) or not has_out(kernel.name()):
            return original(cls, kernel, *args, **kwargs)
        if ir.V.graph.cpp_wrapper:  # C++ calls the operator as it is
            with _none_found():
                return original(cls, kernel, *args, **kwargs)
        with ir.V.graph.fake_mode:
            processed = cls.process_kernel(kernel, *args, **kwargs)
        # A tuple before PyTorch 2.15, and since an object whose fields are the same, in this order.
        fields = processed if isinstance(processed, tuple) else vars(processed).values()
        example, tensors, rest, unflatten, symbols = fields
        out: Untyped = out_of(kernel)
        call = CallIntoBuffers(
            ir.MultiOutputLayout(device=cls.find_device(tensors, example)),
            *(kernel, tensors, rest, unflatten),
            kwargs=kwargs,
            unbacked_bindings=symbols,
            out_op=out,
            out_arg_names=[one.name for one in overload_schema(out).arguments if is_written(one)],
        )
        call.out_variant_output_nodes = call.outputs = [
            ir.AllocatingMultiOutput(cls.tensor_to_layout(result), call, [(tuple, place)])
            for place, result in enumerate(example if isinstance(example, tuple) else [example])
        ]
        return tuple(call.outputs) if isinstance(example, tuple) else call.outputs[0]

    ir.FallbackKernel.create = classmethod(create)
