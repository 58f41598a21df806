"""Write kernels in C++ for PyTorch's operators: PyTorch's own functions, and C++'s.

`library` has one source for all its operators, with a `TORCH_LIBRARY_IMPL` block that calls
PyTorch's functions, as an extension does. `formula` calls C++'s standard functions in a loop, so
that the rows of the harness have kernels whose formulas are not this project's.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import corpus_suite
import torch

from opsmith.operators.adoption.adopt import overload_of

#: A number of each operator in terms of others, in C++, by overload.
FORMULAS = {
    "aten::abs": "std::fabs(self)",
    "aten::acos": "std::acos(self)",
    "aten::acosh": "std::acosh(self)",
    "aten::asin": "std::asin(self)",
    "aten::asinh": "std::asinh(self)",
    "aten::atan": "std::atan(self)",
    "aten::atan2": "std::atan2(self, other)",
    "aten::atanh": "std::atanh(self)",
    "aten::ceil": "std::ceil(self)",
    "aten::copysign.Tensor": "std::copysign(self, other)",
    "aten::cos": "std::cos(self)",
    "aten::cosh": "std::cosh(self)",
    "aten::erf": "std::erf(self)",
    "aten::erfc": "std::erfc(self)",
    "aten::exp": "std::exp(self)",
    "aten::exp2": "std::exp2(self)",
    "aten::expm1": "std::expm1(self)",
    "aten::floor": "std::floor(self)",
    "aten::fmax": "std::fmax(self, other)",
    "aten::fmin": "std::fmin(self, other)",
    "aten::hypot": "std::hypot(self, other)",
    "aten::lgamma": "std::lgamma(self)",
    "aten::log": "std::log(self)",
    "aten::log10": "std::log10(self)",
    "aten::log1p": "std::log1p(self)",
    "aten::log2": "std::log2(self)",
    "aten::mul.Tensor": "self * other",
    "aten::neg": "-self",
    "aten::reciprocal": "1 / self",
    "aten::relu": "std::isnan(self) ? self : std::fmax(self, C(0))",
    "aten::round": "std::nearbyint(self)",
    "aten::rsqrt": "1 / std::sqrt(self)",
    "aten::sigmoid": "1 / (1 + std::exp(-self))",
    "aten::sin": "std::sin(self)",
    "aten::sinh": "std::sinh(self)",
    "aten::sqrt": "std::sqrt(self)",
    "aten::square": "self * self",
    "aten::tan": "std::tan(self)",
    "aten::tanh": "std::tanh(self)",
    "aten::trunc": "std::trunc(self)",
}
#: Operators of many kinds: reductions, products, indices, several results, lists, strides.
LIBRARY = (
    "aten::_softmax",
    "aten::abs",
    "aten::add.Tensor",
    "aten::addcmul",
    "aten::addmm",
    "aten::amax",
    "aten::aminmax",
    "aten::argmax",
    "aten::argsort",
    "aten::asinh",
    "aten::avg_pool1d",
    "aten::bitwise_and.Tensor",
    "aten::bmm",
    "aten::bucketize.Tensor",
    "aten::cdist",
    "aten::channel_shuffle",
    "aten::clamp.Tensor",
    "aten::cummax",
    "aten::cumsum",
    "aten::diag_embed",
    "aten::dot",
    "aten::embedding",
    "aten::erfinv",
    "aten::flip",
    "aten::frac",
    "aten::gather",
    "aten::gelu",
    "aten::index_select",
    "aten::isnan",
    "aten::kthvalue",
    "aten::linalg_cross",
    "aten::linalg_inv",
    "aten::log_softmax.int",
    "aten::logsumexp",
    "aten::lt.Tensor",
    "aten::masked_fill.Tensor",
    "aten::median.dim",
    "aten::min.dim",
    "aten::mm",
    "aten::native_layer_norm",
    "aten::outer",
    "aten::prod.dim_int",
    "aten::roll",
    "aten::scatter_add",
    "aten::searchsorted.Tensor",
    "aten::sigmoid",
    "aten::sort",
    "aten::sum.dim_IntList",
    "aten::topk",
    "aten::trace",
    "aten::tril",
    "aten::var_mean.correction",
    "aten::where.self",
)
_FORMULA = """\
#include <cmath>
#include <opsmith/kernel.h>
#include <type_traits>
#include "{name}.h"

template <typename T>
void {name}(const opsmith::Context& ctx, const corpus_formula::{name}_args<T>& a) {{
  using C = std::conditional_t<sizeof(T) < 4, float, T>;
  ctx.parallel_for(0, a.out.numel(), 4096, [&](int64_t begin, int64_t end) {{
    for (int64_t i = begin; i < end; ++i) {{
{inputs}
      a.out[i] = T({formula});
    }}
  }});
}}
OPSMITH_KERNEL(corpus_formula, {name}, cpu, float, double, opsmith::half, opsmith::bfloat16)
"""
#: How C++ takes an argument of a declared schema.
_TAKEN = {
    "Tensor": "const at::Tensor&",
    "Optional[Tensor]": "const std::optional<at::Tensor>&",
    "List[Tensor]": "at::TensorList",
    "int": "int64_t",
    "float": "double",
    "bool": "bool",
    "str": "std::string_view",
    "List[int]": "at::IntArrayRef",
    "Optional[int]": "std::optional<int64_t>",
    "Optional[float]": "std::optional<double>",
}
#: How such an argument is handed to PyTorch's function, by its declared type and PyTorch's.
_GIVEN = {
    ("int", "number"): "at::Scalar({})",
    ("float", "number"): "at::Scalar({})",
    ("int", "Optional[number]"): "std::optional<at::Scalar>({})",
    ("float", "Optional[number]"): "std::optional<at::Scalar>({})",
    ("List[int]", "List[SymInt]"): "c10::fromIntArrayRefSlow({})",
    ("List[int]", "Optional[List[int]]"): "at::OptionalIntArrayRef({})",
}
_DEFAULTS = {"None": "std::nullopt", "True": "true", "False": "false"}


def formula_of(draft: Any, called: str, name: str) -> str:
    """Return the C++ that computes an operator by C++'s standard functions."""
    inputs = [f"      const C {one.name} = C(a.{one.name}[i]);" for one in draft.signature.tensors]
    return _FORMULA.format(name=called, inputs="\n".join(inputs), formula=FORMULAS[name])


def drafted(names: Any) -> list[str]:
    """Return those of some operators that are drafted, in the order of their names."""
    return sorted({*names} & {*corpus_suite.here()})


@functools.cache
def library() -> str:
    """Return the C++ of all operators of the library that C++ can call by their drafts."""
    names = list(names_of("library"))
    calls = map(_call_of, names)
    headers = sorted({f"#include <ATen/ops/{_short(name)}_ops.h>" for name in names})
    registered = [f'  m.impl("{one}", &corpus::{one});' for one in map(_declared, names)]
    lines = [
        *("#include <ATen/ATen.h>", *headers, "#include <torch/library.h>", "namespace corpus {"),
        *calls,
        *(
            "}  // namespace corpus",
            "TORCH_LIBRARY_IMPL(corpus_library, CPU, m) {",
            *registered,
            "}",
            "",
        ),
    ]
    return "\n".join(lines)


def _short(name: str) -> str:
    return name.partition("::")[2].partition(".")[0]


def _declared(name: str) -> str:
    return corpus_suite.stem_of(name).removeprefix("aten_")


def _call_of(name: str) -> str:
    """Return a function that calls an overload; empty where a type has no name in C++ here."""
    import corpus_taken

    schema = overload_of(name)._schema
    declared = torch._C.parse_schema(corpus_taken.draft_of(name).signature.schema())
    own = {one.name: one for one in declared.arguments}
    try:
        taken = [f"{_TAKEN[str(one.type)]} {one.name}" for one in own.values()]
        given = [_given(one, own.get(one.name)) for one in schema.arguments]
    except KeyError:
        return ""
    results = [str(one.type) for one in schema.returns]
    if set(results) != {"Tensor"} or len(own) > len(schema.arguments):
        return ""
    several = f"std::tuple<{', '.join(['at::Tensor'] * len(results))}>"
    kind = "at::Tensor" if len(results) == 1 else several
    short = _short(name) + (f"_{schema.overload_name}" if schema.overload_name else "")
    # Results of linear algebra lie column by column, and a declared result row by row.
    call = f"at::_ops::{short}::call({', '.join(given)}){'.contiguous()' * (len(results) == 1)}"
    return f"{kind} {_declared(name)}({', '.join(taken)}) {{\n  return {call};\n}}"


def _given(wanted: Any, own: Any) -> str:
    """Return an argument of PyTorch's function.

    Raises:
        KeyError: it has no counterpart.
    """
    if own is None:
        if not wanted.has_default_value():
            raise KeyError(wanted.name)
        return _DEFAULTS.get(str(wanted.default_value), str(wanted.default_value))
    pair = str(own.type), _named(wanted.real_type)
    if pair[0] == pair[1] or pair[1] == f"Optional[{pair[0]}]":
        return str(own.name)
    return _GIVEN[pair].format(own.name)


def _named(kind: Any) -> str:
    # PyTorch's own name of a list of symbolic sizes is that of a list of numbers.
    if kind.kind() == "ListType" and kind.getElementType().kind() == "SymIntType":
        return "List[SymInt]"
    return str(kind)


def names_of(kind: str) -> Iterator[str]:
    """Yield the overloads of a kind that are drafted, and that C++ can call by their drafts."""
    named = drafted(FORMULAS if kind == "formula" else LIBRARY)
    yield from named if kind == "formula" else filter(_call_of, named)
