"""The action for other repositories: what it checks after a push, by the text of its own step."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ACTION = Path(__file__).parents[2] / "action.yml"
OPERATOR = '@opsmith.op("action::{name}")\ndef {name}(x): ...\n'


@pytest.fixture
def repository(tmp_path):
    """A repository with two operators and a helper, and an `opsmith` that writes down its words."""
    tool = tmp_path / "bin" / "opsmith"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\nexit 1\n')
    tool.chmod(0o755)
    root = tmp_path / "root"
    for name in ("one", "two of them"):
        (root / name).mkdir(parents=True)
        (root / name / "op.py").write_text(OPERATOR.format(name="one"))
        (root / name / "op.cpp").write_text("")
        (root / name / "helper.py").write_text("")
    (root / "README.md").write_text("")
    git(root, "init", "-q")
    commit(root)
    return root


def git(root, *words) -> None:
    person = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *person, *words], cwd=root, check=True)


def commit(root) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-qm", "A step", "--allow-empty")


def run(root) -> tuple[int, list[str]]:
    """Run the action's step after the last commit: its exit code, and the words of the check."""
    (step, upload) = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    assert upload["if"] == "always() && steps.check.outputs.checked"
    environment = {
        "PATH": f"{root.parent / 'bin'}:{os.environ['PATH']}",
        "BASE": "HEAD~1",
        "ARGUMENTS": "--quick --seed 3",
        "GITHUB_OUTPUT": str(root.parent / "output"),
    }
    # As GitHub's runner starts bash.
    shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
    done = subprocess.run(shell, cwd=root, env=environment, check=False)
    words = root.parent / "words"
    return done.returncode, words.read_text().splitlines() if words.exists() else []


def test_an_operator_whose_kernel_changed_is_checked_and_its_failure_kept(repository):
    (repository / "two of them" / "op.cpp").write_text("changed")
    commit(repository)
    code, words = run(repository)
    assert code == 1
    assert words[:5] == ["check", "two of them/op.py", "--quick", "--seed", "3"]
    assert words[5:] == [
        *("--report", "opsmith-report.html"),
        *("--junit", "opsmith-report.xml"),
    ]
    assert (repository.parent / "output").read_text() == "checked=true\n"


def test_nothing_is_checked_where_no_operator_changed(repository):
    (repository / "README.md").write_text("changed")
    git(repository, "rm", "-rq", "one")
    commit(repository)
    assert run(repository) == (0, [])
