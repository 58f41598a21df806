"""Find the kernel languages, and choose one for a source."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

import opsmith.kernels.languages as folder
from opsmith.errors import DeclarationError
from opsmith.kernels.source import KernelSource, Language
from opsmith.signature.model import Signature
from opsmith.system.products import from_other_packages
from opsmith.untyped import Value


@cache
def _own() -> tuple[Language, ...]:
    """Return the languages of the files in ``languages/`` that have a `LANGUAGE`."""
    files = (one.name for one in pkgutil.iter_modules(folder.__path__) if not one.ispkg)
    modules = [importlib.import_module(f"{folder.__name__}.{name}") for name in files]
    return tuple(module.LANGUAGE for module in modules if hasattr(module, "LANGUAGE"))


@cache
def languages() -> tuple[Language, ...]:
    """Return all languages: our own, and those of other packages' entry points."""
    taken = [language.name for language in _own()]
    others, _ = from_other_packages("opsmith.languages", "language", Language, taken)
    return (*_own(), *others.values())


def language_of(path: Path, api: str, qualname: str, asked: str = "") -> Language:
    """Return the language of a source.

    Raises:
        DeclarationError: the api or language does not exist, or has no such files.
    """
    for offered in (_own, languages):  # entry points are read only where our own do not serve
        for language in offered():
            if language.takes(path, api, asked):
                return language
    apis = list(dict.fromkeys(language.api for language in languages()))
    if api not in apis:
        there = " and ".join(repr(known) for known in apis)
        raise DeclarationError(f"{qualname}: api={api!r}; there are {there}")
    named = {language.asked: None for language in languages() if language.asked}
    if asked and asked not in named:
        there = " and ".join(map(repr, named))
        raise DeclarationError(
            f"{qualname}: language={asked!r}; expected {there}, or none for C++ and CUDA, which "
            "follow from the file's name"
        )
    known = ", ".join(
        f"{language.name} ({', '.join(language.suffixes)})"
        for language in languages()
        if (language.api, language.asked) == (api, asked)
    )
    raise DeclarationError(f"{qualname}: {path.name} is in no kernel language; there are {known}")


def kernel_source(
    signature: Signature,
    device: str,
    path: Path,
    api: str = "opsmith",
    *,
    asked: str = "",
    **options: Value,
) -> KernelSource:
    """Return a kernel's source, in the language of its file or in the given language.

    Args:
        api: see `Language.api`.
        asked: see `Language.asked`.
        options: further attributes of `KernelSource`.

    Raises:
        DeclarationError: the api or language does not exist, or has no such files; or see
            `KernelSource`.
    """
    language = language_of(path, api, signature.qualname, asked)
    return KernelSource(signature, device, path, language, **options)
