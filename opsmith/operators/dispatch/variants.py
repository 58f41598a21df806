"""Variants of a kernel: one source, compiled with other numbers for its macros."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence

from opsmith.compat.torch_inductor import autotune_among
from opsmith.errors import DeclarationError
from opsmith.operators.core.operator import Operator, RegisteredOperator
from opsmith.operators.dispatch import graph_caches
from opsmith.operators.dispatch.kernel import NativeKernel, native_kernel
from opsmith.untyped import Value

#: So many variants are built and checked, each of them, that more are a mistake.
_MOST = 64


def kernels_of(
    operator: RegisteredOperator,
    device: str,
    source: object,
    options: dict[str, Value],
    variants: Mapping[str, Sequence[Value]] | None,
) -> tuple[NativeKernel, dict[str, NativeKernel]]:
    """Return the kernel that calls reach, and its further variants by name, ``cpu[TILE=8]``.

    Args:
        options: see `opsmith.operators.dispatch.kernel.native_kernel`.
        variants: see `DefinedOperator.register_kernel`; the first of each macro's values are those
            of the kernel.
    """
    if variants is None:
        return native_kernel(operator, device, source, options), {}
    made: list[tuple[str, NativeKernel]] = []
    for values in _combinations(f"{operator.name}: register_kernel(variants=…)", variants):
        name = f"{device}[{','.join(f'{macro}={value}' for macro, value in values.items())}]"
        flags = (*options["flags"], *(f"-D{macro}={value}" for macro, value in values.items()))
        own = {**options, "flags": flags, "variant": name if made else ""}
        made.append((name, native_kernel(operator, device, source, own)))
    first = made[0][1]
    if not first.validates:
        raise DeclarationError(
            f"{operator.name}: register_kernel(variants=…): a source that registers itself with "
            f"PyTorch, api={first.source.api!r}, would register every variant under one name; "
            "write it with OPSMITH_KERNEL"
        )
    return first, dict(made[1:])


def _combinations(what: str, variants: Mapping[str, Sequence[Value]]) -> list[dict[str, str]]:
    """Return the values of all macros, as C++ writes them, for each combination."""
    if not isinstance(variants, Mapping) or not variants:
        raise DeclarationError(
            f'{what}: expected values by the name of a macro, as in {{"TILE": (64, 128)}}, got '
            f"{variants!r}"
        )
    written: dict[str, list[str]] = {}
    for macro, values in variants.items():
        if not isinstance(macro, str) or not re.fullmatch(r"[A-Za-z_]\w*", macro):
            raise DeclarationError(f"{what}: {macro!r} is no name of a macro")
        several = isinstance(values, Sequence) and not isinstance(values, str)
        if not several or not values or not all(isinstance(one, int | str) for one in values):
            raise DeclarationError(
                f"{what}: {macro}: expected a sequence of ints, bools or strings, got {values!r}"
            )
        written[macro] = [str(int(one)) if isinstance(one, int) else one for one in values]
        if len({*written[macro]}) < len(values):
            raise DeclarationError(f"{what}: {macro}: a value stands twice in {values!r}")
    found = [dict(zip(written, one, strict=True)) for one in itertools.product(*written.values())]
    if len(found) > _MOST:
        raise DeclarationError(
            f"{what}: {len(found)} combinations, and each is built and checked; at most {_MOST} are"
        )
    return found


def autotune(operator: Operator) -> None:
    """Let Inductor choose among the variants of a kernel, for each size that it compiles for.

    It is PyTorch's ``register_custom_op_autotuning`` for the variants that `opsmith check` looks at
    and the kernel itself. It acts in ``torch.compile``; packages of AOTInductor keep the kernel.

    Raises:
        DeclarationError: no kernel of the operator has variants, or it writes into arguments.
    """
    if not operator.variants or operator.signature.mutated:
        why = "writes into arguments" if operator.variants else "has no kernel with variants="
        raise DeclarationError(f"{operator.name}: autotune: the operator {why}")

    def choices(device: str) -> list[Callable[..., Value]]:
        """Return what calls the variants for a device type."""
        found = operator.variants.items()
        return [operator.variant(name) for name, kernel in found if kernel.device == device]

    graph_caches.tell(operator.name, "variants", *operator.variants)
    autotune_among(operator.overload, choices)
