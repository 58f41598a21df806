"""Target ``jax``: operators as JAX functions, in a Python package that needs no PyTorch."""

from opsmith.targets.exporting.protocol import TRACING, Option
from opsmith.targets.hosted.target import PackageTarget


class JaxTarget(PackageTarget):
    """JAX on the CPU."""

    name = "jax"
    title = "JAX"
    options = (Option("package", "the name of the Python package; by default <namespace>_jax"),)
    packages = ("jax", "jaxlib")
    prepares = (*TRACING, "jax")
    install = 'pip install "opsmith[jax]"'
    page = "docs/reference/jax.md"


TARGET = JaxTarget()
