"""What an export leaves: a folder with a manifest, whole or not there at all.

The manifest says what the artifact is for and carries the SHA-256 of every file. Opening an
artifact compares them, so that nothing is loaded which is not what was written.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from opsmith.errors import ArtifactError
from opsmith.kernels.build.files import needing_space, storing
from opsmith.signature.dtypes import ALL_DTYPES
from opsmith.targets.exporting import typed_json
from opsmith.targets.exporting.staging import partial_folder

MANIFEST = "manifest.json"
VERSION = 2
"""Of the manifest's layout. A later one is refused, since what it says is not known."""
_READ = (1, 2)
MODEL, OPERATORS = "model", "operators"
#: Of Linux: paths begin in the working directory; two of them are exchanged.
_AT_CWD, _RENAME_EXCHANGE = -100, 2


@dataclass(frozen=True)
class TensorSpec:
    """One input or output.

    Attributes:
        name: the runtime's name for it.
        dtype: as in ``float32``.
        shape: sizes; a text is a symbol of `Manifest.dims`, or an expression over such symbols.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @property
    def type(self) -> str:
        """Dtype and shape, as in ``float32 (N, 3)``."""
        inner = ", ".join(str(size) for size in self.shape)
        return f"{self.dtype} ({inner}{',' if len(self.shape) == 1 else ''})"

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


def unnamed_size(name: str, axis: int) -> str:
    """What a dynamic size of the input `name` is called where the user gave it no name."""
    return f"{name}_dim_{axis}"


@dataclass(frozen=True)
class OperatorUse:
    """What became of one custom operator.

    Attributes:
        name: ``namespace::name``.
        form: the target's word for it (``library``, ``inline``, …).
        count: how many calls the model has; 1 where operators were exported as such.
        note: why this form, or what to know about it.
    """

    name: str
    form: str
    count: int = 1
    note: str = ""


@dataclass(frozen=True)
class Agreement:
    """How far the artifact is from PyTorch.

    Attributes:
        samples: how many sets of inputs were compared.
        largest: the largest difference, divided by the largest absolute value of that output.
        output: which output it was in.
    """

    samples: int
    largest: float
    output: str = ""


@dataclass(frozen=True)
class CallSpec:
    """How Python arguments become the inputs, and the outputs what the model returned.

    Attributes:
        in_spec: the arguments' structure, as ``torch.utils._pytree`` writes it; empty if it cannot.
        out_spec: the same of what is returned.
        in_leaves: for each leaf of the arguments the position of its input, or ``{"is": value}``
            for a value that the export fixed.
        out_leaves: the same of what is returned.
    """

    in_spec: str = ""
    out_spec: str = ""
    in_leaves: tuple[Any, ...] = ()
    out_leaves: tuple[Any, ...] = ()


@dataclass(frozen=True)
class File:
    """One file of an artifact."""

    sha256: str
    size: int


@dataclass(frozen=True)
class Manifest:
    """What an artifact is, and what it was made from.

    Attributes:
        target: which target reads it.
        versions: of opsmith, torch and the runtime's packages.
        inputs: in the order in which the runner takes them; empty where operators were exported.
        outputs: in the order in which it gives them.
        dims: for each symbol the smallest and the largest size (`None`: any).
        call: see `CallSpec`.
        kind: what was exported: ``"model"`` or ``"operators"``.
        operators: what became of each custom operator.
        details: what the target's loader needs.
        agreement: how far it was from PyTorch when it was exported; `None` if nobody looked.
        files: every file but the manifest, by its path within the folder.
    """

    target: str
    versions: Mapping[str, str]
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    dims: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    call: CallSpec = field(default_factory=CallSpec)
    kind: str = MODEL
    operators: tuple[OperatorUse, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    agreement: Agreement | None = None
    files: Mapping[str, File] = field(default_factory=dict)

    def to_json(self) -> str:
        """The text of ``manifest.json``."""
        return json.dumps({"manifest": VERSION, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, where: Path) -> Manifest:
        """Read a manifest.

        Raises:
            ArtifactError: it is not a manifest, or of a version that this opsmith does not know.
        """
        try:
            facts = json.loads(text)
            version = facts.pop("manifest")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise ArtifactError(f"{where} is not the manifest of an opsmith artifact") from None
        if version not in _READ:
            raise ArtifactError(
                f"{where} has version {version!r}, and this opsmith reads versions "
                f"{' and '.join(map(str, _READ))}. Export again, or install the opsmith that "
                "exported it."
            )
        if version == 1:  # which knew models only
            facts["kind"] = MODEL
        try:
            manifest: Manifest = typed_json.read(cls, facts, "")
            manifest._validate()
        except typed_json.Mismatch as error:
            raise ArtifactError(f"{where} is damaged: {error}") from None
        return manifest

    def _validate(self) -> None:
        """Compare what the manifest says in one place with what it says in others.

        Raises:
            Mismatch: naming the place.
        """
        for place, specs in (("inputs", self.inputs), ("outputs", self.outputs)):
            for position, spec in enumerate(specs):
                if spec.dtype not in ALL_DTYPES:
                    raise typed_json.Mismatch(
                        f"{place}[{position}].dtype is {spec.dtype!r}, which is no dtype"
                    )
        if self.kind == MODEL:
            _validate_leaves("call.in_leaves", self.call.in_leaves, len(self.inputs))
            _validate_leaves("call.out_leaves", self.call.out_leaves, len(self.outputs))


def _validate_leaves(place: str, leaves: tuple[Any, ...], count: int) -> None:
    for position, leaf in enumerate(leaves):
        tensor = type(leaf) is int and 0 <= leaf < count
        if not tensor and not (isinstance(leaf, dict) and leaf.keys() == {"is"}):
            raise typed_json.Mismatch(
                f'{place}[{position}] is {leaf!r}, expected a position below {count} or {{"is": '
                "value}"
            )


@dataclass(frozen=True)
class Artifact:
    """What was exported, on disk, its files compared with the manifest.

    Attributes:
        folder: where it is.
        manifest: what it says.
    """

    folder: Path
    manifest: Manifest

    @classmethod
    def open(cls, folder: str | Path) -> Artifact:
        """Read the manifest, and compare every file with its digest.

        Raises:
            ArtifactError: naming the file: no manifest, one of an unknown version, a file that is
                missing or is not what was exported.
        """
        folder = Path(folder)
        path = folder / MANIFEST
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            what = "no such folder" if not folder.exists() else f"it has no {MANIFEST}"
            raise ArtifactError(f"{folder} is not an opsmith artifact: {what}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ArtifactError(f"{path} cannot be read: {error}") from error
        artifact = cls(folder, Manifest.from_json(text, path))
        for name in artifact.manifest.files:
            artifact.verify(name)
        return artifact

    def path(self, name: str) -> Path:
        """The path of one of the artifact's files.

        Raises:
            ArtifactError: the manifest lists no such file.
        """
        if name not in self.manifest.files:
            raise ArtifactError(f"{self.folder / MANIFEST} lists no file {name!r}")
        return self.folder / name

    def verify(self, name: str) -> None:
        """Compare a file with its digest.

        Raises:
            ArtifactError: it is missing, cannot be read, lies outside the folder, or is not what
                was exported.
        """
        path, known = self.path(name), self.manifest.files[name]
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ArtifactError(f"{self.folder / MANIFEST} names {name!r}, outside the artifact")
        try:
            found = file_digest(path)
        except FileNotFoundError:
            raise ArtifactError(
                f"{path} is missing; the manifest lists it. Export the model again."
            ) from None
        except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
            raise ArtifactError(f"{path} cannot be read: {error}") from error
        if found.sha256 != known.sha256:
            raise ArtifactError(
                f"{path} is not the file that was exported, and is not loaded.\n"
                f"  SHA-256 in the manifest: {known.sha256} ({known.size} bytes)\n"
                f"  SHA-256 of the file:     {found.sha256} ({found.size} bytes)"
            )


def file_digest(path: Path) -> File:
    """The digest and size of a file, read in pieces."""
    sha256, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            sha256.update(piece)
            size += len(piece)
    return File(sha256.hexdigest(), size)


def list_files(folder: Path) -> dict[str, File]:
    """Every file below `folder` but the manifest, by its path within it."""
    return {
        path.relative_to(folder).as_posix(): file_digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / MANIFEST
    }


@contextmanager
def replacing(out: str | Path, *, overwrite: bool) -> Iterator[Path]:
    """A temporary folder beside `out` that takes its place when the block ends well.

    Args:
        out: the folder to make.
        overwrite: whether an artifact that is there already may be replaced.

    Raises:
        ArtifactError: `out` is there and may not be replaced, or is not an artifact. What is there
            then stays, and nothing is left beside it.
        StorageError: it cannot be written, or there is no space for it.
    """
    out = Path(os.path.abspath(Path(out).expanduser()))
    refuse_to_replace(out, overwrite=overwrite)
    with storing(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
    with needing_space(out), partial_folder(out) as temporary:
        yield temporary
        # mkdtemp keeps others out; an artifact is as readable as any folder made here.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o777 & ~umask)
        _move(temporary, out, overwrite)


def refuse_to_replace(out: Path, *, overwrite: bool) -> None:
    """Say before the slow part that `out` cannot be made.

    Raises:
        ArtifactError: see `replacing`.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / MANIFEST).is_file():
        raise ArtifactError(
            f"{out} exists and is not an opsmith artifact, so it is not replaced. Choose another "
            "folder."
        )
    if not overwrite:
        raise ArtifactError(
            f"{out} holds an artifact already. Pass overwrite=True (--overwrite) to replace it, "
            "or choose another folder."
        )


def _move(temporary: Path, out: Path, overwrite: bool) -> None:
    # Somebody may have made it while the export ran.
    refuse_to_replace(out, overwrite=overwrite)
    if not out.exists():
        os.rename(temporary, out)
        return
    if _exchange(temporary, out):
        return  # the old one goes with the temporary folder
    # A folder that is not empty cannot be renamed over: the old one steps aside first.
    aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".replaced", dir=out.parent))
    os.rename(out, aside / out.name)
    try:
        os.rename(temporary, out)
    except OSError:
        os.rename(aside / out.name, out)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, so that no kill comes between; whether it was done."""
    with contextlib.suppress(AttributeError):  # not Linux, or an old C library
        names = os.fsencode(one), os.fsencode(other)
        rename = ctypes.CDLL(None).renameat2
        return bool(rename(_AT_CWD, names[0], _AT_CWD, names[1], _RENAME_EXCHANGE) == 0)
    return False
