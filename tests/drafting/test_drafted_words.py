"""A draft says more than shapes: equations, conditions, dtypes, the meaning of results."""

import pytest
import torch

from opsmith import checks
from opsmith.drafting import draft_operator
from opsmith.sources.importing import import_operators


def halves(x):
    if x.dim() != 2 or x.shape[1] % 2:
        raise RuntimeError("two halves")
    return x[:, ::2] * x[:, 1::2]


def grouped(x, groups):
    if x.dim() != 2 or groups < 1 or x.shape[1] % groups:
        raise RuntimeError("groups")
    return x.unflatten(1, (groups, -1)).sum(2)


def smoothed(x, k):
    if x.dim() != 2 or k < 1 or k % 2 == 0:
        raise RuntimeError("other")
    return torch.nn.functional.pad(x, (k // 2, k // 2)).unfold(1, k, 1).mean(2)


def taken(x, rows, columns):
    if x.dim() != 2 or rows.dim() != 1 or rows.shape != columns.shape:
        raise RuntimeError("other")
    return x[rows, columns]


def joined(rows, columns):
    if rows.dtype != columns.dtype or rows.dtype not in (torch.int32, torch.int64):
        raise RuntimeError("one dtype")
    return rows * 2


def nearest(a, b):
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[1]:
        raise RuntimeError("other")
    distances = (a[:, None] - b).square().sum(2)
    return distances.sort(1).values, distances.argmin(1)


def farthest(x):
    return x.max(1)


def along(x, dim):
    return x.min(dim)


def ranked(x):
    return x.argsort()


def kept(x, dim, keepdim):
    return x.min(dim, keepdim=keepdim)


def counted(x):
    if x.device.type == "meta":
        raise NotImplementedError
    return torch.bincount(x)


def weighted(x, weights=None):
    if x.device.type == "meta":
        raise NotImplementedError
    return torch.bincount(x, weights)


def widened(x, wide=False):
    return x.sum(0).to(torch.float64 if wide else torch.float32)


def beside(several):
    return torch.column_stack(list(several))


def product(x, y):
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[0]:
        raise RuntimeError("other")
    return x @ y if x.shape[1] else x.new_zeros(0, 0)


def correlated(x):
    if x.dim() != 2:
        raise RuntimeError("rows of numbers")
    return torch.corrcoef(x)


def squeezed(x, dim):
    return x.squeeze(dim).clone()


def paired(x, y):
    return torch.complex(x, y)


def finite(x):
    if x.device.type != "meta" and not x.isfinite().all():
        raise RuntimeError("finite numbers")
    return x * 2


def without_nan(x):
    if x.device.type != "meta" and x.isnan().any():
        raise RuntimeError("numbers")
    return x * 2


def in_eight_bits(x):
    return x.to(torch.float8_e4m3fn), x.new_empty(x.shape[:-1])


def valid(x, window):
    if x.dim() != 1 or window.dim() != 1 or not 0 < len(window) <= len(x):
        raise RuntimeError("a window within x")
    return (x.unfold(0, len(window), 1) * window).sum(1)


def reserved(x):
    return x + 1, x.new_empty(0)


def named(x, mode=None):
    return x + 1, x if mode == "full" else x.new_empty(0)


KERNELS = {
    "halves(Tensor x) -> Tensor": halves,
    "grouped(Tensor x, int groups) -> Tensor": grouped,
    "smoothed(Tensor x, int k) -> Tensor": smoothed,
    "taken(Tensor x, Tensor rows, Tensor columns) -> Tensor": taken,
    "joined(Tensor rows, Tensor columns) -> Tensor": joined,
    "nearest(Tensor a, Tensor b) -> (Tensor, Tensor)": nearest,
    "farthest(Tensor x) -> (Tensor, Tensor)": farthest,
    "along(Tensor x, int dim) -> (Tensor, Tensor)": along,
    "ranked(Tensor x) -> Tensor": ranked,
    "beside(Tensor[] several) -> Tensor": beside,
    "product(Tensor x, Tensor y) -> Tensor": product,
    "correlated(Tensor x) -> Tensor": correlated,
    "squeezed(Tensor x, int dim) -> Tensor": squeezed,
    "paired(Tensor x, Tensor y) -> Tensor": paired,
    "kept(Tensor x, int dim, bool keepdim) -> (Tensor, Tensor)": kept,
    "counted(Tensor x) -> Tensor": counted,
    "weighted(Tensor x, Tensor? weights=None) -> Tensor": weighted,
    "widened(Tensor x, bool wide=False) -> Tensor": widened,
    "reserved(Tensor x) -> (Tensor, Tensor)": reserved,
    "named(Tensor x, str? mode=None) -> (Tensor, Tensor)": named,
    "finite(Tensor x) -> Tensor": finite,
    "without_nan(Tensor x) -> Tensor": without_nan,
    "valid(Tensor x, Tensor window) -> Tensor": valid,
    "in_eight_bits(Tensor x) -> (Tensor, Tensor)": in_eight_bits,
}


@pytest.fixture(autouse=True)
def defined():
    """The operators of a library that is not PyTorch's."""
    with torch.library._scoped_library("draft_words", "DEF") as library:
        for schema, kernel in KERNELS.items():
            library.define(schema)
            library.impl(schema.partition("(")[0], kernel, "CompositeExplicitAutograd")
        yield


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("halves", ['    x: Float[Tensor, "N 2*C"],', ') -> Float[Tensor, "N C"]:']),
        ("in_eight_bits", ["    x: Float[Tensor, "]),
        (
            "grouped",
            [
                '@opsmith.adopt("draft_words::grouped", where=("C % groups == 0",))',
                "    groups: Annotated[int, Between(1, None)],",
                ') -> Float[Tensor, "N {groups}"]:',
            ],
        ),
        (
            "smoothed",
            [
                '@opsmith.adopt("draft_words::smoothed", where=("k % 2 == 1",))',
                "    k: Annotated[int, Between(1, None)],",
                ') -> Float[Tensor, "N C"]:',
            ],
        ),
        (
            "taken",
            [
                'ColumnsIds = opsmith.DtypeVar("ColumnsIds", Int32, Int64)',
                '    rows: Annotated[RowsIds[Tensor, "M"], Between("0-N", "N-1")],',
                '    columns: Annotated[ColumnsIds[Tensor, "M"], Between("0-C", "C-1")],',
                "def cases(dtype: dict[str, torch.dtype], seed: int):",
                '        "x": torch.rand(4, 6, generator=generator).to(dtype["Float"]),',
                '        "rows": torch.zeros(6, dtype=dtype["RowsIds"]),',
            ],
        ),
        (
            "joined",
            [
                'Ids = opsmith.DtypeVar("Ids", Int32, Int64)',
                '    rows: Ids[Tensor, "N C"],',
                ') -> Ids[Tensor, "N C"]:',
                "def cases(dtype: torch.dtype, seed: int):",
            ],
        ),
        (
            "nearest",
            [') -> tuple[Annotated[Float[Tensor, "N M"], Sorted()], Int64[Tensor, "N"]]:'],
        ),
        (
            "farthest",
            [
                "from opsmith import Selects",
                ') -> tuple[Float[Tensor, "N"], Annotated[Int64[Tensor, "N"], Selects("x")]]:',
            ],
        ),
        (
            "along",
            [
                "'dim' decides along which dimension result 1 selects, and is fixed.",
                "    dim: Annotated[int, Between(1, 1)],",
                'Annotated[Int64[Tensor, "N"], Selects("x")]]:',
            ],
        ),
        ("ranked", [') -> Annotated[Int64[Tensor, "N C"], Selects("x")]:']),
        ("kept", [") -> tuple[Tensor, Tensor]:", "    dim: Annotated[int, Between(-2, 1)],"]),
        ("beside", ['    several: list[Float[Tensor, "N C"]],', ") -> Tensor:"]),
        ("product", [', where=("C >= 1",))', ') -> Float[Tensor, "N M"]:']),
        ("correlated", [', where=("N >= 2",))', ') -> Float[Tensor, "N N"]:']),
        ("squeezed", [', where=("N >= 2", "C >= 2"))', ') -> Float[Tensor, "N C"]:']),
        ("paired", ['    dtypes = ["float32", "float64"]', ") -> Tensor:"]),
        ("counted", ['data_dependent=("K",)', "(only=True)", ') -> Int64[Tensor, "K"]:']),
        ("weighted", ['    weights: Float[Tensor, "N"] | None = None,', ") -> Tensor:"]),
        ("widened", ["    wide: bool = False,", ") -> Tensor:"]),
        ("reserved", [') -> tuple[Float[Tensor, "N C"], Float[Tensor, "0"]]:']),
        # Another option may fill what is empty, or need a tensor that is not there.
        ("named", [") -> tuple[Tensor, Tensor]:"]),
        (
            "finite",
            [
                "from opsmith import Unspecified",
                '    x: Annotated[Float[Tensor, "*shape"], Unspecified(nan=True, inf=True)],',
            ],
        ),
        (
            "without_nan",
            ['    x: Annotated[Float[Tensor, "*shape"], Unspecified(nan=True)],'],
        ),
    ],
)
def test_what_calls_show_is_said_in_the_words_of_a_declaration(name, said, tmp_path):
    text = draft_operator(f"draft_words::{name}")
    for line in said:
        assert line in text
    file = tmp_path / f"drafted_{name}.py"
    file.write_text(text)
    (operator,) = import_operators(str(file)).operators
    (case,) = operator.cases[0](checks_dtype(operator), 0)
    operator(**case)


def test_a_computed_size_that_must_not_be_0_is_drafted_as_a_condition():
    text = draft_operator("draft_words::valid", "torch.rand(7), torch.rand(3)")
    assert '@opsmith.adopt("draft_words::valid", where=("N-M+1 >= 1",))' in text
    assert ') -> Float[Tensor, "N-M+1"]:' in text


def checks_dtype(operator):
    """A dtype for the cases of an operator, or one for each of its variables."""
    variables = {
        v.label: torch.float64 if "Float" in v.label else torch.int32
        for v in operator.signature.dtype_variables
    }
    return variables if len(variables) > 1 else next(iter(variables.values()))


@pytest.mark.slow(cases=1)  # each takes all checks
@pytest.mark.parametrize("name", ["halves", "grouped", "farthest", "finite"])
def test_a_draft_passes_the_checks_as_it_is(name, tmp_path):
    file = tmp_path / f"checked_{name}.py"
    file.write_text(draft_operator(f"draft_words::{name}"))
    (operator,) = import_operators(str(file)).operators
    report = checks.run(operator, select=["reference", "validation"], isolate=False, seconds=200)
    assert report.ok, report.explain()


def test_the_case_of_a_draft_is_allowed_by_it():
    """A number that has to divide sizes is drafted as 1, where it leaves all sizes free."""
    drafted = draft_operator("aten::pixel_unshuffle")
    assert "downscale_factor: Annotated[int, Between(1, 1)]" in drafted
    assert '"downscale_factor": 1,' in drafted


@pytest.mark.parametrize(
    ("name", "example"),
    [
        ("unique_consecutive", "torch.rand(4, 6)"),
        (
            "native_batch_norm",
            "torch.rand(4, 6), torch.rand(6), torch.rand(6), None, None, True, 0.5, 0.5",
        ),
    ],
)
def test_sizes_that_an_option_decides_are_left_out(name, example):
    """A result is empty until a flag asks for it; or the flag needs a tensor that is not there."""
    drafted = draft_operator(f"aten::{name}", example)
    assert ") -> tuple[Tensor, Tensor, Tensor]:" in drafted
