"""The names of the symbols and types that kernels and adapters share."""

from __future__ import annotations

from opsmith.signature.model import Signature


def raw_type(signature: Signature) -> str:
    """Return the name of the plain C struct of a call's arguments."""
    return f"{signature.namespace}__{signature.name}_raw"


def _symbol(what: str, signature: Signature, device: str) -> str:
    return f"opsmith_{what}__{signature.namespace}__{signature.name}__{device}"


def entry_symbol(signature: Signature, device: str) -> str:
    """Return the symbol of the kernel's entry point."""
    return _symbol("kernel", signature, device)


def calls_symbol(signature: Signature, device: str) -> str:
    """Return the symbol of the counter of the kernel's calls, a ``uint64_t``."""
    return _symbol("calls", signature, device)


def dtypes_symbol(signature: Signature, device: str) -> str:
    """Return the symbol of the function that names the kernel's element types."""
    return _symbol("dtypes", signature, device)


def register_symbol(signature: Signature, device: str) -> str:
    """Return the symbol of the function that registers the kernel with PyTorch."""
    return _symbol("torch_register", signature, device)


def unregister_symbol(signature: Signature, device: str) -> str:
    """Return the symbol of the function that undoes the registration."""
    return _symbol("torch_unregister", signature, device)


def arguments_symbol(signature: Signature) -> str:
    """Return the symbol of the stand-alone function that validates arguments."""
    return f"opsmith_arguments__{signature.namespace}__{signature.name}"
