"""What each of opsmith's own targets says of itself is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opsmith.targets import ModelTarget, OperatorTarget, Route, Target, all_targets

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

REPOSITORY = Path(__file__).parents[3]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
#: What a distribution is imported as, where it is not its own name.
IMPORTED = {"apache-tvm-ffi": "tvm_ffi"}
OWN = [target for target in all_targets() if type(target).__module__.startswith("opsmith.")]


@pytest.mark.parametrize("target", OWN, ids=lambda target: target.name)
def test_a_target_has_a_page_that_the_readme_links(target: Target):
    assert (REPOSITORY / target.page).is_file()
    assert f"]({target.page})" in (REPOSITORY / "README.md").read_text()
    assert target.name in (REPOSITORY / target.page).read_text()


@pytest.mark.parametrize("target", OWN, ids=lambda target: target.name)
def test_the_extra_that_a_target_names_brings_its_packages(target: Target):
    if not target.packages:
        return
    (extra,) = re.findall(r'pip install "opsmith\[([\w-]+)\]"', target.install)
    wanted = PROJECT["optional-dependencies"][extra] + PROJECT["dependencies"]
    brought = {re.split(r"[^\w-]", requirement)[0] for requirement in wanted}
    brought |= {IMPORTED.get(name, name) for name in brought}
    # jaxlib and the like come with what names them.
    assert target.packages[0] in brought
    assert {name for name in target.packages if not name.endswith("lib")} <= brought


@pytest.mark.parametrize("target", OWN, ids=lambda target: target.name)
def test_a_target_takes_something_and_its_options_and_routes_are_told_apart(target: Target):
    assert isinstance(target, ModelTarget | OperatorTarget)
    names = [option.name for option in target.options]
    assert len(set(names)) == len(names) and all(name.isidentifier() for name in names)
    assert all(option.help for option in target.options)
    assert all(isinstance(route, Route) for route in target.proofs())


def test_no_two_routes_have_one_name():
    names = [route.name for target in OWN for route in target.proofs()]
    assert len(set(names)) == len(names)
