"""opsmith's headers, precompiled: when, for whom, and that nothing but the time tells."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from jaxtyping import Float
from torch import Tensor

from opsmith.kernels import Generated, KernelSource, Recipe, Unit, adapters, kernel_source
from opsmith.kernels.toolchain import cmake, precompiled, recipe, units
from opsmith.kernels.toolchain.compilers import find_toolset
from opsmith.kernels.toolchain.object_cache import included_by
from opsmith.kernels.toolchain.precompiled import first_header, folder
from opsmith.signature import signature_of


def half(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]: ...


KERNEL = """\
// Comments are nothing.
#include "half.h"

#include <opsmith/kernel.h>

template <typename T>
void half(const opsmith::Context&, const precompiled_test::half_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = a.x[i] / 2;
}
OPSMITH_KERNEL(precompiled_test, half, cpu, float)
"""


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own, and flags with which precompiling takes a moment less."""
    monkeypatch.setenv("OPSMITH_CACHE", str(tmp_path / "cache"))
    # A precompiled header that is found and does not fit fails the build.
    monkeypatch.setenv("CXXFLAGS", "-O0 -Winvalid-pch -Werror=invalid-pch")


def kernel(folder: Path, text: str = KERNEL) -> KernelSource:
    folder.mkdir(exist_ok=True)
    (folder / "half.cpp").write_text(text)
    return kernel_source(
        signature_of(half, "precompiled_test::half"), "cpu", folder / "half.cpp", strided=True
    )


def made() -> list[Path]:
    return sorted(folder().glob("*/*.gch"))


@pytest.mark.slow
def test_a_library_is_the_same_with_and_without_and_knows_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompiled, "AFTER", 1)
    first = kernel(tmp_path / "source").build()
    assert not made(), "the kernel and its adapter alone"
    content, knows = first.read_bytes(), included_by(first)
    shutil.rmtree(tmp_path / "cache" / "libraries")
    shutil.rmtree(tmp_path / "cache" / "objects")
    second = kernel(tmp_path / "source").build()
    assert len(made()) == 2, "the adapter is compiled with another flag"
    assert second.read_bytes() == content
    assert included_by(second) == knows
    # Show that a build reads these files: if it read the headers alone, it would not complain.
    for there in made():
        there.write_bytes(b"not what GCC writes")
    with pytest.raises(recipe.BuildError, match=r"kernel\.h\.gch"):
        kernel(tmp_path / "source", KERNEL + "// another\n").build()


@pytest.mark.slow
def test_a_header_of_opsmith_that_changes_is_precompiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompiled, "AFTER", 0)
    theirs = shutil.copytree(units.INCLUDE, tmp_path / "theirs")
    for module in (units, recipe, cmake):
        monkeypatch.setattr(module, "INCLUDE", theirs)
    (tmp_path / "half.cpp").write_text(KERNEL.replace("/ 2", "/ TWO"))
    files = adapters.kernel_files(signature_of(half, "precompiled_test::half"))
    header = theirs / "opsmith" / "kernel.h"
    before = header.read_text()

    def built(two: int) -> Path:
        header.write_text(f"{before}#define TWO {two}\n")
        return Recipe("half", [tmp_path / "half.cpp"], files, torch="none").build()

    first, second = built(2), built(3)
    assert first.read_bytes() != second.read_bytes()
    assert len(made()) == 2
    assert built(2) == first


@pytest.mark.slow
def test_who_brings_a_header_of_opsmith_has_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompiled, "AFTER", 0)
    (tmp_path / "half.cpp").write_text(KERNEL.replace("/ 2", "/ TWO"))
    abi = (units.INCLUDE / "opsmith" / "abi.h").read_text()
    files = adapters.kernel_files(signature_of(half, "precompiled_test::half"))
    own = {**files, "opsmith/abi.h": f"{abi}#define TWO 2\n"}
    assert Recipe("own", [tmp_path / "half.cpp"], own, torch="none").build().exists()
    assert not made()


@pytest.mark.slow
def test_one_serves_sources_with_other_include_folders_that_have_no_such_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompiled, "AFTER", 0)
    (tmp_path / "a.cpp").write_text("#include <opsmith/kernel.h>\n")
    tools = find_toolset("a test")

    def given(*names: str) -> precompiled.Precompiled | None:
        theirs = tmp_path / "-".join(name.replace("/", "-") for name in names)
        for name in names:
            (theirs / name).parent.mkdir(parents=True, exist_ok=True)
            (theirs / name).touch()
        unit = Unit("a", tmp_path / "a.cpp", Generated.of(None), include_dirs=(theirs,))
        return precompiled.precompiled(unit, tools)

    assert given() is not None
    assert given("own.h", "bits/own.h", "opsmith/own.h") is not None
    assert given("atomic") is None
    assert given("bits/move.h") is None
    assert given("include") is not None
    assert len(made()) == 1


GENERATED = {
    "half.h": "// Generated.\n#pragma once\n\n#include <opsmith/detail/args.h>\n",
    "half_check.h": '#pragma once\n\n#include "half.h"\n',
    "loop.h": '#include "loop.h"\n',
}


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("#include <opsmith/kernel.h>\n", "opsmith/kernel.h"),
        ("#include <opsmith/harness.h>\n", "opsmith/harness.h"),
        ('/* a\n b */ // c\n\n#include "half.h"\n', "opsmith/kernel.h"),
        ('#include "half_check.h"\n#define A\n', "opsmith/kernel.h"),
        ('#define OPSMITH_SOMETHING\n#include "half.h"\n', None),
        ('#include <cmath>\n#include "half.h"\n', None),
        ('int early;\n#include "half.h"\n', None),
        ('/* a */ int early; /* b */\n#include "half.h"\n', None),
        ('/**/ // c\n/* * */#include "half.h"\n', "opsmith/kernel.h"),
        ('// c \\\n#include "half.h"\n', None),
        ('#if 0\n#include "half.h"\n#endif\n', None),
        ('#include "theirs.h"\n', None),
        ('#include "loop.h"\n', None),
        ("// #include <opsmith/kernel.h>\n", None),
        ("", None),
    ],
)
def test_the_header_that_is_precompiled_is_what_a_source_begins_with(
    text: str, header: str | None
) -> None:
    assert first_header(text, GENERATED) == header


def test_a_unit_may_begin_with_a_header_of_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompiled, "AFTER", 0)
    tools = find_toolset("a test")
    theirs = tmp_path / "theirs"
    (theirs / "emulated").mkdir(parents=True)
    header = theirs / "emulated" / "first.h"

    def given(text: str, *shadows: str) -> precompiled.Precompiled | None:
        beside = tmp_path / f"beside{len(shadows)}"
        beside.mkdir(exist_ok=True)
        for name in ("own.h", *shadows):
            (beside / name).touch()
        (beside / "a.cpp").write_text(text)
        unit = Unit("a", beside / "a.cpp", Generated.of(None), include_dirs=(theirs, beside))
        return precompiled.precompiled(unit, tools)

    header.write_text("#define TWO 2\n")
    first = given("#include <emulated/first.h>\n")
    assert first is not None
    assert header in first.files
    assert given("#include <emulated/third.h>\n") is None
    assert given("#include <emulated/first.h>\n", "first.h") is None, "in quotes it is another"
    assert len(made()) == 1, "further folders share it"
    header.write_text("#define TWO 3\n")
    assert given("#include <emulated/first.h>\n") not in (None, first)


def test_flags_that_come_first_and_other_compilers_go_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompiled, "AFTER", 0)
    (tmp_path / "a.cpp").write_text("#include <opsmith/kernel.h>\n")
    tools = find_toolset("a test")

    def given(**options) -> bool:
        unit = Unit("a", tmp_path / "a.cpp", Generated.of(None), **options)
        return precompiled._header_of(unit, tools) is not None

    assert given()
    assert given(flags=("-g",))
    assert not given(flags=("-include", "mine.h"))
    assert not given(full_torch=True)
    assert not given(compiler=tools.compiler)


def test_for_a_few_sets_of_flags_only_is_one_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompiled, "MOST", 2)
    for number in range(3):
        place = folder() / str(number)
        place.mkdir(parents=True)
        for name in ("kernel.h", "kernel.h.gch", "included.json"):
            (place / name).write_text('{"included": [], "files": []}')
        moment = time.time() - 60 * number
        os.utime(place / "kernel.h.gch", (moment, moment))
    precompiled._keep_few()
    assert [path.parent.name for path in made()] == ["0", "1"]
    assert precompiled._find(folder() / "2") is None
    assert (folder() / "2" / "kernel.h").is_file(), "who is about to include it reads its text"


@pytest.mark.slow
def test_what_cannot_be_precompiled_is_compiled_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompiled, "AFTER", 0)
    compiler = tmp_path / "g++"
    real = shutil.which("g++")
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *c++-header*.gch) exit 1; esac\nexec {real} "$@"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert kernel(tmp_path).build().is_file()
    assert not made()
