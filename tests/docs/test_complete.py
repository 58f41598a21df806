"""Everything that users can name is on the documentation's site."""

import dataclasses
import importlib
import re
from pathlib import Path

import pytest
import repository

from opsmith.checks import all_checks
from opsmith.checks.report.failure_codes import catalogue
from opsmith.targets import all_targets
from opsmith.targets.exporting.artifact import Manifest

REPOSITORY = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?:py|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"^from (opsmith[\w.]*) import \(?([^()]*?)\)?$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    return set(re.findall(r"\{ #([\w.-]+) \}", text))


@pytest.fixture(scope="module")
def api(pages) -> set[str]:
    return {
        name
        for place, text in pages.items()
        if place.startswith("reference/api/")
        for name in anchors(text)
    }


@pytest.mark.parametrize(
    "module",
    [
        "opsmith",
        "opsmith.testing",
        "opsmith.checks",
        "opsmith.bench",
        "opsmith.targets",
        "opsmith.targets.exporting.lowering",
        "opsmith.kernels.adapters",
    ],
)
def test_every_public_name_is_on_the_site(api, module):
    names = importlib.import_module(module).__all__
    assert {f"{module}.{name}" for name in names} <= api


def test_every_public_name_stands_under_one_task():
    import api

    names = [name for under in api.tasks("opsmith").values() for name in under]
    assert sorted(names) == sorted(importlib.import_module("opsmith").__all__)


def test_whatever_a_page_imports_is_on_the_site(api, pages):
    imported = {
        f"{module}.{name.split(' as ')[0].strip()}"
        for place, text in pages.items()
        if not place.startswith("repository/")
        for code in FENCE.findall(text)
        for module, names in IMPORT.findall(code)
        for name in names.split(",")
        if name.strip()
    }
    assert "opsmith.checks.Failure" in imported
    assert {name for name in imported if not is_module(name)} <= api


def is_module(name: str) -> bool:
    path = REPOSITORY.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def test_every_method_that_an_operator_has_in_a_page_is_on_the_site(api, pages):
    called = {
        name
        for place, text in pages.items()
        if not place.startswith("repository/")
        for code in FENCE.findall(text)
        for name in re.findall(r"\.(register_\w+)\(", code)
    }
    assert "register_kernel" in called
    assert {name for name in called if f"opsmith.DefinedOperator.{name}" not in api} == set()


def test_every_command_and_option_is_on_the_site(cli, pages):
    page = pages["reference/cli.md"]
    commands = re.findall(r"^\W*([a-z]+)  ", cli("--help").stdout.partition("Commands")[2], re.M)
    assert len(commands) > 10
    for command in commands:
        assert f"## opsmith {command}\n" in page
        section = page.partition(f"## opsmith {command}\n")[2].partition("\n## ")[0]
        # Before the table a help text may mention another command's options.
        options = set(re.findall(r"^\W*(--[a-z][a-z-]*)", cli(command, "--help").stdout, re.M))
        assert options - {"--help"} <= set(re.findall(r"--[a-z][a-z-]*", section)), command


def test_every_option_of_a_target_is_on_the_site(pages):
    page = pages["reference/cli.md"]
    for target in all_targets():
        section = page.partition(f"### With `--target {target.name}`\n")[2].partition("\n##")[0]
        for option in target.options:
            assert f"`--{option.name.replace('_', '-')}`" in section, (target.name, option.name)


def test_every_code_is_on_the_site(pages):
    page = pages["reference/failures.md"]
    assert set(re.findall(r"^### (OPS-[A-Z-]+)$", page, re.MULTILINE)) == set(catalogue())


@pytest.mark.parametrize("page", ["reference/checks.md", "explanation/limits.md"])
def test_what_each_check_finds_and_what_may_hide_behind_it_is_on_the_site(pages, page):
    text = pages[page].partition("## What is checked")[2] or pages[page]
    rows = re.findall(r"^\| (`[a-z].*?) \|", text, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    torchscript = {f"{name}-torchscript" for name in named if name.startswith("onnx-")}
    assert {check.name for check in all_checks()} <= named | torchscript
    assert named - {"-torchscript"} <= {check.name for check in all_checks()}


def test_whatever_a_kernel_of_the_gallery_uses_is_on_the_page_of_the_headers(pages):
    page = pages["reference/header.md"]
    used = {
        name
        for suffix in ("cpp", "cu", "h", "cuh")
        for path in (REPOSITORY / "gallery").rglob(f"*.{suffix}")
        for name in re.findall(r"opsmith::(\w+)", path.read_text())
    }
    assert {"Context", "Tensor", "launch"} <= used
    missing = {name for name in used if not re.search(rf"\b{name}\b", page)}
    assert missing == set()


def test_no_body_and_no_private_member_is_on_the_page_of_the_headers(pages):
    page = pages["reference/header.md"]
    listings = re.findall(r"^```cpp\n(namespace.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(listings) == 8
    for listing in listings:
        assert "return " not in listing.replace("// ", "")
        assert "private:" not in listing
        assert listing.count("{") == listing.count("}")


def test_every_field_of_a_manifest_is_on_the_site(pages):
    page = pages["reference/artifact.md"]
    for field in dataclasses.fields(Manifest):
        assert f"- `{field.name}`: " in page


def test_every_page_has_its_place_in_the_navigation(pages):
    navigation = (REPOSITORY / "properdocs.yml").read_text()
    listed = set(re.findall(r"[\w/.-]+\.md\b", navigation))
    assert {place for place in pages if not place.startswith("repository/")} <= listed
    assert listed <= set(pages)


def test_code_that_a_page_links_to_is_shown_whole(pages):
    source = (REPOSITORY / "gallery" / "bev_pool_v2" / "in_jax.py").read_text()
    assert source.rstrip() in pages["repository/gallery/bev_pool_v2/in_jax.py.md"]


@pytest.mark.long  # exports every operator; tests/docs/test_graphs.py draws one
def test_every_operator_of_the_gallery_is_shown_with_its_graph_and_its_speeds(gallery):
    for folder in (REPOSITORY / "gallery").iterdir():
        if (folder / "README.md").exists():
            section = gallery.partition(f"## {folder.name}\n")[2].partition("\n## ")[0]
            assert "├── schema" in section, folder.name
            assert '<svg class="graph"' in section, folder.name
    measured = (REPOSITORY / "docs/explanation/performance.md").read_text()
    speeds = re.findall(r"\| ([\d.–]+) × faster \|", repository.without_names(measured))
    assert len(speeds) > 5
    assert re.findall(r">([\d.–]+) ×</text>", gallery) == speeds
