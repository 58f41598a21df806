"""The artifact that an export writes: a folder with a manifest, either complete or absent.

The manifest names the artifact's target and holds the SHA-256 of every file. Opening an artifact
verifies these digests, so that no modified file is loaded.
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

from opsmith.errors import ArtifactError
from opsmith.signature.dtypes import ALL_DTYPES
from opsmith.system.files import needing_space, storing
from opsmith.system.scratch import partial_folder
from opsmith.targets.exporting import typed_json
from opsmith.untyped import Value

MANIFEST = "manifest.json"
VERSION = 2
"""The version of the manifest's layout. A later version is refused: its meaning is unknown."""
_READ = (1, 2)
MODEL, OPERATORS = "model", "operators"
#: Constants of Linux: resolve paths from the working directory; exchange two paths.
_AT_CWD, _RENAME_EXCHANGE = -100, 2


@dataclass(frozen=True)
class TensorSpec:
    """Describe one input or output.

    Attributes:
        name: the runtime's name for the input or output.
        dtype: its dtype, such as ``float32``.
        shape: its sizes; a text is a symbol of `Manifest.dims`, or an expression over such symbols.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @property
    def type(self) -> str:
        """Return dtype and shape, such as ``float32 (N, 3)``."""
        inner = ", ".join(str(size) for size in self.shape)
        return f"{self.dtype} ({inner}{',' if len(self.shape) == 1 else ''})"

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


def unnamed_size(name: str, axis: int) -> str:
    """Return the symbol for a dynamic size of the input `name` that the user did not name."""
    return f"{name}_dim_{axis}"


@dataclass(frozen=True)
class OperatorUse:
    """Record how one custom operator was exported.

    Attributes:
        name: ``namespace::name``.
        form: the target's name for the form of the export (``library``, ``inline``, …).
        count: number of calls in the model; 1 where operators were exported as such.
        note: the reason for this form, or something the user should know about it.
    """

    name: str
    form: str
    count: int = 1
    note: str = ""


@dataclass(frozen=True)
class SizeCondition:
    """A condition on the inputs' sizes, which the declaration of an inlined operator states.

    Attributes:
        operator: ``namespace::name``.
        left: the left side; an expression over symbols of `Manifest.dims`.
        relation: one of ``== != < <= > >=``.
        right: the right side.
    """

    operator: str
    left: str
    relation: str
    right: str

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


@dataclass(frozen=True)
class Agreement:
    """Record how closely the artifact agrees with PyTorch.

    Attributes:
        samples: number of sets of inputs that were compared.
        largest: the largest difference, divided by the largest absolute value of that output.
        output: name of the output with the largest difference.
    """

    samples: int
    largest: float
    output: str = ""


@dataclass(frozen=True)
class CallSpec:
    """Map Python arguments to the inputs, and the outputs to the model's return value.

    Attributes:
        in_spec: the arguments' structure, as ``torch.utils._pytree`` writes it; empty if it cannot.
        out_spec: the return value's structure, likewise.
        in_leaves: for each leaf of the arguments the position of its input, or ``{"is": value}``
            for a value that the export fixed.
        out_leaves: the same for the return value.
    """

    in_spec: str = ""
    out_spec: str = ""
    in_leaves: tuple[Value, ...] = ()
    out_leaves: tuple[Value, ...] = ()


@dataclass(frozen=True)
class File:
    """The digest and size of one file of an artifact."""

    sha256: str
    size: int


@dataclass(frozen=True)
class Manifest:
    """Describe an artifact and its origin.

    Attributes:
        target: name of the target that loads the artifact.
        versions: versions of opsmith, torch and the runtime's packages.
        inputs: inputs in the runner's order; empty where operators were exported.
        outputs: outputs in the runner's order.
        dims: the smallest and the largest size of each symbol (`None`: unlimited).
        call: mapping of Python arguments and return values; see `CallSpec`.
        kind: ``"model"`` or ``"operators"``.
        operators: how each custom operator was exported.
        details: data that the target's loader needs.
        agreement: difference from PyTorch measured at export; `None` if it was not measured.
        files: every file except the manifest, by its path within the folder.
        conditions: conditions on the sizes in `dims`; a runtime that runs the model without
            `opsmith.load` and without the C++ program of the artifact does not know them.
    """

    target: str
    versions: Mapping[str, str]
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    dims: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    call: CallSpec = field(default_factory=CallSpec)
    kind: str = MODEL
    operators: tuple[OperatorUse, ...] = ()
    details: Mapping[str, Value] = field(default_factory=dict)
    agreement: Agreement | None = None
    files: Mapping[str, File] = field(default_factory=dict)
    conditions: tuple[SizeCondition, ...] = ()

    def to_json(self) -> str:
        """Return the text of ``manifest.json``."""
        return json.dumps({"manifest": VERSION, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, where: Path) -> Manifest:
        """Read a manifest.

        Raises:
            ArtifactError: the text is not a manifest, or its version is unknown to this opsmith.
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
        if version == 1:  # Version 1 described models only.
            facts["kind"] = MODEL
        facts.setdefault("conditions", [])  # Earlier exports did not write them.
        try:
            manifest: Manifest = typed_json.read(cls, facts, "")
            manifest._validate()
        except typed_json.Mismatch as error:
            raise ArtifactError(f"{where} is damaged: {error}") from None
        return manifest

    def _validate(self) -> None:
        """Check the manifest for contradictions between its fields."""
        for place, specs in (("inputs", self.inputs), ("outputs", self.outputs)):
            for position, spec in enumerate(specs):
                if spec.dtype not in ALL_DTYPES:
                    raise typed_json.Mismatch(
                        f"{place}[{position}].dtype is {spec.dtype!r}, which is no dtype"
                    )
        if self.kind == MODEL:
            _validate_leaves("call.in_leaves", self.call.in_leaves, len(self.inputs))
            _validate_leaves("call.out_leaves", self.call.out_leaves, len(self.outputs))


def _validate_leaves(place: str, leaves: tuple[object, ...], count: int) -> None:
    for position, leaf in enumerate(leaves):
        tensor = type(leaf) is int and 0 <= leaf < count
        if not tensor and not (isinstance(leaf, dict) and leaf.keys() == {"is"}):
            raise typed_json.Mismatch(
                f'{place}[{position}] is {leaf!r}, expected a position below {count} or {{"is": '
                "value}"
            )


@dataclass(frozen=True)
class Artifact:
    """An exported artifact on disk whose files match the manifest.

    Attributes:
        folder: folder of the artifact.
        manifest: its parsed manifest.
    """

    folder: Path
    manifest: Manifest

    @classmethod
    def open(cls, folder: str | Path) -> Artifact:
        """Read the manifest and verify the digest of every file.

        Raises:
            ArtifactError: naming the file: the manifest is missing or has an unknown version, or a
                file is missing or was changed after the export.
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
        """Return the path of one of the artifact's files.

        Raises:
            ArtifactError: the manifest lists no such file.
        """
        if name not in self.manifest.files:
            raise ArtifactError(f"{self.folder / MANIFEST} lists no file {name!r}")
        return self.folder / name

    def verify(self, name: str) -> None:
        """Verify the digest of a file.

        Raises:
            ArtifactError: the file is missing, cannot be read, lies outside the folder, or was
                changed after the export.
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
        except (OSError, ValueError) as error:  # A null byte in the name raises ValueError.
            raise ArtifactError(f"{path} cannot be read: {error}") from error
        if found.sha256 != known.sha256:
            raise ArtifactError(
                f"{path} is not the file that was exported, and is not loaded.\n"
                f"  SHA-256 in the manifest: {known.sha256} ({known.size} bytes)\n"
                f"  SHA-256 of the file:     {found.sha256} ({found.size} bytes)"
            )


def file_digest(path: Path) -> File:
    """Return the digest and size of a file, reading it in pieces."""
    sha256, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            sha256.update(piece)
            size += len(piece)
    return File(sha256.hexdigest(), size)


def list_files(folder: Path) -> dict[str, File]:
    """Return every file below `folder` except the manifest, by its path within the folder."""
    return {
        path.relative_to(folder).as_posix(): file_digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / MANIFEST
    }


@contextmanager
def replacing(out: str | Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary folder beside `out`, and move it to `out` if the block succeeds.

    Args:
        out: the folder to create.
        overwrite: whether an existing artifact may be replaced. Files in its folder that its
            manifest does not list stay there.

    Raises:
        ArtifactError: `out` exists and may not be replaced, or is not an artifact, or has a file of
            another origin where the new artifact has one. It then stays as it was, and the
            temporary folder is removed.
        StorageError: `out` cannot be written, or the disk is full.
    """
    out = Path(os.path.abspath(Path(out).expanduser()))
    refuse_to_replace(out, overwrite=overwrite)
    with storing(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
    with needing_space(out), partial_folder(out) as temporary:
        yield temporary
        # mkdtemp denies access to other users; give the artifact the permissions of an ordinary
        # folder.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o777 & ~umask)
        _move(temporary, out, overwrite)


def refuse_to_replace(out: Path, *, overwrite: bool) -> None:
    """Refuse an `out` that cannot be created, before the slow part of an export begins."""
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
    _read_manifest(out)


def _read_manifest(out: Path) -> Manifest:
    path = out / MANIFEST
    try:
        return Manifest.from_json(path.read_text(encoding="utf-8"), path)
    except (ArtifactError, OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{out} is not replaced: {error}") from None


def _keep_others(out: Path, temporary: Path) -> None:
    """Link into the new folder what lies in the old one without belonging to its artifact."""
    listed = {Path(name) for name in (*_read_manifest(out).files, MANIFEST)}
    own = listed.union(*(path.parents for path in listed))

    def stop(error: OSError) -> None:
        raise error

    for parent, folders, files in os.walk(out, onerror=stop):
        for place in (Path(parent, name).relative_to(out) for name in [*folders, *files]):
            old, new = out / place, temporary / place
            if place in own:
                continue
            if old.is_dir() and not old.is_symlink() and (new.is_dir() or not new.exists()):
                new.mkdir(parents=True, exist_ok=True)
            elif os.path.lexists(new):
                raise ArtifactError(
                    f"{old} is not of the artifact that is to be replaced, and the new one has a "
                    "file of this name. Move it, or choose another folder."
                )
            else:
                new.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(old, new, follow_symlinks=False)
                except OSError:  # a file system without links, or another one
                    shutil.copy2(old, new, follow_symlinks=False)


def _move(temporary: Path, out: Path, overwrite: bool) -> None:
    # Another process may have created `out` while the export ran.
    refuse_to_replace(out, overwrite=overwrite)
    if not out.exists():
        os.rename(temporary, out)
        return
    if any(out.iterdir()):
        with storing(out):
            _keep_others(out, temporary)
    if _exchange(temporary, out):
        return  # The old artifact is removed with the temporary folder.
    # A rename cannot replace a folder that is not empty, so move the old one aside first.
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
    """Exchange two folders in one step that no kill can interrupt; return whether it worked."""
    with contextlib.suppress(AttributeError):  # Not Linux, or an old C library.
        names = os.fsencode(one), os.fsencode(other)
        rename = ctypes.CDLL(None).renameat2
        return bool(rename(_AT_CWD, names[0], _AT_CWD, names[1], _RENAME_EXCHANGE) == 0)
    return False
