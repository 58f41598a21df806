"""The kernel languages, and the choice of a language for a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opsmith.errors import DeclarationError
from opsmith.kernels.languages.ascendc import AscendC
from opsmith.kernels.languages.cpp import Cpp
from opsmith.kernels.languages.cuda import Cuda
from opsmith.kernels.languages.emulated_cuda import emulated
from opsmith.kernels.languages.torch_library import TorchLibrary
from opsmith.kernels.source import KernelSource, Language
from opsmith.signature.model import Signature

LANGUAGES: tuple[Language, ...] = (Cpp(), Cuda(emulated), AscendC(), TorchLibrary())


def language_of(path: Path, api: str, qualname: str, asked: str = "") -> Language:
    """Return the language of a source.

    Raises:
        DeclarationError: the api or language does not exist, or has no such files.
    """
    apis = list(dict.fromkeys(language.api for language in LANGUAGES))
    if api not in apis:
        there = " and ".join(repr(known) for known in apis)
        raise DeclarationError(f"{qualname}: api={api!r}; there are {there}")
    languages = [language.asked for language in LANGUAGES if language.asked]
    if asked and asked not in languages:
        there = " and ".join(map(repr, languages))
        raise DeclarationError(
            f"{qualname}: language={asked!r}; expected {there}, or none for C++ and CUDA, which "
            "follow from the file's name"
        )
    for language in LANGUAGES:
        if language.takes(path, api, asked):
            return language
    known = ", ".join(
        f"{language.name} ({', '.join(language.suffixes)})"
        for language in LANGUAGES
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
    **options: Any,
) -> KernelSource:
    """Return a kernel's source, in the language of its file or in the given language.

    Args:
        signature: the operator's signature.
        device: the device type of the kernel.
        path: the file.
        api: see `Language.api`.
        asked: see `Language.asked`.
        options: further attributes of `KernelSource`.

    Raises:
        DeclarationError: the api or language does not exist, or has no such files; or see
            `KernelSource`.
    """
    language = language_of(path, api, signature.qualname, asked)
    return KernelSource(signature, device, path, language, **options)
