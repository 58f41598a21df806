"""The kernel languages, one file each."""

from __future__ import annotations

from pathlib import Path

from opsmith.errors import DeclarationError
from opsmith.kernels.languages.cpp import Cpp
from opsmith.kernels.languages.cuda import Cuda
from opsmith.kernels.languages.language import Language
from opsmith.kernels.languages.torch_library import TorchLibrary

__all__ = ["LANGUAGES", "Language", "language_of"]

LANGUAGES: tuple[Language, ...] = (Cpp(), Cuda(), TorchLibrary())


def language_of(path: Path, api: str, qualname: str) -> Language:
    """The language of a source.

    Raises:
        DeclarationError: there is no such api, or no language with such files.
    """
    apis = list(dict.fromkeys(language.api for language in LANGUAGES))
    if api not in apis:
        there = " and ".join(repr(known) for known in apis)
        raise DeclarationError(f"{qualname}: api={api!r}; there are {there}")
    for language in LANGUAGES:
        if language.takes(path, api):
            return language
    known = ", ".join(
        f"{language.name} ({', '.join(language.suffixes)})"
        for language in LANGUAGES
        if language.api == api
    )
    raise DeclarationError(f"{qualname}: {path.name} is in no kernel language; there are {known}")
