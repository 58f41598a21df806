"""Sums that CUDA kernels accumulate in half precision, each beside a twin that adds in float."""

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import BFloat16, Float16
from torch import Tensor

import opsmith

SOURCE = Path(__file__).with_name("half_sums.cu")


def sums(x: Float16[Tensor, "R C"]) -> Float16[Tensor, "R"]:
    return x.float().sum(1).to(x.dtype)


def sums_in_bfloat16(x: BFloat16[Tensor, "R C"]) -> BFloat16[Tensor, "R"]:
    return x.float().sum(1).to(x.dtype)


def means(x: Float16[Tensor, "R C"]) -> Float16[Tensor, "R"]:
    return x.float().mean(1).to(x.dtype)


def dots(x: Float16[Tensor, "R C"], y: Float16[Tensor, "R C"]) -> Float16[Tensor, "R"]:
    return (x.float() * y.float()).sum(1).to(x.dtype)


def norms(x: Float16[Tensor, "R C"]) -> Float16[Tensor, "R"]:
    return x.float().square().sum(1).sqrt().to(x.dtype)


def weights(x: Float16[Tensor, "R C"]) -> Float16[Tensor, "R"]:
    if not x.shape[1]:
        return torch.full(x.shape[:1], torch.nan, dtype=x.dtype)
    return x.float().softmax(1)[:, 0].to(x.dtype)


#: The forms of terms and the ways of adding them, in the order of the source's enumerations.
FORMS = {"sum": sums, "mean": means, "dot": dots, "norm": norms, "softmax": weights}
WAYS = ("one_thread", "tree", "shuffles", "fused", "atomic", "lanes")


@dataclass(frozen=True)
class HalfSum:
    """A sum of a form, added in one of several ways, in float16 or bfloat16."""

    form: str
    way: str
    dtype: str = "float16"

    @property
    def name(self) -> str:
        """The form, the way, and the dtype."""
        return f"{self.form}_{self.way}_{self.dtype}"

    def operator(self, *, wrong: bool) -> opsmith.Operator:
        """Declare the operator of a twin."""
        half = {"float16": "__half", "bfloat16": "__nv_bfloat16"}[self.dtype]
        reference = FORMS[self.form] if self.dtype == "float16" else sums_in_bfloat16
        name = f"{self.name}_{'wrong' if wrong else 'right'}"
        operator = opsmith.op(f"half_sums::{name}")(reference)
        flags = {
            "NAME": name,
            "FORM": list(FORMS).index(self.form),
            "WAY": WAYS.index(self.way),
            "HALF": half,
            "SUM": half if wrong else "float",
        }
        operator.register_kernel(
            "cuda", source=SOURCE, flags=[f"-D{key}={value}" for key, value in flags.items()]
        )
        return operator


FAULTS = [
    HalfSum("sum", "one_thread"),
    *(HalfSum("sum", way) for way in ("tree", "shuffles", "atomic", "lanes")),
    HalfSum("mean", "one_thread"),
    *(HalfSum("dot", way) for way in ("one_thread", "fused", "lanes")),
    HalfSum("norm", "one_thread"),
    HalfSum("softmax", "one_thread"),
    HalfSum("sum", "tree", "bfloat16"),
]
