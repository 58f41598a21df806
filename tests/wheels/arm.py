"""Call the gallery's operators, and such that gates record, on Arm, from wheels made for it.

``make arm`` runs this. Python, from Debian, and PyTorch, from PyPI, are those for Arm; they lie in
a folder of their own and run in QEMU's emulation. Nothing of them is installed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from gate_calls import prove
from test_gallery_wheel import CALL, GALLERY, MODULES
from wheel_samples import WITHOUT

from opsmith.wheels import build_wheel

#: The newest PyTorch whose wheel for Arm on PyPI runs without CUDA's libraries.
RELEASE = "2.10.0"
#: What PyTorch and the gallery need.
BESIDE = "filelock fsspec jaxtyping jinja2 networkx numpy sympy typing-extensions".split()
DEBIAN = ("python3-minimal", "libpython3-stdlib", "libgomp1", "libstdc++6")
PYTHON = "usr/bin/python3"


def main() -> None:
    """Make the wheels, and everything that they need on Arm; then call every operator."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="keeps what is downloaded, 200 MB")
    folder = parser.parse_args().folder.resolve()
    root = folder / "root"
    if not (root / PYTHON).exists():
        _debian(folder / "apt", root)
    version = _python(root, "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    site = folder / f"site-{version}"
    if not (site / "torch").exists():
        _pip(site, version, "--no-deps", f"torch=={RELEASE}")
        _pip(site, version, *BESIDE)

    def install(wheel: Path, ours: Path) -> None:
        _pip(ours, version, "--no-deps", "--upgrade", str(wheel))

    wheel = build_wheel(GALLERY, folder, platform="aarch64", gates=[RELEASE])
    install(wheel, folder / "gallery")
    text = WITHOUT + f"import sys; sys.argv[1:] = {MODULES!r}; sys.path.remove('')\n" + CALL
    text += "import platform; print(platform.machine(), torch.__version__)\n"
    text += "from gallery._opsmith.operators.dispatch.gates import gate_libraries\n"
    text += "print(gate_libraries.say())\n"

    def run(ours: Path, text: str) -> str:
        return _python(root, text, f"{ours}:{site}")

    print(run(folder / "gallery", text), end="")
    print(*prove(folder / "recorded", "aarch64", [RELEASE], install, run), sep="\n")


def _debian(apt: Path, root: Path) -> None:
    """Unpack Debian's Python for Arm, with a list of packages that is not this machine's."""
    for part in ("lists/partial", "cache/archives/partial"):
        (apt / part).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    own = {
        "APT::Architecture": "arm64",
        "APT::Architectures::": "arm64",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "1",
        "Dir::Cache": apt / "cache",
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
    }
    options = [f"-o{name}={value}" for name, value in own.items()]
    subprocess.run(["apt-get", "-qq", *options, "update"], check=True)
    wanted = ["install", "--download-only", "--yes", "--no-install-recommends", *DEBIAN]
    subprocess.run(["apt-get", "-qq", *options, *wanted], check=True)
    for package in (apt / "cache" / "archives").glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, root], check=True)


def _pip(target: Path, version: str, *what: str) -> None:
    """Install what is made for Arm, or for any machine, into a folder."""
    tag = version.replace(".", "")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={version}"]
    command += [f"--abi={abi}" for abi in (f"cp{tag}", "none")]
    command += [f"--platform={one}_aarch64" for one in ("manylinux_2_28", "manylinux2014")]
    command += ["--platform=any", "--target", str(target), *what]
    subprocess.run(command, check=True)


def _python(root: Path, text: str, path: str = "") -> str:
    """Run Python for Arm on some text, where no program is to be found."""
    emulator = shutil.which("qemu-aarch64")
    if emulator is None:
        raise SystemExit("qemu-aarch64 is missing: apt-get install qemu-user")
    command = [emulator, "-L", root, root / PYTHON, "-c", text]
    done = subprocess.run(
        command, env={"PYTHONPATH": path, "PATH": ""}, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}Python for Arm ended with {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
