"""Draft declarations of operators that exist, and check them unedited.

    python tests/adoption.py                 ATen's, and torchvision's where it can be imported
    python tests/adoption.py conv sort       operators whose names contain "conv" or "sort"

Each name goes through the commands that a user types: `opsmith adopt NAME --out FILE.py` and
`opsmith check FILE.py --quick`. Exits with 1 where fewer than five of six drafts pass, or where a
draft is refused without a word about what to fill in.
"""

import argparse
import importlib
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

#: Pooling, indexing, sorting, convolution, several results, lists, optional arguments, and the
#: usual rest, by the names that PyTorch knows.
ATEN = (
    "asinh",
    "add.Tensor",
    "max_pool2d_with_indices",
    "avg_pool2d",
    "_adaptive_avg_pool2d",
    "gather",
    "index_select",
    "scatter_add",
    "embedding",
    "sort",
    "topk",
    "median.dim",
    "conv2d",
    "conv_transpose2d.input",
    "convolution",
    "linear",
    "bmm",
    "addmm",
    "cat",
    "stack",
    "where.self",
    "clamp",
    "layer_norm",
    "native_group_norm",
    "sum.dim_IntList",
    "softmax.int",
    "nonzero",
    "grid_sampler",
    "upsample_bilinear2d",
    "nll_loss",
    "searchsorted.Tensor",
    "roll",
    "index.Tensor",
    "cumsum",
    "var_mean.correction",
)
#: With an example where none is found by trying.
TORCHVISION = {
    "nms": None,
    "roi_align": None,
    "roi_pool": None,
    "ps_roi_align": None,
    "ps_roi_pool": None,
    "deform_conv2d": (
        "torch.rand(1, 2, 5, 5), torch.rand(3, 2, 3, 3), torch.zeros(1, 18, 3, 3), "
        "torch.ones(1, 9, 3, 3), torch.zeros(3), 1, 1, 0, 0, 1, 1, 1, 1, True"
    ),
}
SECONDS = 300
PASSED, FAILED, REFUSED = "passed", "failed", "to fill in"


def main() -> int:
    """Print what became of each, and the figure at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of operators' names")
    parser.add_argument("--keep", type=Path, help="a folder for the drafts, which stay there")
    options = parser.parse_args()
    names: dict[str, str | None] = {f"aten::{name}": None for name in ATEN}
    try:
        importlib.import_module("torchvision")
        names |= {f"torchvision::{name}": example for name, example in TORCHVISION.items()}
    except (ImportError, RuntimeError) as error:  # the latter where it was built for CUDA
        print(f"without torchvision's operators, as it cannot be imported: {error}")
    chosen = {
        name: example
        for name, example in names.items()
        if not options.names or any(part in name for part in options.names)
    }
    counts: Counter[str] = Counter()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="opsmith-adoption-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name, example in chosen.items():
            outcome, words = adopted(name, example, folder)
            counts[outcome] += 1
            print(f"{name:34} {outcome:10}  {words}", flush=True)
    least = len(chosen) * 5 // 6
    print(
        f"\n{counts[PASSED]} of {len(chosen)} pass unedited (at least {least}); "
        f"{counts[REFUSED]} say what to fill in, {counts[FAILED]} fail; "
        f"{time.monotonic() - started:.0f} s"
    )
    return int(counts[PASSED] < least)


def adopted(name: str, example: str | None, folder: Path) -> tuple[str, str]:
    """What became of one name, and the line that says more."""
    file = folder / (name.replace("::", "_").replace(".", "_") + ".py")
    file.unlink(missing_ok=True)  # a draft that an earlier run kept
    given = [] if example is None else ["--example", example]
    code, said = opsmith("adopt", name, "--out", file, *given)
    if code:
        return REFUSED, " ".join(said.split())[:200]
    code, said = opsmith("check", file, "--quick")
    last = said.strip().splitlines()[-1] if said.strip() else "nothing was printed"
    return (FAILED if code else PASSED), last


def opsmith(*arguments: object) -> tuple[int, str]:
    """The exit status of a command, and what it printed."""
    command: Sequence[str] = [sys.executable, "-m", "opsmith", *map(str, arguments)]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return 1, f"not finished after {SECONDS} s"
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main())
