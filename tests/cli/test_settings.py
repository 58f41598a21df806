"""`[tool.opsmith]` of a project sets options, and the command line has precedence."""

import pytest

OPERATOR = """
import opsmith
from jaxtyping import Float
from torch import Tensor

@opsmith.op("settings::{name}")
def {name}(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    inner = tmp_path / "src"
    inner.mkdir()
    monkeypatch.chdir(inner)

    def write(text: str):
        (tmp_path / "pyproject.toml").write_text(text)
        return tmp_path / "pyproject.toml"

    return write


@pytest.mark.slow
def test_a_project_sets_options_and_the_command_line_overrides_them(project, cli, tmp_path):
    project('[tool.opsmith.check]\ncheck = ["mutation"]\nexamples = 3\n')
    file = tmp_path / "src" / "set.py"
    file.write_text(OPERATOR.format(name="twice"))
    ran = cli("check", file)
    assert ran.code == 0
    assert "1 of " in ran.stdout
    assert "✓  mutation" in ran.stdout
    file.write_text(OPERATOR.format(name="again"))
    overridden = cli("check", file, "--check", "aliasing").stdout
    assert "✓  aliasing" in overridden
    assert "mutation" not in overridden


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.opsmith.chekc]\n", "there is no section 'chekc'; did you mean 'check'?"),
        ("[tool.opsmith.judge]\nseed = 1\n", "there is no section 'judge'; there are check, "),
        ("[tool.opsmith.check]\nexmaples = 3\n", "no option 'exmaples'; did you mean 'examples'?"),
        ("[tool.opsmith]\ncheck = 3\n", "check is a section of options"),
        ("[tool.opsmith.check\n", "pyproject.toml: "),
    ],
)
def test_what_no_command_has_is_refused_with_the_file(project, cli, text, said):
    path = project(text)
    outcome = cli("check", "x.py")
    assert outcome.code == 2
    assert outcome.stderr.startswith(f"error: {path}: ")
    assert said in outcome.stderr
