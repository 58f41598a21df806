"""Every published cheat, and many more, are refused; right kernels of unusual kinds are not.

`make attacks` runs all of them; here is a small part of each kind.
"""

import json
import os
import re
import tempfile
from pathlib import Path

import pytest
from attacks import Attack, marks, patches, processes, protocol, right, values, whole

from opsmith.checks.report.failure_codes import catalogue
from opsmith.judge import NothingJudgedError, judge
from opsmith.system.processes.sandbox.policy import unavailable

RIGHT = "(x * factor + x.sum(1, keepdim=True))"
SPEC = Path(__file__).with_name("spec.py")
KINDS: dict[str, dict[str, Attack]] = {
    "results": values.RESULTS,
    "forms": values.FORMS,
    "state": values.STATE,
    "marks": marks.MARKS,
    "patches": patches.PATCHES,
    "protocol": protocol.PROTOCOL,
    "processes": processes.PROCESSES,
    "files": processes.FILES,
    "network": processes.NETWORK,
}
#: Kernels in one candidate. Each has an operator of its own.
_TOGETHER = 24

pytestmark = pytest.mark.usefixtures("no_shrinking", "own_temporary_folder")


@pytest.fixture
def own_temporary_folder(tmp_path, monkeypatch):
    """Let nobody else leave files where the judge does."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def written(folder: Path, kernels: list[tuple[str, str]], module: str) -> tuple[Path, Path]:
    """Write a spec of as many operators as there are kernels, and a candidate with these."""
    spec, path = folder / f"{module}.py", folder / f"k_{module}.py"
    spec.write_text(
        "import opsmith\nfrom jaxtyping import Float\nfrom torch import Tensor\n\n\n"
        + "\n\n".join(
            f"@opsmith.op('{module}::scale_{number}')\n"
            f"def scale_{number}(x: Float[Tensor, 'N C'], factor: float)"
            f" -> Float[Tensor, 'N C']:\n    return {RIGHT}\n"
            for number in range(len(kernels))
        )
    )
    text = f"import gc, os, sys, threading, time\nimport torch\nimport {module}\n"
    for number, (body, before) in enumerate(kernels):
        for name in ("known", "answers", "calls", "Lazy", "Equal", "Bad", "made", "found"):
            body, before = (
                part.replace(f"{name}", f"{name}_{number}") if name in before else part
                for part in (body, before)
            )
        body = body.replace("RIGHT", RIGHT).replace("WRONG", "(x * 0 + 0.5)")
        body = body.replace("import spec\n", f"import {module} as spec\n")
        lines = "".join(f"    {line}\n" for line in body.split("\n"))
        text += f"{before}\n@{module}.scale_{number}.register_kernel('cpu')\n"
        text += f"def kernel_{number}(x, factor):\n{lines}\n"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return spec, path


def got_through(folder: Path, attacks: dict[str, Attack], **options: object) -> dict[str, str]:
    """Judge attacks together; return those that were accepted, and what harmed the judge."""
    module = f"attacked_{abs(hash(tuple(attacks))) % 10**8}_{len(options)}"
    spec, path = written(folder, [(one.body, one.before) for one in attacks.values()], module)
    verdict = judge(spec, path, **{"examples": 3, "time_limit": 4.0, "first": True, **options})
    verdict.report.explain().encode("utf-8")
    json.loads(verdict.to_json())
    verdict.report.to_junit()
    through = {}
    for number, name in enumerate(attacks):
        rows = [r for r in verdict.report.failures if r.operator == f"{module}::scale_{number}"]
        if not rows:
            through[name] = "accepted"
        elif rows[0].check == "import" and rows[0].code != "OPS-JUDGE-ANSWER":
            through[name] = f"never called: {rows[0].message}"
        elif any(row.code not in catalogue() for row in rows):
            through[name] = f"unknown codes: {[row.code for row in rows]}"
    # PyTorch makes this folder in the judge's own process.
    left = [name for name in os.listdir(tempfile.gettempdir()) if "torchinductor" not in name]
    if left:
        through["files left behind"] = ", ".join(sorted(left))
    return through


def _batches(sandboxed: bool) -> list[object]:
    found = []
    for kind, attacks in KINDS.items():
        usable = {name: one for name, one in attacks.items() if sandboxed or not one.boxed}
        together = [name for name, one in usable.items() if not one.alone]
        groups = [together[at : at + _TOGETHER] for at in range(0, len(together), _TOGETHER)]
        groups += [[name] for name, one in usable.items() if one.alone]
        for number, group in enumerate(groups):
            batch = {name: usable[name] for name in group}
            label = group[0] if len(group) == 1 else number
            found.append(pytest.param(batch, id=f"{kind}-{label}"))
    return found


def test_there_are_enough_of_them():
    assert sum(map(len, KINDS.values())) + len(whole.IMPORTS) + len(whole.SOURCES) >= 120
    assert len(right.RIGHT_ONES) >= 25


def test_the_page_counts_them():
    page = (Path(__file__).parents[2] / "docs/explanation/trust.md").read_text()
    counts = re.findall(r"^\| [^|]+ \| (\d+) \| (\d+) \| 0 \|$", page, re.MULTILINE)
    told = [(int(all_), int(bare)) for all_, bare in counts]
    there = [(len(one), sum(not a.boxed for a in one.values())) for one in KINDS.values()]
    assert told == [*there, (len(whole.IMPORTS), 0), (len(whole.SOURCES), 0)]
    assert f"{len(right.RIGHT_ONES)} right kernels" in page


@pytest.mark.long
@pytest.mark.skipif(bool(unavailable()), reason=f"no sandbox: {unavailable()}")
@pytest.mark.parametrize("attacks", _batches(sandboxed=True))
def test_attacks_are_refused_in_the_sandbox(attacks, tmp_path):
    assert got_through(tmp_path, attacks) == {}


@pytest.mark.long
@pytest.mark.parametrize("attacks", _batches(sandboxed=False))
@pytest.mark.usefixtures("without_sandbox")
def test_attacks_are_refused_without_a_sandbox(attacks, tmp_path):
    assert got_through(tmp_path, attacks, trust_candidate=True) == {}


@pytest.mark.slow
def test_a_part_of_each_kind_is_refused(tmp_path):
    trusted = bool(unavailable())
    chosen = {
        name: KINDS[kind][name]
        for kind, name in {
            "results": "the last column left out",
            "forms": "a tensor without memory",
            "state": "cached by address, shape and first element",
            "marks": "a module of the checks",
            "protocol": "deep nesting",
            "processes": "ends with success",
            "files": "rewrites the declaration",
            "network": "sees an interface",
        }.items()
        if not (trusted and KINDS[kind][name].boxed)
    }
    assert got_through(tmp_path, chosen, trust_candidate=trusted) == {}


def _judged(path: Path, text: str, **options: object):
    path.write_text(text, encoding="latin-1" if "\xff" in text else "utf-8")
    return judge(SPEC, path, **{"examples": 2, "time_limit": 2.0, "first": True, **options})


@pytest.mark.long
@pytest.mark.parametrize("name", whole.IMPORTS)
def test_a_file_whose_import_is_an_attack_is_refused(name, tmp_path):
    text = whole.IMPORTS[name]
    if whole.KERNEL in text and "import scale" not in text and "def scale" not in text:
        text = "from spec import scale\n" + text
    try:
        verdict = _judged(tmp_path / "kernels.py", text)
    except NothingJudgedError:
        assert name == "declares the operator again", "what it declares is not what is judged"
        return
    assert not verdict.accepted
    assert verdict.report.failures
    verdict.report.explain().encode("utf-8")


@pytest.mark.long
@pytest.mark.parametrize("name", whole.SOURCES)
def test_a_source_whose_compilation_or_loading_is_an_attack_is_refused(name, tmp_path):
    (tmp_path / "scale.cpp").write_text(whole.SOURCES[name])
    verdict = _judged(tmp_path / "kernels.py", whole._REGISTER, time_limit=6.0)
    assert not verdict.accepted
    assert verdict.report.failures


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("first", range(0, len(right.RIGHT_ONES), 4))
def test_right_kernels_of_unusual_kinds_are_accepted(first, seed, tmp_path):
    names = list(right.RIGHT_ONES)[first : first + 4]
    ones = [right.RIGHT_ONES[name] for name in names]
    spec, path = written(tmp_path, ones, f"unusual_{first}_{seed}")
    trusted = bool(unavailable())
    # However slow the machine is, what is right must not be cut short.
    verdict = judge(
        spec, path, examples=8, seconds=600, time_limit=60.0, seed=seed, trust_candidate=trusted
    )
    failed = {row.operator: row.explain() for row in verdict.report.failures}
    assert {names[int(key.rpartition("_")[2])]: text for key, text in failed.items()} == {}
    assert verdict.accepted
