"""Build opsmith's own wheel for a platform, with what is otherwise compiled once on a machine.

    python tests/wheels/own_wheel.py --out dist --gates 2.10.0 --gates 2.14.1

The wheel has gates for this PyTorch and for those that are named, the checks' harness, the
arithmetic of the row `exact`, and nanobind's extension for this Python.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

from opsmith.checks.numerics.exact import arrays
from opsmith.kernels.libraries import prebuilt
from opsmith.kernels.toolchain import released
from opsmith.system.temporarily import environment
from opsmith.targets.python import library
from opsmith.wheels.building import _audited
from opsmith.wheels.gates import build_gates, find_headers
from opsmith.wheels.platforms import Platform, compiling_for, find_platform

ROOT = Path(__file__).parents[2]
_SCRIPT = """
import sys
from setuptools import build_meta
options = {"--build-option": ["--plat-name", sys.argv[2]]}
print(build_meta.build_wheel(sys.argv[1], options))
"""


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """The sources in a folder that goes: no built file lies where git or an editor sees it."""
    with tempfile.TemporaryDirectory() as folder:
        for package in ("opsmith", "emulators"):
            ignore = shutil.ignore_patterns("__pycache__", prebuilt.FOLDER)
            shutil.copytree(ROOT / package, Path(folder, package), ignore=ignore)
        for name in ("pyproject.toml", "pytest_opsmith.py", "README.md", "LICENSE"):
            shutil.copy2(ROOT / name, folder)
        yield Path(folder)


def fill(folder: Path, kind: Platform, gates: Sequence[str]) -> None:
    """Build what a release brings.

    Args:
        folder: the folder of the package `opsmith` to fill.
        kind: the platform; its processors are of this machine's family.
        gates: the releases of PyTorch for which there are gates, besides the installed one.
    """
    entries, files = build_gates([find_headers(one) for one in gates], kind, print)
    files[f"{prebuilt.FOLDER}/{prebuilt.LIST}"] = json.dumps({"gates": entries}, indent=1).encode()
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    asked: list[Path] = []

    def none_there(name: str, folders: Sequence[Path], facts: object, compiler: object) -> None:
        asked.append(released.place(name, folders, facts))

    with tempfile.TemporaryDirectory() as cache:
        with (
            environment({"OPSMITH_CACHE": cache}),
            compiling_for(kind, "generic"),
            patch.object(released, "find", none_there),
        ):
            # The package has a function of the module's name.
            importlib.import_module("opsmith.checks.harness.build").program_of({})
            arrays.library()
            library.build_extension(shared=False)
        for place in asked:
            (built,) = (path for path in Path(cache).glob(f"*/*/**/{place.name}"))
            target = folder / prebuilt.FOLDER / "built" / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(built, target)


def build(out: Path, platform: str, gates: Sequence[str] = ()) -> Path:
    """Build the wheel, and return its path."""
    kind = find_platform(platform)
    # It is built from a folder of its own, which a relative path would mean.
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with copied() as copy, tempfile.TemporaryDirectory() as first:
        fill(copy / "opsmith", kind, gates)
        oldest = _audited(_wheel(copy, Path(first), f"linux_{kind.machine}"))
        return _wheel(copy, out, oldest)


def _wheel(copy: Path, out: Path, tag: str) -> Path:
    command = [sys.executable, "-c", _SCRIPT, str(out), tag]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return out / done.stdout.splitlines()[-1]


def main() -> None:
    """Build the wheel, and print its path."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("dist"))
    parser.add_argument("--platform", default="native")
    parser.add_argument("--gates", action="append", default=[], metavar="VERSION")
    given = parser.parse_args()
    print(build(given.out, given.platform, given.gates))


if __name__ == "__main__":
    main()
