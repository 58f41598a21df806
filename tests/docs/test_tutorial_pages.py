"""A reader who does what a tutorial says, in an empty folder, sees what it shows."""

import importlib.util
import os
from pathlib import Path

import pytest
from steps import Command, File, Output, matches, run, steps_of

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
PAGES = sorted(path for path in TUTORIALS.glob("*.md") if path.stem != "index")
#: What a tutorial is about, where `make test` does without it.
NEEDS = {"triton": "triton", "onnxruntime": "onnxruntime", "jax": "jax", "python": "PIL"}
#: These compile more than a kernel, and `make test-long` does them: their steps have shorter tests.
LONG = {"classes", "cpp", "cuda", "many_ranks", "onnxruntime", "wheel"}
MARKED = [
    pytest.param(page, id=page.stem, marks=[pytest.mark.long] if page.stem in LONG else [])
    for page in PAGES
]
#: Whole checks are the tests of the checks; here it is seen that the page's operator passes.
FEW = ("--check", "layouts,validation")
LITTLE = ("--examples", "4")


@pytest.mark.long
@pytest.mark.parametrize("page", MARKED)
def test_a_tutorial_works_from_an_empty_folder_by_its_text_alone(page, tmp_path):
    needed = NEEDS.get(page.stem, "opsmith")
    if importlib.util.find_spec(needed) is None and not os.environ.get(
        f"OPSMITH_REQUIRE_{needed.upper()}"
    ):
        pytest.skip(f"{needed} is not installed")
    said = ""
    for step in steps_of(page.read_text()):
        if isinstance(step, File):
            (tmp_path / step.name).parent.mkdir(exist_ok=True)
            (tmp_path / step.name).write_text(step.text)
        elif isinstance(step, Output):
            assert matches(step.text, said), f"the page shows\n{step.text}\nprinted is\n{said}"
        else:
            code, said = run(shortened(step), tmp_path)
            assert code == step.code, f"{' '.join(step.words)}\n{said}"


def shortened(command: Command) -> Command:
    words = command.words
    if words[:2] != ("opsmith", "check"):
        return command
    words += () if "--check" in words else FEW
    return Command(words if "--examples" in words else words + LITTLE, command.code)


def test_every_tutorial_runs_commands_and_shows_what_they_print():
    for page in PAGES:
        kinds = {type(step) for step in steps_of(page.read_text())}
        assert kinds == {File, Command, Output}, page.stem


def test_what_a_page_shows_is_compared_line_by_line():
    printed = "one 1\n  two 2\nthree 3\n"
    assert matches("one 1\nthree 3\n", printed)
    assert matches("two …\n", printed)
    assert not matches("three 3\none 1\n", printed)
    assert not matches("one 2\n", printed)
