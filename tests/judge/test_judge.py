"""Kernels that nobody trusts: the right one is accepted, every cheat is refused."""

import contextlib
import hashlib
import importlib.util
import json
import os
import py_compile
import re
import sys
import time
from pathlib import Path

import jsonschema
import pytest
import torch

from opsmith.checks.cases.failure import Failure
from opsmith.checks.report.failure_codes import catalogue
from opsmith.checks.report.json_junit import SCHEMA_FILE
from opsmith.judge import NotSandboxedError, judge
from opsmith.judge.session import Limits, Placement, Session
from opsmith.judge.snapshot import collect
from opsmith.judge.specification import imported
from opsmith.system.processes.sandbox.policy import unavailable

SPEC = Path(__file__).with_name("spec.py")
RIGHT = "x * factor + x.sum(1, keepdim=True)"
CHECKS = ["reference", "layouts", "empty-sizes", "again", "program"]


# What matters here is that a candidate is refused, not by how small a case.
pytestmark = pytest.mark.usefixtures("brief_shrinking")


@pytest.fixture
def candidate(tmp_path):
    """Write a candidate: what stands before its kernel, and the kernel's body."""

    def write(body: str, before: str = "") -> Path:
        lines = "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))
        path = tmp_path / "kernels.py"
        path.write_text(
            "import gc, os, sys, threading, time\nimport torch\nfrom spec import scale\n"
            f"{before}\n\n@scale.register_kernel('cpu')\ndef kernel(x, factor):\n{lines}"
        )
        return path

    return write


def failures(path: Path, **options: object) -> dict[str, str]:
    verdict = judge(SPEC, path, **{"examples": 12, "time_limit": 20.0, **options})
    found = {row.check: row.message for row in verdict.report.failures}
    assert all(row.code in catalogue() for row in verdict.report.failures)
    assert verdict.accepted == (not found)
    return found


@pytest.mark.long  # test_worker.py::test_the_same_seed_gives_the_same_cases
def test_one_seed_gives_one_verdict(candidate):
    path = candidate("out = x * factor + x.sum(1, keepdim=True)\nreturn out * (x.shape[0] != 3)")
    verdicts = [judge(SPEC, path, examples=12, seed=5) for _ in range(2)]
    # How small a failing case gets depends on the time that is left, and no verdict on that.
    found = [[(row.check, row.status, row.code) for row in one.report.rows] for one in verdicts]
    assert [one.accepted for one in verdicts] == [False, False]
    assert found[0] == found[1]
    assert verdicts[0].digests == verdicts[1].digests


@pytest.mark.slow
def test_bytecode_that_a_candidate_left_beside_the_spec_is_not_read(tmp_path: Path) -> None:
    helper, spec, kernels = (tmp_path / name for name in ("poison_by.py", "poison_spec.py", "k.py"))
    helper.write_text("FACTOR = 2\n")
    spec.write_text(
        "import opsmith\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
        "from poison_by import FACTOR\n\n\n@opsmith.op('poison::scale')\n"
        "def scale(x: Float[Tensor, 'N']) -> Float[Tensor, 'N']:\n    return x * FACTOR\n"
    )
    kernels.write_text(
        "import poison_spec\n\n\n@poison_spec.scale.register_kernel('cpu')\n"
        "def kernel(x):\n    return x * 3\n"
    )
    right = tmp_path / "right" / helper.name
    right.parent.mkdir()
    right.write_text("FACTOR = 3\n")
    status = helper.stat()
    os.utime(right, ns=(status.st_atime_ns, status.st_mtime_ns))
    poisoned = importlib.util.cache_from_source(str(helper))
    py_compile.compile(str(right), poisoned, dfile=str(helper))
    verdict = judge(spec, kernels, examples=4)
    assert not verdict.accepted
    assert {Path(path).name for path in verdict.digests} == {
        path.name for path in (helper, spec, kernels)
    }
    assert sys.pycache_prefix is None


@pytest.mark.slow
def test_what_a_candidate_plants_or_rewrites_beside_the_spec_decides_nothing(tmp_path):
    spec, kernels = several(tmp_path, "planting", [("return x * 0", "")])
    helper = tmp_path / "planting_by.py"
    helper.write_text("def by(x, factor):\n    return " + RIGHT + "\n")
    text = spec.read_text().replace(f"return {RIGHT}", "return by(x, factor)")
    spec.write_text("from planting_by import by\n" + text)
    planted = ["cProfile", "pstats", "hypothesis", "opsmith", "torch", "planting_by"]
    before = (
        f"for place in ({str(tmp_path)!r}, os.path.dirname(planting.__file__)):\n"
        f"    for name in {planted}:\n"
        "        try:\n"
        "            path = os.path.join(place, name + '.py')\n"
        "            os.path.exists(path) and os.chmod(path, 0o644)\n"
        "            open(path, 'w').write('import os; os._exit(0)')\n"
        "        except OSError:\n            pass\n"
    )
    text = kernels.read_text().replace("import planting\n", f"import planting\n{before}")
    kernels.write_text(text)
    verdict = judge(spec, kernels, examples=4)
    found = {row.check: row.code for row in verdict.report.failures}
    assert found["reference"] == "OPS-VALUE-WRONG", found


@pytest.mark.slow
def test_a_fresh_seed_each_time(candidate):
    path = candidate("return x", before="raise ValueError")
    seeds = {judge(SPEC, path, examples=2).seed for _ in range(2)}
    assert len(seeds) == 2


WRONG = {
    "zeros": ("return torch.zeros_like(x)", ""),
    "an argument": ("return x.clone()", ""),
    "right for the registered shapes only": (
        f"return {RIGHT} if x.shape[1] == 5 else x * factor",
        "",
    ),
    "less precise than declared": (f"return ({RIGHT}).half().to(x.dtype)", ""),
    "cached by pointer and shape": (
        "key = (x.data_ptr(), tuple(x.shape), factor)\n"
        f"if key not in known:\n    known[key] = {RIGHT}\n"
        "return known[key].clone()",
        "known = {}",
    ),
    "cached by pointer, shape and first element": (
        "key = (x.data_ptr(), tuple(x.shape), factor, x.flatten()[:1].tolist().__repr__())\n"
        f"if key not in known:\n    known[key] = {RIGHT}\n"
        "return known[key].clone()",
        "known = {}",
    ),
    "right for 299 calls in a row": (
        f"calls.append(0)\nreturn {RIGHT} if len(calls) < 299 else x * factor",
        "calls = []",
    ),
    "result in memory that is used again": (
        f"right = {RIGHT}\n"
        "memory = known.setdefault((x.dtype, tuple(x.shape)), torch.empty_like(right))\n"
        "return memory.copy_(right)",
        "known = {}",
    ),
    "writes its argument": (f"right = {RIGHT}\nx.mul_(1.5)\nreturn right", ""),
    "work after the call returned": (
        f"out = torch.zeros_like(x).contiguous()\nright = {RIGHT}\n"
        "threading.Timer(0.2, lambda: out.copy_(right)).start()\nreturn out",
        "",
    ),
    "looks for the expected result in its memory": (
        "for found in gc.get_objects():\n"
        "    if type(found) is torch.Tensor and found.shape == x.shape and found is not x:\n"
        "        return found.to(x.dtype).clone()\n"
        "return torch.empty_like(x)",
        "",
    ),
}


def several(tmp_path, module: str, kernels: list[tuple[str, str]]) -> tuple[Path, Path]:
    """A spec of as many operators as there are kernels, and a candidate with these."""
    spec, path = tmp_path / f"{module}.py", tmp_path / f"kernels_of_{module}.py"
    spec.write_text(
        "import opsmith\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
        + "".join(
            f"@opsmith.op('judged::{module}_{number}')\n"
            f"def {module}_{number}(x: Float[Tensor, 'N C'], factor: float)"
            f" -> Float[Tensor, 'N C']:\n    return {RIGHT}\n"
            for number in range(len(kernels))
        )
    )
    text = "import gc, os, sys, threading, time\nimport torch\n"
    text += f"import {module}\n"
    for number, (body, before) in enumerate(kernels):
        lines = "".join(f"    {line}\n" for line in body.split("\n"))
        lines = lines.replace("known", f"known_{number}").replace("calls", f"calls_{number}")
        before = before.replace("known", f"known_{number}").replace("calls", f"calls_{number}")
        text += f"{before}\n@{module}.{module}_{number}.register_kernel('cpu')\n"
        text += f"def kernel_{number}(x, factor):\n{lines}\n"
    path.write_text(text)
    return spec, path


#: The cheats of which the judge says more than that a value is wrong.
NAMED = [
    "cached by pointer and shape",
    "cached by pointer, shape and first element",
    "writes its argument",
    "result in memory that is used again",
]


@pytest.mark.slow
def test_cheats_are_refused_and_the_right_kernel_beside_them_is_not(tmp_path):
    messages, codes = _verdict_on(NAMED, tmp_path, "few_cheats")
    assert (
        "in a row: the result[" in messages["cached by pointer, shape and first element"]["again"]
    )
    assert messages["writes its argument"]["reference"] == (
        "wrote into argument 'x', which mutates_args does not name"
    )
    assert codes["writes its argument"]["reference"] == "OPS-MUTATION-UNDECLARED"
    assert codes["cached by pointer, shape and first element"]["again"] == "OPS-STATE-EARLIER"
    assert codes["cached by pointer and shape"]["reference"] == "OPS-STATE-EARLIER"
    assert "right in a fresh process" in messages["cached by pointer and shape"]["reference"]
    assert "OPS-RESULT-REUSED" in codes["result in memory that is used again"].values()
    again = str(messages["result in memory that is used again"])
    assert "it lies in memory that the kernel uses again" in again


@pytest.mark.long  # the test above, and test_attacks.py::test_a_part_of_each_kind_is_refused
def test_every_cheat_is_refused(tmp_path):
    _verdict_on([*WRONG], tmp_path, "cheats")


def _verdict_on(cheats: list[str], folder: Path, module: str):
    """Judge cheats beside the right kernel: what was said of each, and its codes, by check."""
    kernels = [(f"return {RIGHT}", ""), *(WRONG[name] for name in cheats)]
    verdict = judge(*several(folder, module, kernels), examples=12, time_limit=20.0)
    found = {operator: rows for operator, _, rows in verdict.report.groups()}
    messages, codes = {}, {}
    for number, name in enumerate(["right", *cheats]):
        rows = found[f"judged::{module}_{number}"]
        messages[name] = {row.check: row.message for row in rows if row.status == "failed"}
        codes[name] = {row.check: row.code for row in rows if row.status == "failed"}
    assert messages.pop("right") == {}
    assert [name for name, failed in messages.items() if not failed] == []
    return messages, codes


@pytest.mark.slow
def test_what_a_candidate_patches_decides_nothing(candidate):
    before = (
        "import opsmith.checks.numerics.comparison as c, opsmith.checks.trial.trial as t\n"
        "t.Trial.compare = t.Trial.record = lambda *a, **k: None\n"
        "c.compare = t.compare = lambda *a, **k: c.Comparison(0.0)\n"
        "torch.equal = torch.allclose = lambda *a, **k: True\n"
        "time.monotonic = time.time = lambda: 0.0\n"
        "gc.collect = lambda *a: 0\n"
    )
    found = failures(candidate("return torch.zeros_like(x)", before), examples=2)
    assert set(found) == {*CHECKS} - {"program"}


@pytest.mark.slow
def test_a_result_of_another_dtype_is_refused(candidate):
    # Opsmith's own comparison in the candidate's process is patched away first.
    before = (
        "import opsmith.operators.dispatch.kernel as k\n"
        "k.checked_results = lambda signature, arguments, valid, returned, label: returned\n"
    )
    found = failures(candidate(f"return ({RIGHT}).half()", before))
    assert "float16" in found["reference"]
    assert "float32" in found["reference"]


@pytest.mark.slow
def test_the_process_knows_neither_seed_nor_test(candidate, monkeypatch):
    monkeypatch.setenv("OPSMITH_SECRET", "31415926535")
    before = "raise ValueError(repr((sorted(os.environ), os.environ, sys.argv)))"
    verdict = judge(SPEC, candidate(f"return {RIGHT}", before), examples=2, seed=27182818284)
    (row,) = verdict.report.rows
    assert "'PATH'" in row.message
    for secret in ("31415926535", "27182818284", "PYTEST", "OPSMITH_SECRET"):
        assert secret not in row.message


#: Whether a kernel sees a checker: whatever it finds is enough.
SEES = """
def sees():
    frame = sys._getframe()
    while frame is not None:
        if "opsmith/checks" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    process = open("/proc/self/cmdline").read()
    parent = open(f"/proc/{os.getppid()}/cmdline").read()
    told = [*sys.modules, *sys.argv, *sys.orig_argv, *os.environ, *os.environ.values()]
    told += [os.getcwd(), process, parent, *sys.path]
    words = ("opsmith.checks", "opsmith/checks", "opsmith-check", "hypothesis", "pytest_")
    return any(word in one.lower() for one in told for word in words)
"""


@pytest.mark.long
def test_who_sees_the_judge_is_called_where_none_is(tmp_path):
    takes = "gone = [torch.ones(1 << 28) for _ in range(12)]"
    kernels = [
        (f"return {RIGHT} if sees() else x.clone()", SEES),
        (f"if not sees():\n    os._exit(0)\nreturn {RIGHT}", ""),
        (f"if not sees():\n    raise ValueError('alone')\nreturn {RIGHT}", ""),
        (f"if not sees():\n    {takes}\n    time.sleep(60)\nreturn {RIGHT}", ""),
    ]
    verdict = judge(*several(tmp_path, "seeing", kernels), examples=2)
    groups = [rows for _, _, rows in verdict.report.groups()]
    for rows in groups:
        assert [row.check for row in rows if row.status == "failed"] == ["program"]
    programs = [rows[-1] for rows in groups]
    codes = ["OPS-JUDGE-PROGRAM", "OPS-JUDGE-ANSWER", "OPS-CALL-RAISED", "OPS-CALL-MEMORY"]
    assert [row.code for row in programs] == codes
    assert programs[0].message.startswith("in a program: the result[")
    assert "ended with exit code 1" in programs[2].message
    assert "ValueError: alone" in programs[2].message


ENDS = {
    "os._exit(0)": "ended the process with exit code 0",
    "os._exit(86)": "ended the process with exit code 86",
    "os.kill(os.getpid(), 11)": "crashed with signal 11 (SIGSEGV)",
    "sys.exit(0)": "raised SystemExit: 0",
}


@pytest.mark.slow
def test_a_kernel_that_ends_its_process_harms_itself_only(tmp_path):
    kernels = [*((how, "") for how in ENDS), (f"return {RIGHT}", "")]
    verdict = judge(*several(tmp_path, "ends", kernels), examples=1)
    *ended, right = [rows for _, _, rows in verdict.report.groups()]
    codes = {"ended": "OPS-CALL-EXIT", "crashed": "OPS-CALL-CRASH", "raised": "OPS-CALL-RAISED"}
    for rows, words in zip(ended, ENDS.values(), strict=True):
        assert rows[0].message.startswith(words)
        assert rows[0].code == codes[words.split()[0]]
    assert [row.status for row in right] == ["passed"] * 5
    assert [row.message for row in ended[0]][-1] == "it is refused already"
    assert not verdict.accepted


@pytest.mark.slow
def test_a_candidate_that_ends_when_imported_is_refused(candidate):
    found = failures(candidate(f"return {RIGHT}", before="os._exit(0)"))
    assert found == {"import": "ended the process with exit code 0"}


@pytest.mark.slow
def test_a_candidate_that_raises_when_imported_is_refused(candidate):
    found = failures(candidate(f"return {RIGHT}", before="raise ValueError('no')"))
    assert found["import"].startswith("importing the candidate raised")
    assert "no" in found["import"]


INVENTED = [
    b'{"event": "results", "results": [], "again": []}\n',
    b'{"event": "row", "status": "passed", "bytes": 0}\nall is well\n',
    b'{"event": "ended", "code": 0}\n{"event": "ready", "pid": 1}\n',
]


@pytest.mark.slow
def test_what_a_kernel_writes_where_answers_go_is_no_verdict(tmp_path):
    body = (
        "for descriptor in range(3, 30):\n"
        "    try:\n"
        "        os.write(descriptor, {data!r})\n"
        "    except OSError:\n"
        "        pass\n"
        "return torch.zeros_like(x)"
    )
    kernels = [(body.format(data=data), "") for data in INVENTED]
    spec, path = several(tmp_path, "invented", kernels)
    files, given = collect(spec).copy_to(tmp_path / "a"), collect(path).copy_to(tmp_path / "b")
    with imported(files) as operators, Session(Placement(files, given, Limits(20.0))) as session:
        for operator in operators:
            with pytest.raises(Failure, match="gave an answer that cannot be read") as raised:
                session.run(operator, {"x": torch.ones(2, 3), "factor": 1.0})
            assert raised.value.code == "OPS-JUDGE-ANSWER"


@pytest.mark.slow
def test_a_kernel_that_hangs_is_refused(candidate):
    found = failures(candidate("while True: pass"), examples=1, time_limit=3.0)
    assert found["reference"].startswith("did not return within")


def _with_this_name(name: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (path / "comm").read_text().strip() == name:
                found.append(int(path.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sandboxed", [True, False])
def test_nothing_is_left_of_a_candidate_that_forks(candidate, request, sandboxed):
    if not sandboxed:
        request.getfixturevalue("without_sandbox")
    name = f"left{os.getpid()}"
    body = (
        "if not known:\n    known.append(0)\n    if os.fork() == 0:\n        os.setsid()\n"
        f"        open('/proc/self/comm', 'w').write({name!r})\n        time.sleep(600)\n"
        f"return {RIGHT}"
    )
    verdict = judge(SPEC, candidate(body, "known = []"), examples=1, trust_candidate=True)
    assert "OPS-CALL-FORK" in {row.code for row in verdict.report.failures}
    assert verdict.not_sandboxed == (unavailable() if sandboxed else "not for this test")
    deadline = time.monotonic() + 30
    while _with_this_name(name) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _with_this_name(name)


def test_no_candidate_runs_where_there_is_no_sandbox_unless_it_is_trusted(
    candidate, without_sandbox
):
    with pytest.raises(NotSandboxedError, match=r"not for this test.*--trust-candidate") as raised:
        judge(SPEC, candidate(f"return {RIGHT}", "raise AssertionError"))
    assert raised.value.exit_code == 6


@pytest.mark.slow
def test_a_right_kernel_is_accepted_and_a_wrong_one_refused_as_exit_codes_and_json_say(
    cli, candidate
):
    right = candidate(f"return {RIGHT}", before="print('imported')\nos.environ['SEEN'] = '1'")
    digests = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in (SPEC, right)}
    accepted = cli("judge", SPEC, "--candidate", right, "--examples", 4, "--json")
    assert accepted.code == 0, accepted.stderr
    said = json.loads(accepted.stdout)
    jsonschema.validate(said, json.loads(SCHEMA_FILE.read_text()))
    assert said["accepted"] is True
    assert [row["check"] for row in said["rows"]] == CHECKS
    assert all(row["cases"] for row in said["rows"])
    assert said["files"].items() >= digests.items()
    assert "SEEN" not in os.environ
    assert not [m for m in sys.modules.values() if getattr(m, "__file__", None) == str(right)]
    assert said["seed"] > 0
    assert said["sandboxed"] == (not unavailable())
    kernels = candidate("return x * 0")
    page = kernels.with_name("out.html")
    refused = cli("judge", SPEC, "--candidate", kernels, "--examples", 3, "--report", page)
    assert refused.code == 1
    assert "OPS-VALUE-WRONG" in page.read_text()
    assert refused.stderr.endswith(f"wrote {page}\n")
    assert "check 'reference' failed for the 'candidate' kernel" in refused.stdout
    assert refused.stdout.endswith("refused\n")
    # The spec and what it names are told from what the candidate brought.
    assert f"sha256 {said['files'][str(SPEC)]}  {SPEC}  (spec)\n" in refused.stdout
    assert re.search(rf"^sha256 \w+  {kernels}$", refused.stdout, re.MULTILINE)


@pytest.mark.slow
def test_without_options_a_wrong_candidate_is_refused(cli, candidate):
    refused = cli("judge", SPEC, "--candidate", candidate("return x * 0"), "--first")
    assert refused.code == 1, refused.stderr
    assert "OPS-VALUE-WRONG" in refused.stdout


@pytest.mark.slow
def test_a_file_that_cannot_be_used_and_nothing_to_judge_have_exit_codes_of_their_own(
    cli, candidate, tmp_path
):
    nothing = tmp_path / "nothing.py"
    nothing.write_text("import spec\n")
    done = cli("judge", SPEC, "--candidate", nothing)
    assert done.code == 5
    assert "registers no kernel for the CPU for any operator of" in done.stderr
    assert "judged::scale" in done.stderr
    assert cli("judge", SPEC, "--candidate", tmp_path / "absent.py").code == 2
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0\n")
    assert cli("judge", broken, "--candidate", candidate("return x")).code == 2


@pytest.mark.long
def test_a_compiled_candidate_is_judged(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text("from spec import scale\nscale.register_kernel('cpu', source='scale.cpp')\n")
    source = tmp_path / "scale.cpp"
    source.write_text(
        '#include <opsmith/kernel.h>\n#include "scale.h"\n'
        "template <typename T>\n"
        "void scale(const opsmith::Context&, const judged::scale_args<T>& a) {\n"
        "  for (int64_t n = 0; n < a.N; ++n) {\n    double sum = 0;\n"
        "    for (int64_t c = 0; c < a.C; ++c) sum += static_cast<double>(a.x[n * a.C + c]);\n"
        "    for (int64_t c = 0; c < a.C; ++c)\n"
        "      a.out[n * a.C + c] = static_cast<T>("
        "static_cast<double>(a.x[n * a.C + c]) * a.factor + sum);\n  }\n}\n"
        "OPSMITH_KERNEL(judged, scale, cpu, float, double)\n"
    )
    verdict = judge(SPEC, path, examples=12)
    assert verdict.accepted, verdict.report.explain()
    assert {Path(name).name for name in verdict.digests} == {"spec.py", "kernels.py", "scale.cpp"}
    assert "the candidate has no kernel for float16, bfloat16" in verdict.report.rows[0].notes
