"""The declaration of an operator that exists, found by calling it."""

import os
import re

import pytest
import torch

from opsmith.drafting import draft_function, draft_operator, examples
from opsmith.errors import DeclarationError
from opsmith.sources.importing import import_operators


def declared(text):
    """What the drafted function takes and returns, as it is written."""
    (found,) = re.findall(r"^def \w+\(\n(.*?)^\) -> ([^\n]*):$", text, re.MULTILINE | re.DOTALL)
    arguments, returned = found
    return [line.strip().rstrip(",") for line in arguments.splitlines()], returned


ELEMENTWISE = 'Float[Tensor, "*shape"]'


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    ("name", "arguments", "returned"),
    [
        ("aten::asinh", [f"self: {ELEMENTWISE}"], ELEMENTWISE),
        (
            "aten::add.Tensor",
            [f"self: {ELEMENTWISE}", f"other: {ELEMENTWISE}", "*", "alpha: float = 1.0"],
            ELEMENTWISE,
        ),
        (
            "aten::where.self",
            [
                'condition: Bool[Tensor, "*shape"]',
                f"self: {ELEMENTWISE}",
                f"other: {ELEMENTWISE}",
            ],
            ELEMENTWISE,
        ),
        (
            "aten::linear",
            [
                'input: Float[Tensor, "N C"]',
                'weight: Float[Tensor, "M C"]',
                'bias: Float[Tensor, "M"] | None = None',
            ],
            'Float[Tensor, "N M"]',
        ),
        (
            "aten::bmm",
            ['self: Float[Tensor, "N C L"]', 'mat2: Float[Tensor, "N L M"]'],
            'Float[Tensor, "N C M"]',
        ),
        (
            "aten::embedding",
            [
                'weight: Float[Tensor, "N C"]',
                'indices: Annotated[Ids[Tensor, "M K"], Index("N")]',
                "padding_idx: int = -1",
                "scale_grad_by_freq: bool = False",
                "sparse: bool = False",
            ],
            'Float[Tensor, "M K C"]',
        ),
        (
            "aten::index_select",
            [
                'self: Float[Tensor, "N C"]',
                "dim: Annotated[int, Between(1, 1)]",
                'index: Annotated[Ids[Tensor, "M"], Index("C")]',
            ],
            'Float[Tensor, "N M"]',
        ),
        (
            "aten::sort",
            [
                'self: Float[Tensor, "N C"]',
                "dim: Annotated[int, Between(-1, -1)] = -1",
                "descending: bool = False",
            ],
            'tuple[Float[Tensor, "N C"], Annotated[Int64[Tensor, "N C"], Selects("self")]]',
        ),
        (
            "aten::topk",
            [
                'self: Float[Tensor, "N C"]',
                'k: Annotated[int, Between(0, "C")]',
                "dim: Annotated[int, Between(-1, -1)] = -1",
                "largest: bool = True",
                "sorted: bool = True",
            ],
            'tuple[Float[Tensor, "N {k}"], Annotated[Int64[Tensor, "N {k}"], Selects("self")]]',
        ),
        (
            "aten::cat",
            ['tensors: list[Float[Tensor, "N C"]]', "dim: Annotated[int, Between(-2, 1)] = 0"],
            "Tensor",
        ),
        # A dtype cannot be declared, and keeps its default.
        (
            "aten::cumsum",
            ['self: Float[Tensor, "N C"]', "dim: Annotated[int, Between(-2, 1)]"],
            'Float[Tensor, "N C"]',
        ),
        (
            "aten::grid_sampler",
            [
                'input: Float[Tensor, "N C H W"]',
                'grid: Float[Tensor, "N M K 2"]',
                "interpolation_mode: Annotated[int, Between(0, 2)]",
                "padding_mode: Annotated[int, Between(0, 2)]",
                "align_corners: bool",
            ],
            'Float[Tensor, "N C M K"]',
        ),
        ("aten::nonzero", ['self: Float[Tensor, "N C"]'], 'Int64[Tensor, "K 2"]'),
    ],
)
def test_what_calls_show_is_declared(name, arguments, returned):
    assert declared(draft_operator(name)) == (arguments, returned)


def test_what_no_declaration_can_carry_keeps_its_default_and_is_named():
    assert "Left at their defaults: dtype." in draft_operator("aten::cumsum")


@pytest.mark.slow
def test_an_operator_without_a_fake_kernel_is_called_to_see_what_it_takes():
    @torch.library.custom_op("drafting::no_fake", mutates_args=())
    def no_fake(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    arguments, returned = declared(draft_operator("drafting::no_fake"))
    assert (arguments, returned) == ([f"x: {ELEMENTWISE}"], ELEMENTWISE)


def test_sizes_of_a_convolution_follow_from_its_window():
    arguments, returned = declared(draft_operator("aten::conv2d"))
    assert arguments[:3] == [
        'input: Float[Tensor, "N C H W"]',
        'weight: Float[Tensor, "M C K P"]',
        'bias: Float[Tensor, "M"] | None = None',
    ]
    rows = "(H+2*{padding[0]}-{dilation[0]}*(K-1)-1)//{stride[0]}+1"
    columns = "(W+2*{padding[1]}-{dilation[1]}*(P-1)-1)//{stride[1]}+1"
    assert returned == f'Float[Tensor, "N M {rows} {columns}"]'


@pytest.fixture
def defined():
    """Operators of a library that is not PyTorch's."""
    library = torch.library.Library("draft_test", "DEF")
    library.define("unchecked(Tensor x, Tensor index) -> Tensor")
    library.define("doubled(Tensor(a!) x) -> ()")
    library.define("first(Tensor x, *, ScalarType? dtype=None, int k=1) -> Tensor")
    library.define("view(Tensor(a) x) -> Tensor(a)")
    library.define("double_(Tensor(a!) x) -> Tensor(a!)")
    library.define("count(Tensor x) -> int")
    library.define("never(Tensor x, str mode) -> Tensor")
    library.define("whole(Tensor x, Tensor rows) -> Tensor")
    library.define("narrow(Tensor x) -> Tensor")
    library.define("kept(Tensor boxes, Tensor scores, float least) -> Tensor")
    library.define("pooled(Tensor maps, Tensor regions) -> Tensor")
    library.define("moody(Tensor x, bool ends=False) -> Tensor")
    library.define("root(Tensor x) -> Tensor")
    library.define("repeated(Tensor x, int? count=None) -> Tensor")
    library.define("bits(Tensor x) -> Tensor")

    def unchecked(x, index):
        if len(x) and len(index) and not 0 <= index.max() < len(x):
            os.abort()
        return x[index]

    def doubled(x):
        x.mul_(2)

    def whole(x, rows):
        if x.dim() != 2 or rows.shape != x.shape[:1] or rows.dtype != torch.int32:
            raise RuntimeError("other")
        return rows.clone()

    def narrow(x):
        if x.dtype not in (torch.float32, torch.float64):
            raise RuntimeError("other")
        return x.flatten()

    def kept(boxes, scores, least):
        if boxes.shape != (len(scores), 4):
            raise RuntimeError("other")
        return (scores > least).nonzero()[:, 0]

    @torch.library.register_fake("draft_test::kept", lib=library)
    def _(boxes, scores, least):
        return scores.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)

    def pooled(maps, regions):
        if maps.dim() != 4 or regions.dim() != 2 or regions.shape[1] != 5:
            raise RuntimeError("other")
        if len(regions) and regions[:, 0].abs().max() >= max(len(maps), 1):
            os.abort()
        return maps[regions[:, 0].long()]

    def moody(x, ends=False):
        if ends:
            os.abort()
        return x.clone()

    @torch.library.register_fake("draft_test::moody", lib=library)
    def _(x, ends=False):
        return torch.empty_like(x)

    def root(x):
        return torch.linalg.cholesky(-x)

    def repeated(x, count=None):
        return x.unsqueeze(-1).repeat(*[1] * x.dim(), x.shape[-1] if count is None else count)

    for name, kernel in {
        "moody": moody,
        "root": root,
        "repeated": repeated,
        "bits": lambda x: x.flatten().to(torch.uint64),
        "unchecked": unchecked,
        "kept": kept,
        "pooled": pooled,
        "doubled": doubled,
        "whole": whole,
        "narrow": narrow,
    }.items():
        library.impl(name, kernel, "CPU")
    yield
    library._destroy()


@pytest.mark.usefixtures("defined")
class TestOfAnotherLibrary:
    @pytest.mark.slow
    def test_an_operator_that_ends_the_process_is_called_in_another(self):
        arguments, returned = declared(
            draft_operator("draft_test::unchecked", "torch.rand(4, 3), torch.tensor([0, 3])")
        )
        assert arguments[1] == 'index: Annotated[Ids[Tensor, "M"], Index("N")]'
        assert returned == 'Float[Tensor, "M C"]'

    def test_an_argument_that_is_written_is_named(self):
        text = draft_operator("draft_test::doubled", "torch.rand(4, 3)")
        assert '@opsmith.adopt("draft_test::doubled", mutates_args=("x",))' in text
        assert declared(text)[1] == "None"

    def test_an_example_shows_what_trying_does_not_find(self, monkeypatch):
        with monkeypatch.context() as patched:
            patched.setattr(examples, "_SECONDS", 1.0)
            with pytest.raises(DeclarationError, match=r"no call was found that it accepts"):
                draft_operator("draft_test::whole")
        arguments, returned = declared(
            draft_operator(
                "draft_test::whole", "torch.rand(4, 3), torch.arange(4, dtype=torch.int32)"
            )
        )
        assert arguments == ['x: Float[Tensor, "N C"]', 'rows: Int32[Tensor, "N"]']
        assert returned == 'Int32[Tensor, "N"]'

    def test_a_size_that_a_fake_kernel_leaves_open_is_the_datas(self):
        text = draft_operator("draft_test::kept")
        assert '@opsmith.adopt("draft_test::kept", data_dependent=("K",))' in text
        arguments, returned = declared(text)
        assert arguments[:2] == ['boxes: Float[Tensor, "N 4"]', 'scores: Float[Tensor, "N"]']
        assert returned == 'Int64[Tensor, "K"]'

    def test_what_ends_the_process_for_some_numbers_is_checked_on_its_cases_alone(self):
        text = draft_operator("draft_test::pooled")
        assert declared(text)[0] == [
            'maps: Float[Tensor, "N C H W"]',
            'regions: Float[Tensor, "M 5"]',
        ]
        assert "@pooled.register_cases(only=True)" in text
        assert "Its own cases alone are checked, as not all that its values may be" in text
        assert "only=True" not in draft_operator("draft_test::kept")

    def test_what_ends_the_process_by_a_flag_is_checked_on_its_cases_alone(self):
        text = draft_operator("draft_test::moody")
        assert declared(text)[0] == [f"x: {ELEMENTWISE}", "ends: bool = False"]
        assert "@moody.register_cases(only=True)" in text

    def test_an_example_whose_numbers_matter_is_declared_in_its_own_sizes(self):
        minus = "torch.tensor([[-4.0, 1.0], [1.0, -3.0]])"
        text = draft_operator("draft_test::root", minus)
        assert declared(text) == (['x: SomeFloat[Tensor, "2 2"]'], 'SomeFloat[Tensor, "2 2"]')
        assert "@root.register_cases(only=True)" in text
        assert f'"x": {minus}.to(dtype),' in text

    def test_a_number_that_may_be_left_out_is_no_obstacle(self):
        arguments, _ = declared(draft_operator("draft_test::repeated"))
        assert arguments[1] == "count: Annotated[int, Between(0, None)] | None = None"

    def test_results_of_every_dtype_are_named(self):
        assert declared(draft_operator("draft_test::bits"))[1] == 'UInt64[Tensor, "N*C"]'

    def test_an_example_is_a_case_as_it_is_written(self):
        regions = "torch.tensor([[0.0, 1, 1, 5, 5], [1, 0, 0, 4, 6]])"
        text = draft_operator(
            "draft_test::pooled", f"torch.rand(2, 3, 8, 8), regions={regions} + 0"
        )
        assert '"maps": torch.rand(2, 3, 8, 8).to(dtype),' in text
        assert f'"regions": ({regions} + 0).to(dtype),' in text
        assert "    torch.manual_seed(seed)\n" in text

    def test_what_defines_an_operator_is_imported(self):
        text = draft_operator("draft_test::narrow", modules=["draft_library"])
        assert "\nimport draft_library  # noqa: F401\n" in text

    def test_dtypes_are_those_that_were_taken(self):
        text = draft_operator("draft_test::narrow")
        assert 'class SomeFloat(AbstractDtype):\n    dtypes = ["float32", "float64"]' in text
        assert declared(text) == (['x: SomeFloat[Tensor, "N C"]'], 'SomeFloat[Tensor, "N*C"]')

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("view", "draft_test::view: returns a view of its argument"),
            ("double_", "draft_test::double_: returns the argument that it writes into"),
            ("count", "draft_test::count: returns int, expected tensors"),
            (
                "first",
                "draft_test::first: argument 'dtype', which no declaration can carry, stands "
                "before 'k'",
            ),
            ("never", r"its parameters are \(x, mode\)"),
        ],
    )
    def test_what_no_declaration_can_say_is_refused(self, name, message, monkeypatch):
        monkeypatch.setattr(examples, "_SECONDS", 1.0)
        with pytest.raises(DeclarationError, match=message):
            draft_operator(f"draft_test::{name}")

    def test_an_example_that_does_not_fit_is_refused(self):
        with pytest.raises(DeclarationError, match=r"narrow: refuses the example: other"):
            draft_operator("draft_test::narrow", "torch.zeros(3, dtype=torch.int64)")
        with pytest.raises(DeclarationError, match=r"cannot be read \(TypeError: missing"):
            draft_operator("draft_test::narrow", "")


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k: int = 2):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k, None


def test_a_function_gets_its_annotations():
    text = draft_function("ops", Twice)
    assert "from ops import Twice" in text
    assert 'twice = opsmith.adopt(Twice, "my_ops::twice", annotations=_twice)' in text
    assert declared(text) == ([f"x: {ELEMENTWISE}", "k: int = 2"], ELEMENTWISE)


@pytest.mark.parametrize("name", ["aten::gather", "aten::median.dim", "aten::nonzero"])
def test_what_is_written_declares_the_operator(name, tmp_path):
    file = tmp_path / f"drafted_{name.partition('::')[2].replace('.', '_')}.py"
    file.write_text(draft_operator(name))
    (operator,) = import_operators(str(file)).operators
    assert operator.name == name
    several = len(operator.signature.dtype_variables) > 1
    dtype = {"Float": torch.float64, "Ids": torch.int32} if several else torch.float64
    (case,) = operator.cases[0](dtype, 0)
    given, theirs = operator(**case), operator.reference(**case)
    torch.testing.assert_close(given, theirs)
