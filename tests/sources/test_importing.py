import re
import sys
import sysconfig
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from opsmith.errors import LoadError
from opsmith.sources.importing import import_all, import_operators, user_files
from opsmith.sources.spec_file import is_name

DECLARATION = """
    import torch
    import opsmith
    from jaxtyping import Float
    from torch import Tensor

    @opsmith.op("{qualname}")
    def {name}(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * {factor}
"""

DECLARATION_OF = """
import opsmith
from jaxtyping import Float
from torch import Tensor

@opsmith.op("load::slip")
def slip(x: {}) -> None: ...
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a Python file below a fresh working directory; return its path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())

    def write_file(path: str, text: str, **values: object) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        text = textwrap.dedent(text)
        file.write_text(text.format(**values) if values else text)
        return file

    return write_file


def names(target: str | Path) -> list[str]:
    return [operator.name for operator in import_operators(str(target)).operators]


def test_a_file_by_its_path(write):
    file = write("load_a.py", DECLARATION, qualname="load_a::twice", name="twice", factor=2)
    assert names(file) == ["load_a::twice"]
    assert names("load_a.py") == ["load_a::twice"], "a second time gives the same operators"


def test_a_module_by_its_name(write):
    write("load_b/__init__.py", "")
    write("load_b/op.py", DECLARATION, qualname="load_b::twice", name="twice", factor=2)
    assert names("load_b.op") == ["load_b::twice"]


def test_a_file_in_a_package_may_import_relatively(write):
    write("load_c/__init__.py", "")
    write("load_c/deep/__init__.py", "")
    write("load_c/factor.py", "FACTOR = 3")
    relative = "from ..factor import FACTOR\n" + textwrap.dedent(DECLARATION)
    file = write("load_c/deep/op.py", relative, qualname="load_c::op", name="op", factor="FACTOR")
    assert names(file) == ["load_c::op"]
    assert import_operators(str(file)).module.__name__ == "load_c.deep.op"


def test_operators_imported_from_elsewhere_do_not_count(write):
    write("load_d.py", DECLARATION, qualname="load_d::inner", name="inner", factor=2)
    text = "from load_d import inner\n" + textwrap.dedent(DECLARATION)
    file = write("load_e.py", text, qualname="load_e::outer", name="outer", factor=2)
    assert names(file) == ["load_e::outer"]


def test_a_file_that_only_gathers_gives_what_it_gathers(write):
    write("load_f.py", DECLARATION, qualname="load_f::inner", name="inner", factor=2)
    file = write("load_g.py", "from load_f import inner\n")
    assert names(file) == ["load_f::inner"]


def test_two_files_of_one_name(write):
    first = write("one/load_h.py", DECLARATION, qualname="load_h::one", name="one", factor=1)
    second = write("two/load_h.py", DECLARATION, qualname="load_h::two", name="two", factor=2)
    assert names(first) == ["load_h::one"]
    assert names(second) == ["load_h::two"]


def test_a_file_named_like_a_module_of_python(write):
    file = write("math.py", DECLARATION, qualname="load_i::twice", name="twice", factor=2)
    assert names(file) == ["load_i::twice"]
    import math

    assert math.pi > 3


def refused(target: str | Path) -> str:
    with pytest.raises(LoadError) as raised:
        import_operators(str(target))
    return str(raised.value)


def test_one_operator_of_a_file(write):
    write("some.py", DECLARATION, qualname="some_of::first", name="first", factor=2)
    with Path("some.py").open("a") as file:
        second = DECLARATION.format(qualname="some_of::second", name="second", factor=3)
        file.write(textwrap.dedent(second))
    assert [one.name for one in import_all(["some.py::second"])] == ["some_of::second"]
    assert [one.name for one in import_all(["some.py::some_of::first"])] == ["some_of::first"]
    every = import_all(["some.py::second", "some.py"])
    assert [one.name for one in every] == ["some_of::second", "some_of::first"]
    with pytest.raises(LoadError) as caught:
        import_all(["some.py::third"])
    assert str(caught.value) == "some.py declares no operator 'third'; it declares first, second"


def test_an_operator_of_a_namespace_is_none_of_a_file():
    assert is_name("torchvision::nms")
    assert not any(map(is_name, ["some.py::first", "pkg.some::first", "some.py", "pkg.some"]))


def test_a_missing_file(write):
    assert refused("absent.py") == "no such file: absent.py"


def test_a_missing_module(write):
    assert refused("load_absent.op") == "no file load_absent.op, and no module named 'load_absent'"


@pytest.mark.parametrize("target", ["load_k", "./load_k", "load_k/."])
def test_a_folder(write, target):
    write("load_k/op.py", "")
    assert refused(target) == f"{target} is a folder; name a Python file; in it: op.py"


@pytest.mark.parametrize("target", ["load_r", "load_r/"])
def test_a_package_whose_modules_declare_operators_is_no_list_of_them(write, target):
    write("load_r/op.py", DECLARATION, qualname="load_r::twice", name="twice", factor=2)
    path = write("load_r/__init__.py", "")
    advice = f"name the files in it that do, or import them in {path.resolve()}"
    assert refused(target) == f"{target} declares no operator; {advice}"


def test_the_folder_of_an_operator_is_its_file(write):
    write("load_q/load_q.py", DECLARATION, qualname="load_q::twice", name="twice", factor=2)
    write("load_q/test_load_q.py", "")
    assert names("load_q/") == names("load_q/load_q.py") == ["load_q::twice"]


def test_the_folder_of_a_package_is_a_module(write):
    write("load_u/__init__.py", DECLARATION, qualname="load_u::twice", name="twice", factor=2)
    assert names("load_u") == ["load_u::twice"]


def test_the_folder_of_a_package_by_its_path(write):
    write("src/load_y/__init__.py", "from load_y.op import twice")
    write("src/load_y/op.py", DECLARATION, qualname="load_y::twice", name="twice", factor=2)
    assert names("src/load_y") == names("./src/load_y/") == ["load_y::twice"]
    assert "load_y" in sys.modules


def test_another_kind_of_file(write):
    write("load_v.md", "")
    assert refused("load_v.md") == "load_v.md is not a Python file"


def test_what_is_neither_a_file_nor_a_name(write):
    assert refused("load-w/op") == "no such file: load-w/op"


def test_a_file_that_declares_nothing(write):
    write("load_l.py", "x = 1\n")
    message = "load_l.py declares no operator; declare one with @opsmith.op(...)"
    assert refused("load_l.py") == message


def test_a_file_that_raises_is_named_with_its_line(write):
    write("load_m.py", "x = 1\ny = x / 0\n")
    assert refused("load_m.py") == "load_m.py:2: ZeroDivisionError: division by zero"


def test_the_line_is_the_users_even_where_a_library_raised(write):
    write("load_n.py", "import json\n\njson.loads('{')\n")
    assert refused("load_n.py").startswith("load_n.py:3: JSONDecodeError: ")


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (
            'Float[Tensor, "N, C"]',
            'a shape is one text, its axes separated by spaces, as in Float[Tensor, "N C"] '
            "(ValueError: Axes should be separated with spaces, not commas)",
        ),
        (
            'jaxtyping.Itn64[Tensor, "N"]',
            "'Itn64' is no dtype of jaxtyping; did you mean Int64? "
            "(AttributeError: module jaxtyping has no attribute 'Itn64')",
        ),
    ],
)
def test_a_slip_in_an_annotation_is_said_before_the_libraries_words(write, annotation, said):
    write("load_slip.py", f"import jaxtyping\n{DECLARATION_OF.format(annotation)}")
    with pytest.raises(LoadError) as caught:
        import_operators("load_slip.py")
    assert str(caught.value) == f"load_slip.py:8: {said}"


def test_a_file_that_exits(write):
    write("load_o.py", "import sys\nsys.exit(3)\n")
    assert refused("load_o.py") == "load_o.py:2: SystemExit: 3"


def test_a_syntax_error(write):
    write("load_p.py", "x = 1\ndef f(:\n")
    assert refused("load_p.py") == "load_p.py:2: invalid syntax"


def test_a_module_missing_inside_a_file(write):
    write("load_q.py", "import load_absent_too\n")
    message = "load_q.py:1: ModuleNotFoundError: No module named 'load_absent_too'"
    assert refused("load_q.py") == message


def test_a_bad_declaration_leads_to_its_line(write):
    text = """
        import opsmith
        from jaxtyping import Float
        from torch import Tensor

        @opsmith.op("load_r::bad")
        def bad(x: Float[Tensor, "N"]) -> Float[Tensor, "M"]:
            return x
    """
    write("load_r.py", text)
    message = refused("load_r.py")
    # Python 3.10 says a decorator's call is on the line of the def.
    assert re.match(r"load_r\.py:[67]: load_r::bad: ", message)
    assert "no argument binds 'M'" in message


def test_a_file_that_the_standard_library_links_to_is_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's sitecustomize.py stands in /etc, and a link to it beside the standard library."""
    users, elsewhere, lib = tmp_path / "users.py", tmp_path / "elsewhere.py", tmp_path / "lib"
    users.touch()
    elsewhere.touch()
    lib.mkdir()
    (lib / "linked.py").symlink_to(elsewhere)
    for path in (users, lib / "linked.py"):
        module = ModuleType(path.stem)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, path.stem, module)
    assert {users, elsewhere} <= set(user_files())

    at = sysconfig.get_path
    monkeypatch.setattr(
        sysconfig, "get_path", lambda name: str(lib) if name == "stdlib" else at(name)
    )
    found = user_files()
    assert users in found
    assert elsewhere not in found
