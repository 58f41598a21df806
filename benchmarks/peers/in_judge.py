"""pygpubench's published exploits, as candidates of `opsmith judge`.

They attack a benchmark of CUDA kernels. Here `"cuda"` in them becomes `"cpu"`, and nothing else
changes. opsmith judges results, no times: an exploit that computes the right results and forges
times has nothing to deceive, and may be accepted.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import time
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
_CANDIDATE = """\
import torch
from gray_spec import gray
import {module} as exploit


@gray.register_kernel("cpu")
def kernel(x):
    out = torch.empty(x.shape[:2])
    exploit.kernel(out, x)
    return out
"""
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
    """Yield a line for each exploit: what it is after, the verdict, its reason, the seconds."""
    for path in exploits(folder):
        name = path.stem.removeprefix("submission_")
        aim = "control" if name in CONTROLS else "clock" if name in CLOCK else "results"
        place = folder / "judged" / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "gray_spec.py").write_text(_SPEC)
        text = path.read_text().replace('"cuda"', '"cpu"').replace("'cuda'", "'cpu'")
        (place / path.name).write_text(text)
        (place / "candidate.py").write_text(_CANDIDATE.format(module=path.stem))
        command = [sys.executable, "-m", "opsmith", "judge", "gray_spec.py"]
        command += ["--candidate", "candidate.py"]
        started = time.monotonic()
        done = subprocess.run(command, cwd=place, capture_output=True, text=True)
        seconds = round(time.monotonic() - started, 1)
        verdict = {0: "accepted", 1: "refused", 5: "undecided", 6: "not judged"}.get(
            done.returncode, f"exit code {done.returncode}"
        )
        (place / "said.txt").write_text(done.stdout + done.stderr)
        yield {"set": "exploits", "fault": name, "kind": aim, "opsmith": [verdict, seconds]}
