"""Load libraries that were built with this PyTorch in environments with others, and check them.

python tests/abi.py --versions 2.10.0 2.14.1

For each version an environment is made beside this one (``.abi/<version>``, kept for the next run;
PyPI's builds of PyTorch take gigabytes). The gallery's operators are built here, once. There, the
core of ``opsmith check`` runs on the same libraries; that nothing was built is looked at, too, and
that every private name that `opsmith.compat` uses is there.
Then wheels with gates for all versions are installed there, compiled by this machine's compiler and
by Zig's, and such without.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "wheels")]

from gate_calls import prove as prove_gates  # noqa: E402

OPERATORS = tuple(
    ROOT / "gallery" / name / f"{name}.py"
    for name in ("identity_conv", "my_add", "bev_pool_v2", "deform_conv2d")
)
#: What runs the kernels through PyTorch alone, and builds no library.
CORE = (
    "build",
    "dispatch",
    "reference",
    "layouts",
    "fake",
    "mutation",
    "gradient",
    "validation",
    "compile",
    "export",
)


@dataclass
class Proof:
    """What came of one version.

    Attributes:
        version: PyTorch's, as it says itself.
        libraries: how many were loaded that were built here.
        rows: how many passed, failed, and did not apply.
        gates: what a wheel's package says of its calls, with gates for this version and without.
        problems: why it is no proof; none where it is one.
    """

    version: str
    libraries: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    gates: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {status}" for status, count in self.rows.items())
        said = f"PyTorch {self.version}: {self.libraries} libraries loaded as built; {counts}"
        return "\n  ".join([said, *self.gates, *self.problems])


def libraries(cache: Path) -> set[str]:
    """The operators' libraries in a cache."""
    found = {str(path) for path in (cache / "libraries").rglob("*.so")}
    # The gates of autograd bind to one PyTorch, and are built for each; calls work without them.
    gates = {"libautograd_gate.so", "librecorder.so"}
    return {path for path in found if Path(path).name not in gates}


def environment(version: str, folder: Path) -> Path:
    """The Python of an environment with a version of PyTorch, made where it is not there yet.

    Raises:
        CalledProcessError: pip cannot make it; it said why.
    """
    python = folder / version / "bin" / "python"
    stamp = folder / version / "installed"
    if not stamp.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / version)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, f"torch=={version}", "-e", f"{ROOT}[check,onnx]"], check=True)
        stamp.touch()
    return python


def opsmith(python: Path | str, cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run opsmith's command line in an environment."""
    return subprocess.run(
        [str(python), "-m", "opsmith", *words],
        cwd=ROOT,
        env={**os.environ, "OPSMITH_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        text=True,
    )


def prove(version: str, python: Path, cache: Path, built: set[str]) -> Proof:
    """Run the core of the check in an environment, on what was built here."""
    asked = "import torch; print(torch.__version__)"
    said = subprocess.run(
        [str(python), "-c", asked], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    proof = Proof(said, libraries=len(built))
    if said.partition("+")[0] != version:
        proof.problems.append(f"asked for PyTorch {version}")
    words = ["check", *map(str, OPERATORS), "--device", "cpu", "--check", ",".join(CORE)]
    run = opsmith(python, cache, *words, "--examples", "12", "--seconds", "60", "--json")
    try:
        report = json.loads(run.stdout)
    except ValueError:
        proof.problems.append(f"opsmith check ended with {run.returncode}: {run.stdout[-2000:]}")
        return proof
    for row in report["rows"]:
        proof.rows[row["status"]] = proof.rows.get(row["status"], 0) + 1
        if row["status"] in ("failed", "cut short"):
            proof.problems.append(f"{row['operator']} {row['check']}: {row['message']}")
    if not proof.rows.get("passed"):
        proof.problems.append("no row passed")
    for path in sorted(libraries(cache) - built):
        proof.problems.append(f"was built again: {path}")
    return proof


def missing_names(python: Path | str) -> list[str]:
    """The private names that a version of PyTorch lacks, each with what is missed without it."""
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "pytest"], check=True)
    words = ["-q", "--noconftest", "-c", os.devnull, "-p", "no:cacheprovider", "-k", "is_there"]
    done = subprocess.run(
        [str(python), "-m", "pytest", *words, str(ROOT / "tests" / "test_private_names.py")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if "Failed:" in line]
    said = [line.partition("Failed:")[2].strip() for line in lines]
    return said if said or done.returncode == 0 else [done.stdout[-2000:]]


def gates(versions: Sequence[str], python: Path, folder: Path) -> list[str]:
    """Call operators from wheels with gates for all versions, and from those that have none for it.

    Raises:
        AssertionError: calls do not pass by a gate, or give something else.
        CalledProcessError: pip cannot install one; it said why.
    """

    def install(wheel: Path, site: Path) -> None:
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--upgrade", "--target", site, wheel]
        subprocess.run(command, check=True)

    def run(site: Path, text: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(site), "PATH": ""}
        done = subprocess.run(
            [python, "-c", text], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert done.returncode == 0, f"Python ended with {done.returncode}: {done.stdout}"
        return done.stdout

    return [
        f"wheel for {kind}: {said}"
        for kind in ("native", platform.machine())
        for said in prove_gates(folder, kind, versions, install, run)
    ]


def main() -> int:
    """Print what was proved; 1 where something was not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--versions", nargs="+", default=["2.10.0", "2.14.1"])
    parser.add_argument("--folder", type=Path, default=ROOT / ".abi")
    options = parser.parse_args()
    cache = options.folder / "cache"
    made = opsmith(sys.executable, cache, "build", *map(str, OPERATORS))
    print(made.stdout, end="", flush=True)
    if made.returncode != 0:
        return 1
    built = libraries(cache)
    proofs = []
    for version in options.versions:
        python = environment(version, options.folder)
        proofs.append(prove(version, python, cache, built))
        proofs[-1].problems += missing_names(python)
        try:
            wheels = options.folder / "wheels" / version
            proofs[-1].gates += gates(options.versions, python, wheels)
        except (AssertionError, subprocess.CalledProcessError) as error:
            proofs[-1].problems.append(f"gates: {error}")
        print(proofs[-1], flush=True)
    return 1 if any(proof.problems for proof in proofs) else 0


if __name__ == "__main__":
    sys.exit(main())
