"""`bev_pool_v2` in JAX: learn from a bird's-eye view how far away what each pixel sees is.

The kernels and the backward are those that PyTorch calls. JAX compiles them into its own program,
and the package that is exported needs neither PyTorch nor opsmith where it runs.

    python gallery/bev_pool_v2/in_jax.py
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import jax
import jax.numpy as jnp

import opsmith

from .bev_pool_v2 import bev_pool_v2
from .inputs import camera_case


def scene(*, channels: int = 8, bins: int = 12) -> dict[str, Any]:
    """Give the arguments of `bev_pool_v2` as JAX has them: six cameras with small feature maps."""
    case = camera_case(feature_size=(4, 8), bins=bins, channels=channels)
    return {
        name: value if name == "bev_size" else jnp.asarray(value.numpy())
        for name, value in case.items()
    }


def fit(pool: Any, given: dict[str, Any], *, steps: int, rate: float = 0.75) -> list[float]:
    """Find the depth distribution that gives the view of `given`, by gradient descent.

    Args:
        pool: `bev_pool_v2` in JAX.
        given: its arguments.
        steps: how many.
        rate: how far each goes.

    Returns:
        The loss before each step.
    """
    rest = {name: value for name, value in given.items() if name != "depth"}
    wanted = pool(depth=jax.nn.softmax(4 * given["depth"], axis=2), **rest)

    def loss(logits: Any) -> Any:
        return jnp.sum((pool(depth=jax.nn.softmax(logits, axis=2), **rest) - wanted) ** 2)

    step = jax.jit(jax.value_and_grad(loss))
    logits, found = jnp.zeros_like(given["depth"]), []
    for _ in range(steps):
        value, gradient = step(logits)
        found.append(float(value))
        logits -= rate * gradient
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        opsmith.export(bev_pool_v2, target="jax", out=Path(folder) / "dist")
        sys.path.insert(0, str(Path(folder) / "dist"))
        import bev_jax

        losses = fit(bev_jax.bev_pool_v2, scene(), steps=100)
        print(f"\nthe loss falls from {losses[0]:.3g} to {losses[-1]:.3g} in {len(losses)} steps")
