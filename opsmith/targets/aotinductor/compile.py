"""Compile an ExportedProgram to ``model.pt2``, cached by everything that affects the result."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import threading
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from opsmith.compat import torch_inductor
from opsmith.errors import ExportError
from opsmith.kernels import cache_folder
from opsmith.kernels.toolchain import compilers
from opsmith.system import machine
from opsmith.system.files import once
from opsmith.system.progress import status
from opsmith.system.scratch import watched_environment
from opsmith.system.temporarily import environment
from opsmith.system.version import version
from opsmith.targets.aotinductor.libraries import Plan

_LARGEST_REMEMBERED = 64 << 20  # bytes; a cached model is stored a second time
_LOCK = threading.Lock()
_VECTOR_BITS = {"x86-64-v3": 256, "x86-64-v4": 512}
#: Inductor can precompile two headers before a model's two files. That takes longer than it saves,
#: and the next model hardly ever reuses them: the key includes the compiler's command, which names
#: the operators' libraries. Each pair would stay on the disk, at 130 MB.
_NO_HEADERS_IN_ADVANCE = {"aot_inductor.precompile_headers": False}


def compile_model(
    program: ExportedProgram, plans: Sequence[Plan], settings: Mapping[str, Any], out: Path
) -> None:
    """Compile and package a program.

    Args:
        plans: its custom operators, already built.
        settings: further settings of inductor, by their names in ``torch_inductor.settings()``.
        out: the ``.pt2`` file to write.
    """
    compiler = compilers.find_compiler("AOTInductor")
    direct = {item.operator.overload: [item.declaration] for item in plans if not item.proxy}
    configs: dict[str, Any] = {**_NO_HEADERS_IN_ADVANCE, **machine_settings(), **settings}
    key = _key(program, plans, {**configs, "compiler": [compiler.path, compiler.version]})
    folder = cache_folder() / "aotinductor" / (key or "")
    if direct:
        configs["aot_inductor.custom_ops_to_c_shims"] = direct
        # Link by the exact file name: `-l:libname.so`.
        files = [path for item in plans if not item.proxy for path, _ in item.files]
        configs["aot_inductor.custom_op_libs"] = [f":{path.name}" for path in files]
        search = [str(path.parent) for path in files]
    else:
        search = []
    if key is None:
        _compile(program, configs, search, out)
        return
    package = folder / "model.pt2"

    def make() -> Path:
        _compile(program, configs, search, out)
        partial = folder / "model.partial"
        shutil.copyfile(out, partial)
        os.replace(partial, package)
        return out

    once(folder, lambda: out if _reuse(package, out) else None, make)


def _reuse(known: Path, out: Path) -> bool:
    try:
        with zipfile.ZipFile(known) as package:
            if package.testzip() is not None:
                return False
        shutil.copyfile(known, out)
    except (OSError, zipfile.BadZipFile):
        return False
    return True


def _compile(
    program: ExportedProgram, configs: dict[str, Any], search: Sequence[str], out: Path
) -> None:
    with (
        _LOCK,
        _environment(search),
        status("compiling the model with AOTInductor"),
        warnings.catch_warnings(),
    ):
        # Ignore PyTorch's own deprecations.
        warnings.simplefilter("ignore")
        try:
            torch_inductor.compile_and_package(program, str(out), configs)
        except Exception as error:
            raise ExportError(f"AOTInductor could not compile the model:\n{error}") from error


def machine_settings() -> dict[str, Any]:
    """Return the settings that make inductor compile for the processor of the kernels."""
    chosen = machine.architecture()
    if chosen == "native":
        return {}
    config = torch_inductor.settings()
    settings: dict[str, Any] = {"cpp.simdlen": _VECTOR_BITS.get(chosen, 1)}
    if hasattr(config.cpp, "march"):
        settings["cpp.march"] = "" if chosen == "generic" else chosen
    return settings


@contextmanager
def _environment(folders: Sequence[str]) -> Iterator[None]:
    """Make inductor's compilers find libraries in `folders`, and end when this process ends.

    Inductor has a setting for libraries, but not for their folders.
    """
    before = os.environ.get("LIBRARY_PATH")
    search = ":".join([*folders, *([before] if before else [])])
    with watched_environment() as variables, environment({**variables, "LIBRARY_PATH": search}):
        yield


def _key(
    program: ExportedProgram, plans: Sequence[Plan], settings: Mapping[str, Any]
) -> str | None:
    """Return a digest of everything that affects the result; `None` if the model is not cached."""
    weights = [*program.state_dict.values(), *program.constants.values()]
    tensors = [value for value in weights if isinstance(value, torch.Tensor)]
    if sum(value.nbytes for value in tensors) > _LARGEST_REMEMBERED:
        return None
    try:
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        facts = {
            "opsmith": version(),
            "torch": torch.__version__,
            "git": torch.version.git_version,
            "inductor": _inductor_settings(),
            "settings": settings,
            "processor": machine.processor(),
            "march": machine.architecture(),
            "operators": [
                [
                    item.operator.name,
                    item.device,
                    item.proxy,
                    item.tag,
                    sorted(map(str, item.operator.overload.tags)),
                ]
                for item in plans
            ],
            "module": hashlib.sha256(Path(__file__).read_bytes()).hexdigest(),
        }
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        with zipfile.ZipFile(buffer) as archive:
            for name in sorted(archive.namelist()):
                # The example's values do not affect the result, nor does what PyTorch computes from
                # them.
                if "/data/sample_inputs/" not in name and not name.endswith("/serialization_id"):
                    data = archive.read(name)
                    digest.update(name.encode())
                    digest.update(_without_origins(data) if name.endswith(".json") else data)
    except Exception:  # A program that cannot be saved is compiled each time.
        return None
    return digest.hexdigest()[:24]


def _inductor_settings() -> str:
    """Return a digest of inductor's settings that is equal in every working directory."""
    config = torch_inductor.settings()
    # This setting is for another device, and defaults to the working directory.
    depends = hasattr(getattr(config, "xpu", None), "cutlass_dir")
    with config.patch({"xpu.cutlass_dir": ""} if depends else {}):
        return str(config.get_hash().hex())


_ORIGINS = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")


def _without_origins(data: bytes) -> bytes:
    """Return a model's JSON without the fields that say from which source line a node comes."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: strip(inner) for name, inner in value.items() if name not in _ORIGINS}
        return [strip(inner) for inner in value] if isinstance(value, list) else value

    return json.dumps(strip(json.loads(data)), sort_keys=True).encode()
