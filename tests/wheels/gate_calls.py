"""Operators that gates record, and calls that tell whether they do, whatever runs the Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from wheel_samples import WITHOUT

from opsmith.wheels import build_wheel
from opsmith.wheels.platforms import find_platform

RECORDED = Path(__file__).with_name("recorded") / "recorded_ops.py"

# Prints how much Python ran, and results that do not depend on who records.
CALL = """
import sys
import torch
import recorded_ops
from recorded_ops import add_into, scaled
from torch.multiprocessing.reductions import StorageWeakRef

torch.manual_seed(0)
x, w = (torch.rand(4, dtype=torch.float64, requires_grad=True) for _ in range(2))
out = torch.zeros(4, dtype=torch.float64)
rec, into = torch.ops.wheel_gates.scaled, torch.ops.wheel_gates.add_into
# The first call of each loads its kernel.
rec(x, w).sum().backward(), into(x.detach(), out)
x.grad = w.grad = None

frames = []
def note(frame, event, argument):
    if event == "call":
        frames.append(frame.f_code.co_filename)

sys.setprofile(note)
y = rec(x, w, 3.0)
into(x.detach(), out)
y.sum().backward()
sys.setprofile(None)
print("frames", sum("recorded_ops" in name for name in frames))
torch.testing.assert_close(y, 3 * w * x * x)
torch.testing.assert_close(x.grad, (6 * w * x).detach())
torch.testing.assert_close(w.grad, (3 * x * x).detach())
torch.testing.assert_close(out, 2 * x.detach())
assert out._version == 2, out._version

# A saved tensor that was written into is noticed.
kept = torch.ones(4, dtype=torch.float64)
y = scaled(x, kept)
add_into(w.detach(), kept)
try:
    y.sum().backward()
except RuntimeError as error:
    print("modified by an inplace operation" in str(error))

# What is saved goes with a backward, which there is one of, or with the result.
for end in ("backward", "result"):
    y, given = scaled(x, kept := w.detach().clone()), StorageWeakRef(kept.untyped_storage())
    del kept
    assert not given.expired()
    if end == "backward":
        y.sum().backward()
        try:
            y.sum().backward()
        except RuntimeError as error:
            print("a second time" in str(error))
    else:
        del y
    assert given.expired(), end

# What C++ throws passes through a gate, behind which calls go on as before.
for call in (lambda: rec(x, w[:2]), lambda: into(x.detach(), out[:2])):
    try:
        call()
    except RuntimeError as error:
        print(error)
with torch.inference_mode():
    print(rec(x, w), into(x, torch.zeros_like(x)))
print(rec(x, w), out._version)

def loss(x, w):
    return (scaled(x, w, 1.5) ** 2).sum()

# Twice, by torch.func, forward, compiled, and with saved tensors that hooks take elsewhere.
(g,) = torch.autograd.grad(loss(x, w), x, create_graph=True)
print(torch.autograd.grad(g.sum(), (x, w)))
assert torch.autograd.gradcheck(scaled, (x, w))
assert torch.autograd.gradgradcheck(scaled, (x, w))
print(torch.func.grad(loss)(x, w), torch.func.vmap(torch.func.grad(loss))(x[None], w[None]))
print(torch.func.jvp(lambda x: scaled(x, w), (x,), (torch.ones_like(x),)))
compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
print(torch.autograd.grad(compiled(x, w), (x, w)))
with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True), torch.from_numpy):
    kept = loss(x, w)
print(torch.autograd.grad(kept, (x, w)))
with torch.no_grad():
    print(scaled(x, w).requires_grad)
"""
SAY = "import runpy; runpy.run_module('recorded_ops._opsmith', run_name='__main__')"


def prove(
    out: Path,
    platform: str,
    releases: Sequence[str],
    install: Callable[[Path, Path], None],
    run: Callable[[Path, str], str],
) -> list[str]:
    """Call the operators in an environment, from a wheel with gates for it and from one without.

    Args:
        out: a folder for the wheels.
        platform: as `build_wheel` takes it.
        releases: the gates that are asked for: the environment's PyTorch is one of them, and not
            the one that is installed here.
        install: a wheel into a folder, as the environment does.
        run: a text in the environment, with a folder on its path; gives what it prints.

    Returns:
        What the package says of its calls, with gates and without.

    Raises:
        AssertionError: calls do not pass as they should, or give something else.
    """
    levels = find_platform(platform).levels[:1]
    said, printed = [], []
    for gates in (releases, ()):
        folder = out / f"{platform}-{'-'.join(gates)}"
        wheel = build_wheel(RECORDED, folder, platform=platform, levels=levels, gates=gates)
        install(wheel, folder / "site")
        said.append(run(folder / "site", WITHOUT + SAY).strip())
        printed.append(run(folder / "site", WITHOUT + CALL).partition("\n"))
    (by_gates, _, given), (by_python, _, expected) = printed
    assert said[0].startswith("calls run in C++, by gates for PyTorch "), said[0]
    assert said[1].endswith(": calls pass through Python"), said[1]
    assert by_gates == "frames 0" != by_python, (by_gates, by_python)
    assert given == expected, f"by gates:\n{given}\nby Python:\n{expected}"
    return said
