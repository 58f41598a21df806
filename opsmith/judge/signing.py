"""Sign verdicts with a secret key of minisign.

A candidate never meets the key: it is read in the judge's process, from a file that the sandbox
hides. Without a sandbox nothing is signed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from opsmith.errors import LoadError, MissingDependencyError
from opsmith.judge.judge import NotSandboxedError, Verdict
from opsmith.sources.importing import module_name
from opsmith.system.files import write_atomically
from opsmith.system.processes.sandbox.policy import hides, unavailable

if TYPE_CHECKING:
    from minisign import SecretKey

#: The ending of the file with a signature; minisign looks for it beside the signed file.
SUFFIX = ".minisig"


def read_key(path: Path, judged: Iterable[Path], password: Callable[[], str]) -> SecretKey:
    """Read a secret key, before anything of a candidate runs.

    Args:
        path: the file that ``minisign -G`` wrote.
        judged: the specification and the candidate. A file beside them is copied into the sandbox
            if they name it, so the key must lie elsewhere.
        password: called if the key has a password.
    """
    try:
        import minisign
    except ImportError as error:
        raise MissingDependencyError(
            "signing needs the package py-minisign: pip install 'opsmith[sign]'"
        ) from error
    missing = unavailable()
    if missing:
        raise NotSandboxedError(
            f"nothing is signed: this machine grants no sandbox ({missing}), and the candidate "
            f"could read {path}. Leave --sign out, or allow user namespaces."
        )
    beside = [module_name(file.resolve())[0] for file in judged]
    if any(path.resolve().is_relative_to(folder) for folder in beside):
        raise LoadError(
            f"the candidate could read {path}, which lies beside the files that are judged. Move "
            "the key into a folder of its own below the home folder."
        )
    if not hides(path, os.environ):
        raise LoadError(
            f"the candidate could read {path}, since the sandbox does not hide its folder. Move "
            "the key into a folder of its own below the home folder."
        )
    try:
        key = minisign.SecretKey.from_file(path)
        if key.is_encrypted():
            key.decrypt(password())
    except OSError as error:
        raise LoadError(f"the key cannot be read: {error}") from error
    except ValueError as error:
        raise LoadError(f"{path} is no secret key of minisign: {error}") from error
    return key


def write_signed(verdict: Verdict, path: Path, key: SecretKey | None) -> list[Path]:
    """Write a verdict as JSON and, if there is a key, the signature beside it; return the files.

    The signature's trusted comment, which `minisign -V` prints, holds the outcome and the time.
    """
    text = verdict.to_json().encode()
    signature = path.with_name(path.name + SUFFIX)
    # A signature of an earlier verdict must never lie beside another one.
    signature.unlink(missing_ok=True)
    write_atomically(path, text)
    if key is None:
        return [path]
    comment = f"timestamp:{int(time.time())}\tfile:{path.name}\topsmith judge: {verdict.outcome}"
    write_atomically(signature, bytes(key.sign(text, trusted_comment=comment)))
    return [path, signature]
