"""Every wrong command line ends with exit code 2 and one line, before anything is built."""

import itertools
import signal
import subprocess
import sys

import pytest

OPERATOR = """
import opsmith
from jaxtyping import Float
from torch import Tensor

@opsmith.op("wrong_line::scale_{name}")
def scale_{name}(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x * 2
"""


#: No two tests declare an operator of one name.
_NUMBERS = itertools.count()


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPSMITH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "wrong_line.py"
    path.write_text(OPERATOR.format(name=f"rows_{next(_NUMBERS)}"))
    return path.name


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("chekc FILE", "No such command 'chekc'. Did you mean 'check'"),
        ("--versoin", "No such option: --versoin; did you mean --version?"),
        ("check FILE --chekc layouts", "No such option: --chekc; did you mean --check"),
        ("doctor --jsno", "No such option: --jsno; did you mean --json?"),
        ("check FILE --check layuots", "there is no check 'layuots'; did you mean 'layouts'?"),
        ("check FILE --device cdua", "there is no device type 'cdua'; did you mean 'cuda'?"),
        ("check FILE --sanitize adress", "there is no sanitizer 'adress'; did you mean 'address'?"),
        ("check FILE --report no/x.html", "'--report': there is no folder no."),
        ("check FILE --junit no/x.xml", "'--junit': there is no folder no."),
        ("check FILE q.html", "not a Python file; to write the report into it, use --report q.h"),
        ("check q.xml", "to write the report into it, use --junit q.xml"),
        ("check FILE q.json", "to write the report into it, use --json > q.json"),
        ("check FILE q.htm", "no file q.htm, and no module named 'q'"),
        ("check FILE --seed a", "'--seed': Input should be a valid integer"),
        ("check", "Missing argument 'FILE...'"),
        ("show FILE --svg no/x.svg", "there is no folder no."),
        ("adopt aten::asinh --out no/x.py", "there is no folder no."),
        ("bench FILE --size N=4", "has the dimensions N, C: write N=4,C=…"),
        ("bench FILE --size N=4,C=2,K=3", "names the dimension 'K'; the arguments have N, C"),
        ("bench FILE --size N:4", "'N:4': expected NAME=SIZE, as in N=4096,C=768"),
        ("bench FILE --save no/x.json", "there is no folder no."),
        ("export FILE:example", "has no 'example'; it has no function that returns a model"),
        ("export FILE --target onxruntime", "no target 'onxruntime'; did you mean 'onnxruntime'?"),
        ("view FILE", "is a source file, not a model. opsmith show wrong_line.py draws"),
        ("view nodist", "nodist is not an opsmith artifact: no such folder"),
        ("run nodist", "nodist is not an opsmith artifact: no such folder"),
        ("run FILE", "is not an opsmith artifact: it is a file"),
        ("run .", ". is not an opsmith artifact: it has no manifest.json"),
        ("wheel FILE --platform sparc", "there is no platform 'sparc'; there are x86_64, aarch64"),
        ("wheel FILE --level x86-64-v9", "level of native 'x86-64-v9'; did you mean 'x86-64-v"),
        (
            "wheel FILE --platform aarch64 --level x86-64-v3",
            "there is no processor level of aarch64 'x86-64-v3'; there are armv8-a",
        ),
        ("wheel no.py", "is neither a Python file nor a folder with a pyproject.toml"),
        ("wheel FILE --gates 2.x", "2.x: is neither a release of PyTorch, as 2.10.0, nor a folder"),
        ("judge FILE --candidates no", "no such folder: no"),
        ("adopt aten::asinh --example torch.rand(", "'(' was never closed"),
        ("wheel FILE --layout whl", "there is no layout 'whl'; did you mean 'wheel'?"),
        ("explain OPS-LAYOT", "there is no code 'OPS-LAYOT'"),
        ("new 1bad", "'1bad' is not an identifier"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_one_line(line, said, file, cli, tmp_path):
    outcome = cli(*line.replace("FILE", file).split())
    assert outcome.code == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("error: ")
    assert len(outcome.stderr.splitlines()) == 1
    assert said in outcome.stderr
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_ctrl_c_says_what_passed_before(file):
    """The second operator waits for ever, so that the interrupt meets a running check."""
    with open(file, "a") as more:
        more.write(OPERATOR.format(name="forever").replace("return x * 2", "while True: pass"))
    command = [sys.executable, "-m", "opsmith", "check", file, "--check", "reference", "--jobs=1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        for line in running.stdout:
            if line.startswith("✓"):
                break
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
        assert running.wait(60) == 130
    assert "error: interrupted; 1 passed, and the rest did not run" in said
