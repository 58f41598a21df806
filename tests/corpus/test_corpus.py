"""The runner of the corpus passes right operators, flags wrong ones, and keeps what it saw."""

from __future__ import annotations

from pathlib import Path

import corpus_compiled
import corpus_drawn
import corpus_onnx
import corpus_page
import corpus_results
import corpus_run
import corpus_suite
import corpus_taken
import pytest
import torch
from corpus_results import Result

from opsmith import Operator, checks
from opsmith.checks.report.rows import Row, Sample

RIGHT, WRONG = "kernel/aten::asinh", "kernel/aten::acosh"
KEPT = Path(__file__).with_name("results.txt")
SAMPLES = [((torch.tensor([[0.5, 2.0], [3.0, 4.0]]),), {}), ((torch.rand(5),), {})]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus of its own, without results."""
    path = tmp_path_factory.mktemp("corpus")
    (path / "drafts").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_suite, "FOLDER", path)
        patch.setattr(corpus_suite, "DRAFTS", path / "drafts")
        patch.setattr(corpus_taken, "DRAFTS", path / "drafts")
        patch.setattr(corpus_results, "FILE", path / "results.txt")
        patch.setattr(corpus_drawn, "FILE", path / "drawn.json")
        for name in ("aten::asinh", "aten::acosh"):
            assert corpus_suite._draft(name, SAMPLES, name).drafted
        yield path


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_right_operator_passes_and_a_wrong_one_is_flagged(monkeypatch):
    right = corpus_run.declared

    def declared(label):
        operator = right(label)
        if label == WRONG:
            operator.register_kernel("cpu")(lambda self: torch.acosh(self) * (1 + 1e-3))
        return operator

    monkeypatch.setattr(corpus_run, "declared", declared)
    flagged = corpus_run.check([RIGHT, WRONG], 3, ["reference", "fake"], 8, isolate=False)
    assert flagged == 1
    wrong, right = corpus_results.read()
    assert (right.operator, right.seed, right.codes) == (RIGHT, 3, {})
    assert right.rows == {"reference": "passed", "fake": "passed"}
    assert wrong.rows == {"reference": "failed", "fake": "passed"}
    assert wrong.codes["reference"].startswith("OPS-VALUE")


@pytest.mark.usefixtures("folder")
def test_the_reference_is_the_decomposition_and_the_samples_are_the_suites():
    operator = corpus_run.declared(RIGHT)
    assert isinstance(operator, Operator)
    assert operator.name == "corpus::asinh"
    (drafted, suite) = operator.cases
    assert [one["self"].shape for one in suite(torch.float64, 0)] == [(2, 2), (5,)]
    assert {one["self"].dtype for one in suite(torch.float64, 0)} == {torch.float64}
    assert list(drafted(torch.float64, 0))
    draft = corpus_taken.draft_of("aten::asinh")
    assert corpus_taken.decomposed(draft) is not draft.overload
    with_gradient = corpus_taken.has_gradient(draft, draft.overload)
    assert with_gradient and operator.rule.reference


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_kernels_in_cpp_call_pytorchs_functions_and_cpps(monkeypatch):
    monkeypatch.setattr(corpus_compiled, "LIBRARY", ("aten::asinh",))
    corpus_compiled.library.cache_clear()
    x = torch.randn(5)
    for kind in ("library", "formula"):
        operator = corpus_run.declared(f"{kind}/aten::asinh")
        before = operator.kernels["cpu"].calls
        torch.testing.assert_close(operator(x), x.asinh())
        assert operator.kernels["cpu"].calls == before + 1
    corpus_compiled.library.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_an_operator_that_is_a_node_of_onnx_has_its_tests_as_cases_and_its_evaluator(monkeypatch):
    monkeypatch.setitem(corpus_onnx._NAMES, "Asinh", "no operator")
    monkeypatch.setitem(corpus_onnx._NAMES, "Cosh", "asinh")  # whose tests asinh fails
    assert corpus_onnx.collect() == corpus_onnx.names_of() == ["aten::acosh"]
    assert corpus_run.labels(["onnx"]) == ["onnx/aten::acosh"]
    operator = corpus_run.declared("onnx/aten::acosh")
    (_, tests) = operator.cases
    assert [one["self"].shape for one in tests(torch.float64, 0)] == [(3,), (3, 4, 5)]
    x = torch.rand(5) + 1
    node = corpus_onnx.evaluator("aten::acosh")
    assert operator.reference(x).equal(torch.from_numpy(node([x.numpy()])))
    torch.testing.assert_close(operator.reference(x), x.acosh())


@pytest.mark.usefixtures("folder")
def test_an_operator_that_cpp_cannot_call_by_its_draft_has_no_function(monkeypatch):
    draft = corpus_taken.draft_of("aten::asinh")
    assert "at::_ops::asinh::call(self)" in corpus_compiled._call_of("aten::asinh")
    monkeypatch.setattr(corpus_taken, "draft_of", lambda name: draft)
    assert corpus_compiled._call_of("aten::add.Tensor") == ""  # the draft lacks 'other'


def test_what_is_excused_is_no_flag(tmp_path):
    file = tmp_path / "excused.txt"
    file.write_text(f"# why\n{WRONG} reference: PyTorch 0.1: `a: b`\n")
    excused = corpus_page.excuses(file)
    assert excused == {(WRONG, "reference"): "PyTorch 0.1: `a: b`"}
    every = [
        Result(WRONG, 0, {"reference": "failed", "fake": "failed"}, {"fake": "OPS-X"}),
        Result(RIGHT, 0, {"reference": "passed", "fake": "cut short"}),
    ]
    assert list(corpus_page.flags(every, excused)) == [f"{WRONG}, seed 0: fake (OPS-X)"]
    values, fake, whole = corpus_page.tallies(every, excused, ["reference", "fake", "vmap"])
    assert (values.operators, values.ran, values.flags, values.excused) == (2, 2, 0, 1)
    assert (fake.ran, fake.flags, fake.cut) == (1, 1, 1)
    assert (whole.row, whole.ran, whole.flags) == ("all", 3, 1)


def test_results_are_kept_row_by_row(tmp_path):
    file = tmp_path / "results.txt"
    corpus_results.add(Result(WRONG, 1, {"fake": "failed", "vmap": "passed"}, {"fake": "A"}), file)
    corpus_results.add(Result(RIGHT, 0, {"vmap": "cut short"}, {}, 20, 3, 7, "2026-01-02"), file)
    corpus_results.add(Result(WRONG, 1, {"fake": "passed", "reference": "not run"}), file)
    wrong, right = corpus_results.read(file)
    assert right == Result(RIGHT, 0, {"vmap": "cut short"}, {}, 20, 3, 7, "2026-01-02")
    assert wrong.rows == {"reference": "not run", "fake": "passed", "vmap": "passed"}
    assert wrong.codes == {}
    assert file.read_text().startswith("# reference fake vmap\n")


def test_rows_of_other_checks_keep_their_line_until_they_run_again(tmp_path):
    file = tmp_path / "results.txt"
    old = Result(RIGHT, 0, {"fake": "failed", "vmap": "passed"}, {"fake": "A"}, checks="old")
    corpus_results.add(old, file)
    corpus_results.add(Result(RIGHT, 0, {"fake": "passed"}, {}, checks="new"), file)
    new, rest = corpus_results.read(file)
    assert (new.checks, new.rows) == ("new", {"fake": "passed"})
    assert (rest.checks, rest.rows, rest.codes) == ("old", {"vmap": "passed"}, {})
    corpus_results.add(Result(RIGHT, 0, {"vmap": "cut short"}, {}, checks="new"), file)
    (new,) = corpus_results.read(file)
    assert new.rows == {"fake": "passed", "vmap": "cut short"}


def test_an_operator_that_can_be_declared_now_has_no_refusal_any_more(tmp_path):
    file = tmp_path / "results.txt"
    corpus_results.add(corpus_results.refused(RIGHT, 0, 8, {"declaration": "LoadError"}), file)
    corpus_results.add(Result(RIGHT, 0, {"fake": "passed"}, {}, checks="new"), file)
    (one,) = corpus_results.read(file)
    assert (one.rows, one.codes) == ({"fake": "passed"}, {})


def test_what_earlier_checks_ran_is_run_again_if_asked(monkeypatch):
    monkeypatch.setattr(corpus_run, "labels", lambda kinds: [RIGHT, WRONG, "kernel/aten::sin"])
    rows = {"fake": "passed"}
    kept = [Result(RIGHT, 0, rows, checks="old"), Result(WRONG, 0, rows, checks="now")]
    monkeypatch.setattr(corpus_results, "read", lambda: kept)
    monkeypatch.setattr(corpus_results, "digest", lambda: "now")

    def left(*words):
        return list(corpus_run.left(corpus_run.options(["check", "--rows", "quick", *words])))

    assert left() == [("kernel/aten::sin", 0)]
    assert left("--stale") == [(RIGHT, 0), ("kernel/aten::sin", 0)]
    assert left("--again") == [(RIGHT, 0), (WRONG, 0), ("kernel/aten::sin", 0)]


def test_the_interval_is_wilsons():
    assert corpus_page.interval(0, 2000) == pytest.approx((0.0, 0.00192), abs=1e-5)
    assert corpus_page.interval(1, 38) == pytest.approx((0.0047, 0.1349), abs=1e-4)
    assert corpus_page.interval(0, 0) == (0.0, 1.0)


def test_the_page_has_what_the_results_say(tmp_path):
    page = tmp_path / "corpus.md"
    page.write_text(corpus_page.PAGE.read_text())
    corpus_page.write(page, KEPT)
    assert page.read_text() == corpus_page.PAGE.read_text(), "run make corpus, or its table"


def test_every_row_of_the_results_is_a_check():
    known = {one.name for one in checks.all_checks()}
    assert {name for one in corpus_results.read(KEPT) for name in one.rows} <= known


def test_what_is_owed_was_drawn():
    drawn = corpus_drawn.read(KEPT.with_name("drawn.json"))
    assert drawn and not list(corpus_drawn.missing(drawn))


def test_what_was_not_drawn_is_told(tmp_path):
    file = tmp_path / "drawn.json"
    samples = (Sample("normal", "float32", 512, 3), Sample("normal", "float64", 8, 1))
    corpus_drawn.add([Row("a::b", "cpu", "gradient", "passed", samples=samples)], file)
    corpus_drawn.add([Row("a::c", "cpu", "gradient", "passed", samples=samples[:1])], file)
    found = corpus_drawn.read(file)
    one = {"cases": 7, "dtypes": ["float32", "float64"], "least": 8, "most": 512}
    assert found == {"gradient": {"normal": one}}
    missing = list(corpus_drawn.missing(found))
    assert "gradient, 'normal': 512 elements at most, not 1000" in missing
    assert "gradient, 'normal': no case in bfloat16, float16" in missing
    assert "gradient: no case of 'registered'" in missing
