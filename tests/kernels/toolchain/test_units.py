"""Objects: what is compiled once, whose libraries it is linked into, and when it is compiled again.

Compilations are counted by a compiler that writes down what it is given.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import Float, Float32
from torch import Tensor

from opsmith.errors import BuildError
from opsmith.kernels import Generated, KernelSource, Recipe, Unit, kernel_source
from opsmith.kernels.languages.cpp import torch_adapter
from opsmith.kernels.toolchain import recipe, units
from opsmith.signature import signature_of

KERNEL = '#include "amount.h"\nextern "C" int amount() { return AMOUNT; }\n'
ADAPTER = 'extern "C" int amount();\nextern "C" EXPORTED int NAME() { return amount(); }\n'
EXPORTED = '__attribute__((visibility("default")))'


class Compiler:
    """A compiler that writes down the sources it compiles, and does `more` before it begins."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "compiled"
        self.path = folder / "g++"
        self.does("")

    def does(self, more: str) -> None:
        real = shutil.which("g++")
        self.path.write_text(f"""#!/bin/sh
case "$*" in *" -c "*)
  for source; do :; done
  echo "$source" >> {self.log}
  {more}
esac
exec {real} "$@"
""")
        self.path.chmod(0o755)

    def compiled(self) -> list[str]:
        """The file names of what was compiled since this was asked last."""
        if not self.log.exists():
            return []
        names = [Path(line).name for line in self.log.read_text().splitlines()]
        self.log.unlink()
        return sorted(names)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    folder = tmp_path / "compiler"
    folder.mkdir()
    made = Compiler(folder)
    monkeypatch.setenv("CXX", str(made.path))
    monkeypatch.setenv("OPSMITH_CACHE", str(tmp_path / "cache"))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernel.cpp").write_text(KERNEL)
    (tmp_path / "amount.h").write_text("#define AMOUNT 1\n")
    return tmp_path


def library(folder: Path, name: str, **options) -> Path:
    """A kernel and the adapter of a runtime, as one library."""
    unit = Unit("kernel", folder / "kernel.cpp", Generated.of(None), **options)
    text = ADAPTER.replace("NAME", name).replace("EXPORTED", EXPORTED)
    return Recipe(name, objects=[unit], generated={f"{name}.cpp": text}, torch="none").build()


def value(path: Path, name: str) -> int:
    return int(ctypes.CDLL(str(path))[name]())


def test_a_kernel_is_compiled_once_for_all_runtimes(folder: Path, compiler: Compiler) -> None:
    assert value(library(folder, "one"), "one") == 1
    assert compiler.compiled() == ["kernel.cpp", "one.cpp"]
    assert value(library(folder, "two"), "two") == 1
    assert compiler.compiled() == ["two.cpp"]
    library(folder, "one")
    assert compiler.compiled() == []


def test_an_included_file_that_changes_is_compiled_into_every_runtime(
    folder: Path, compiler: Compiler
) -> None:
    before = library(folder, "one"), library(folder, "two")
    compiler.compiled()
    (folder / "amount.h").write_text("#define AMOUNT 2\n")
    after = library(folder, "one"), library(folder, "two")
    # Adapters include nothing of the user's.
    assert compiler.compiled() == ["kernel.cpp"]
    assert (value(after[0], "one"), value(after[1], "two")) == (2, 2)
    (folder / "amount.h").write_text("#define AMOUNT 1\n")
    assert (library(folder, "one"), library(folder, "two")) == before
    assert compiler.compiled() == []


def test_a_kernel_that_changes_leaves_its_adapters_compiled(
    folder: Path, compiler: Compiler
) -> None:
    library(folder, "one")
    compiler.compiled()
    (folder / "kernel.cpp").write_text(KERNEL.replace("AMOUNT;", "3 * AMOUNT;"))
    assert value(library(folder, "one"), "one") == 3
    assert compiler.compiled() == ["kernel.cpp"]


def test_other_flags_are_another_object(folder: Path, compiler: Compiler) -> None:
    (folder / "kernel.cpp").write_text('extern "C" int amount() { return AMOUNT; }\n')
    for number, options in enumerate(
        ({"flags": ("-DAMOUNT=5",)}, {"defines": ("AMOUNT=6",)}, {"flags": ("-DAMOUNT=7", "-g")})
    ):
        assert value(library(folder, f"flags{number}", **options), f"flags{number}") == 5 + number
    assert compiler.compiled().count("kernel.cpp") == 3


def test_of_an_inline_function_the_kernels_own_is_linked(folder: Path, compiler: Compiler) -> None:
    # One that was compiled for a sanitizer must not give way to an adapter's that was not.
    shared = "inline int which() { return WHICH; }\n"
    (folder / "which.h").write_text(shared)
    (folder / "kernel.cpp").write_text(
        '#include "which.h"\nint (*kept)() = &which;\nextern "C" int amount() { return kept(); }\n'
    )
    unit = Unit("kernel", folder / "kernel.cpp", Generated.of(None), defines=("WHICH=1",))
    adapter = f'#include "which.h"\nint (*mine)() = &which;\nextern "C" {EXPORTED} int inlined() '
    path = Recipe(
        "inlined",
        objects=[unit],
        generated={"inlined.cpp": adapter + "{ return mine(); }\n"},
        include_dirs=[folder],
        defines=["WHICH=2"],
        torch="none",
    ).build()
    assert value(path, "inlined") == 1


def building(folder: Path, name: str, **options: Any) -> subprocess.Popen[str]:
    """Start a process that builds what `library` does, and prints its path."""
    text = ADAPTER.replace("NAME", name).replace("EXPORTED", EXPORTED)
    script = f"""
from pathlib import Path
from opsmith.kernels import Generated, Recipe, Unit
unit = Unit("kernel", Path({str(folder)!r}) / "kernel.cpp", Generated.of(None))
generated = {{"{name}.cpp": {text!r}}}
print(Recipe({name!r}, objects=[unit], generated=generated, torch="none").build())
"""
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, **options
    )


@pytest.mark.slow
def test_two_processes_compile_a_kernel_once(folder: Path, compiler: Compiler) -> None:
    compiler.does("sleep 1")
    processes = [building(folder, name) for name in ("one", "two")]
    paths = [process.communicate(timeout=300)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert compiler.compiled() == ["kernel.cpp", "one.cpp", "two.cpp"]
    assert [value(Path(path), name) for path, name in zip(paths, ("one", "two"), strict=True)] == [
        1,
        1,
    ]


def test_an_interrupted_compilation_leaves_nothing_behind(folder: Path, compiler: Compiler) -> None:
    # It is ended in the middle, with half an object written.
    compiler.does(f'echo half > "$(pwd)/half.o"; touch {folder}/began; sleep 60')
    process = building(folder, "one", stderr=subprocess.DEVNULL, start_new_session=True)
    while not (folder / "began").exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    cache = Path(os.environ["OPSMITH_CACHE"])
    assert not [*cache.rglob("*.o"), *cache.rglob("*.so"), *cache.rglob("variants.json")]
    compiler.does("")
    compiler.compiled()
    assert value(library(folder, "one"), "one") == 1
    assert compiler.compiled() == ["kernel.cpp", "one.cpp"]


def test_what_does_not_link_is_not_kept(folder: Path, compiler: Compiler) -> None:
    (folder / "kernel.cpp").write_text("int nothing() { return 0; }\n")
    with pytest.raises(BuildError, match=r"one: .*kernel\.cpp did not link:"):
        library(folder, "one")
    cache = Path(os.environ["OPSMITH_CACHE"])
    assert not [*cache.rglob("*.o"), *cache.rglob("variants.json")]


def test_a_damaged_object_is_compiled_again(folder: Path, compiler: Compiler) -> None:
    library(folder, "one")
    compiler.compiled()
    (kernel,) = Path(os.environ["OPSMITH_CACHE"]).rglob("kernel.o")
    kernel.write_bytes(b"not an object")
    assert value(library(folder, "two"), "two") == 1
    assert compiler.compiled() == ["kernel.cpp", "two.cpp"]


def thrice(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]: ...


def fourfold(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]: ...


def fourfold_again(x: Float32[Tensor, "N"], by: int = 4) -> Float32[Tensor, "N"]: ...


THRICE = """\
#include <opsmith/kernel.h>
#include "thrice.h"
#include "amount.h"

template <typename T>
void thrice(const opsmith::Context&, const kernels_units::thrice_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = AMOUNT * a.x[i];
}
OPSMITH_KERNEL(kernels_units, thrice, cpu, float)
"""


@pytest.mark.slow
def test_an_operators_kernel_is_compiled_once_and_its_headers_are_watched(
    folder: Path, compiler: Compiler
) -> None:
    (folder / "thrice.cpp").write_text(THRICE)
    source = kernel_source(
        signature_of(thrice, "kernels_units::thrice"), "cpu", folder / "thrice.cpp", flags=("-O0",)
    )

    def other() -> Path:
        return source.build_beside(
            "thrice_at_load",
            torch_adapter(source),
            defines=("OPSMITH_STATIC_REGISTRATION",),
            torch="stable",
            what="thrice at load",
        )

    source.build()
    assert compiler.compiled() == ["thrice.cpp", "thrice_torch_cpu.cpp"]
    first = other()
    assert compiler.compiled() == ["thrice_torch_cpu.cpp"]
    assert set(source.files()) == {folder / "thrice.cpp", folder / "amount.h"}
    (folder / "amount.h").write_text("#define AMOUNT 3\n")
    assert source.built() is None
    source.build()
    assert other() != first
    assert compiler.compiled() == ["thrice.cpp"]


TWO = """
#include <opsmith/kernel.h>
#include "fourfold.h"
#include "thrice.h"

void scale(float* to, const float* from, int64_t count, float by) {
  for (int64_t i = 0; i < count; ++i) to[i] = by * from[i];
}
template <typename T>
void thrice(const opsmith::Context&, const kernels_units::thrice_args<T>& a) {
  scale(a.out.data(), a.x.data(), a.N, 3);
}
void fourfold(const opsmith::Context&, const kernels_units::fourfold_args& a) {
  scale(a.out.data(), a.x.data(), a.N, 4);
}
OPSMITH_KERNEL(kernels_units, thrice, cpu, float)
OPSMITH_KERNEL(kernels_units, fourfold, cpu)
"""


@pytest.mark.slow
def test_a_source_of_two_operators_is_compiled_once(folder: Path, compiler: Compiler) -> None:
    (folder / "two.cpp").write_text(TWO)
    sources: dict[str, KernelSource] = {}

    def declare(name: str, function: Callable[..., Any], namespace: str = "kernels_units") -> None:
        sources[name] = kernel_source(
            signature_of(function, f"{namespace}::{function.__name__}"),
            "cpu",
            folder / "two.cpp",
            flags=("-O0",),
            others=lambda: [source for other, source in sources.items() if other != name],
        )

    declare("thrice", thrice)
    declare("fourfold", fourfold)
    first, second = (source.build() for source in sources.values())
    assert first != second
    built = ["fourfold_torch_cpu.cpp", "thrice_torch_cpu.cpp", "two.cpp"]
    assert sorted(compiler.compiled()) == built
    # A declaration that changes is in the headers of both.
    fourfold_again.__name__ = "fourfold"
    declare("fourfold", fourfold_again)
    assert sources["thrice"].built() is None
    # An operator of the same name in another namespace has no header here.
    declare("thrice", fourfold, "elsewhere")
    assert sources["fourfold"].signatures == [sources["fourfold"].signature]


@pytest.mark.slow
def test_another_installations_objects_are_not_taken(
    folder: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of two that share a cache, one may be upgraded, and each knows only its own headers.
    (folder / "thrice.cpp").write_text(THRICE)
    source = kernel_source(
        signature_of(thrice, "kernels_units::thrice"), "cpu", folder / "thrice.cpp", flags=("-O0",)
    )
    theirs = shutil.copytree(units.INCLUDE, folder / "theirs")
    with monkeypatch.context() as there:
        for module in (units, recipe):
            there.setattr(module, "INCLUDE", theirs)
        source.build()
    compiler.compiled()
    assert source.built() is None
    source.build()
    assert compiler.compiled() == ["thrice.cpp", "thrice_torch_cpu.cpp"]
    assert set(source.files()) == {folder / "thrice.cpp", folder / "amount.h"}
