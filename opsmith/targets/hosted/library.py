"""Build a kernel with the adapter that a host of any language calls, by plain structs.

``include/opsmith/hosted/host.h`` has the structs. A target writes the code that reads its callers'
values, and fills them in.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opsmith.kernels import HOST, Generated, KernelSource, Recipe, Unit, adapters, generated_key
from opsmith.signature import Signature

_HERE = Path(__file__).parent
_TEMPLATE = _HERE / "adapter.cpp.j2"
INCLUDE = _HERE / "include"


def symbol(signature: Signature) -> str:
    """Return the name of the function that the adapter exports, an ``Entry`` of host.h."""
    return f"opsmith_hosted__{signature.namespace}__{signature.name}"


def build(
    name: str,
    sources: Sequence[KernelSource],
    title: str,
    *,
    objects: Sequence[Unit] = (),
    link_libraries: Sequence[str] = (),
) -> Path:
    """Build a library of kernels and their adapters, or find it in the cache.

    Args:
        name: see `Recipe`.
        sources: the kernels; several may stand in one file.
        title: the runtime's name, for messages.
        objects: what else is in the library.
        link_libraries: see `Recipe`.

    Raises:
        BuildError: a kernel does not compile, or needs PyTorch.
        MissingDependencyError: there is no compiler.
    """
    for source in sources:
        source.language.require(source, torch=False)
    files = {source.path: source.language.unit(source) for source in sources}
    links = [link for one in sources for link in one.language.beside(one)["link_libraries"]]
    return Recipe(
        name,
        objects=[*files.values(), *map(_unit, sources), *objects],
        link_libraries=list(dict.fromkeys([*links, *link_libraries])),
        torch="none",
        what=f"{', '.join(source.signature.qualname for source in sources)} ({title})",
    ).build()


def _unit(source: KernelSource) -> Unit:
    """Return the unit of an adapter."""
    signature, beside = source.signature, source.language.beside(source)
    file = f"{signature.name}_hosted.cpp"
    made_of = [_TEMPLATE, Path(__file__), *sorted(INCLUDE.rglob("*.h"))]
    key = generated_key(signature, source.strided, *(path.read_bytes() for path in made_of))
    return Unit(
        name=f"{signature.namespace}__{signature.name}__hosted",
        source=file,
        generated=Generated(
            key, lambda: {**adapters.kernel_files(signature), file: adapter(source)}
        ),
        include_dirs=tuple(Path(place).resolve() for place in (INCLUDE, *beside["include_dirs"])),
        defines=tuple(beside["defines"]),
    )


def adapter(source: KernelSource) -> str:
    """Generate the source that connects a host with a kernel."""
    return adapters.source(
        _TEMPLATE, source.signature, HOST, strided=source.strided, symbol=symbol(source.signature)
    )
