"""pygpubench's published exploits, as candidates of `opsmith judge`.

They attack a benchmark of CUDA kernels; here they run on the CPU. opsmith judges results, no times:
an exploit that computes the right results and forges times has nothing to deceive, and may be
accepted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VERSION = "0.0.3"
_SPEC = """\
import opsmith
import torch
from jaxtyping import Float32
from torch import Tensor


@opsmith.op("peers::gray")
def gray(x: Float32[Tensor, "H W 3"]) -> Float32[Tensor, "H W"]:
    return torch.sum(x * torch.tensor([0.2989, 0.5870, 0.1140]), dim=-1)
"""
#: Behind an exploit's own text.
_REGISTERS = """

import torch as _torch
from gray_spec import gray as _gray

_exploit = kernel


@_gray.register_kernel("cpu")
def _registered(x):
    out = _torch.empty(x.shape[:2])
    _exploit(out, x)
    return out
"""
#: They run on the CPU; and not slowly on purpose, as only a forged time would show.
_CHANGED = {'"cuda"': '"cpu"', "'cuda'": "'cpu'", "(2048, 2048)": "(16, 16)"}
#: It looks for pygpubench in its own process, or for a GPU, and raises an error without.
_GIVES_UP = ("OPS-JUDGE-IMPORT", "not compiled with CUDA")
#: What each is after: what comes back as a result, the clock, or a control without any exploit.
CLOCK = (
    "event_array",
    "file_struct",
    "function_detour",
    "got_patch",
    "pipe_interpose",
    "proc_mem_bypass",
    "ptrace",
    "replace_torch",
    "seccomp_trap",
    "test_canary_direct",
    "test_canary_make_writeable",
    "warmup",
)
CONTROLS = ("correct", "wrong")


def exploits(folder: Path) -> list[Path]:
    """Download the source distribution, and return its exploits."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"pygpubench-{VERSION}.tar.gz"
    if not archive.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
        command += ["--ignore-requires-python", "--no-binary", ":all:", f"pygpubench=={VERSION}"]
        subprocess.run(command, check=True)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    return sorted((folder / f"pygpubench-{VERSION}" / "exploits").glob("submission_*.py"))


def results(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a line for each exploit: its aim, the verdict, the code, the seconds."""
    candidates = folder / "candidates"
    candidates.mkdir(parents=True, exist_ok=True)
    (folder / "gray_spec.py").write_text(_SPEC)
    names = []
    for path in exploits(folder):
        text = path.read_text()
        for old, new in _CHANGED.items():
            text = text.replace(old, new)
        names.append(path.stem.removeprefix("submission_"))
        (candidates / f"{names[-1]}.py").write_text(text + _REGISTERS)
    command = [
        sys.executable,
        "-m",
        "opsmith",
        "judge",
        "gray_spec.py",
        "--candidates",
        "candidates",
    ]
    done = subprocess.run([*command, "--first"], cwd=folder, capture_output=True, text=True)
    (folder / "said.txt").write_text(done.stdout + done.stderr)
    yield from lines_of(names, done.stdout)


def lines_of(names: list[str], said: str) -> Iterator[dict[str, Any]]:
    """Yield the line of each exploit, from what the judge printed."""
    verdicts = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    by_name = {Path(one["candidate"]).stem: one for one in verdicts}
    for name in names:
        one = by_name[name]
        failed = [row for row in one["verdict"]["rows"] if row["status"] == "failed"]
        words = f"{failed[0]['code']}: {failed[0]['message']}" if failed else ""
        outcome = "gives up" if any(sign in words for sign in _GIVES_UP) else one["outcome"]
        aim = "control" if name in CONTROLS else "clock" if name in CLOCK else "results"
        told = [outcome, words.partition(":")[0], round(one["seconds"], 1)]
        yield {"set": "exploits", "fault": name, "kind": aim, "opsmith": told}
