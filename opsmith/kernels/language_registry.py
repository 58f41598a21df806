"""The kernel languages that there are, and a kernel's source in one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opsmith.errors import DeclarationError
from opsmith.kernels.cuda_emulator import emulated
from opsmith.kernels.languages.ascendc import AscendC
from opsmith.kernels.languages.cpp import Cpp
from opsmith.kernels.languages.cuda import Cuda
from opsmith.kernels.languages.torch_library import TorchLibrary
from opsmith.kernels.source import KernelSource, Language
from opsmith.signature.model import Signature

LANGUAGES: tuple[Language, ...] = (Cpp(), Cuda(emulated), AscendC(), TorchLibrary())


def language_of(path: Path, api: str, qualname: str, asked: str = "") -> Language:
    """The language of a source.

    Raises:
        DeclarationError: there is no such api or language, or none with such files.
    """
    apis = list(dict.fromkeys(language.api for language in LANGUAGES))
    if api not in apis:
        there = " and ".join(repr(known) for known in apis)
        raise DeclarationError(f"{qualname}: api={api!r}; there are {there}")
    languages = [language.asked for language in LANGUAGES if language.asked]
    if asked and asked not in languages:
        there = " and ".join(map(repr, languages))
        raise DeclarationError(
            f"{qualname}: language={asked!r}; there is {there}, and C++ and CUDA are told by the "
            "file's name"
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
    """Return a kernel's source in the language that its file, or its author, says.

    Args:
        signature: the operator's.
        device: the device type that the kernel is for.
        path: the file.
        api: see `Language.api`.
        asked: see `Language.asked`.
        options: further attributes of `KernelSource`.

    Raises:
        DeclarationError: there is no such api or language, or none with such files; or see
            `KernelSource`.
    """
    language = language_of(path, api, signature.qualname, asked)
    return KernelSource(signature, device, path, language, **options)
