"""Run this artifact with onnxruntime and NumPy alone.

python run.py inputs.npz outputs.npz        # arrays by the names of inputs and outputs

from run import load                        # from a program: a checked onnxruntime session
outputs = load().run(None, {"x": x})
"""

import hashlib
import json
import platform
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
VERSIONS = (1, 2)  # Versions of the manifest.
#: ONNX Runtime's messages for an index out of bounds.
OUT_OF_BOUNDS = re.compile("invalid indice|out of (data )?bounds|within bounds", re.IGNORECASE)


def check(folder: Path = HERE) -> Any:
    """Compare every file with the manifest, and this machine with the exporting machine.

    Raises RuntimeError, naming the file, in the cases in which `opsmith.load` would refuse the
    folder.
    """
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        _check_kind(path, manifest)
        _check_files(folder, manifest)
        _check_machine(manifest["details"])
    except OSError as error:
        raise RuntimeError(f"{path} cannot be read: {error.strerror}") from None
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise RuntimeError(f"{path} is damaged: {type(error).__name__}: {error}") from None
    return manifest


def _check_kind(path: Path, manifest: Any) -> None:
    version = manifest["manifest"]
    if version not in VERSIONS:
        raise RuntimeError(f"{path} has version {version!r}, and this program reads {VERSIONS}")
    kind = manifest["kind"] if version > 1 else "model"
    if (manifest["target"], kind) != ("onnxruntime", "model"):
        raise RuntimeError(
            f"{path} is of {kind!r} for {manifest['target']!r}, not for this program"
        )


def _check_files(folder: Path, manifest: Any) -> None:
    files, details = manifest["files"], manifest["details"]
    for name, known in files.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise RuntimeError(f"{folder / 'manifest.json'} names {name!r}, outside the artifact")
        path = folder / name
        if not path.is_file():
            raise RuntimeError(f"{path} is missing; the manifest lists it")
        if hashlib.sha256(path.read_bytes()).hexdigest() != known["sha256"]:
            raise RuntimeError(f"{path} is not the file that was exported, and is not loaded")
    for name in (details["model"], *details["libraries"]):
        if name not in files:
            raise RuntimeError(f"{folder / 'manifest.json'} lists no file {name!r}")


def _check_machine(details: Any) -> None:
    if not details["libraries"]:
        return
    here = f"{platform.system()}-{platform.machine()}"
    if here != details["platform"]:
        raise RuntimeError(f"compiled for {details['platform']}, and this is {here}")
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lacking = sorted(set(details["processor"]) - set(cpuinfo.read_text().split()))
        if lacking:
            raise RuntimeError(f"compiled for a processor with {', '.join(lacking)}")


def load(folder: Path = HERE, options: Any = None, providers: Any = None) -> Any:
    """Return an onnxruntime session, after checking the files.

    `options` are its SessionOptions; `providers` replace the ones that it was exported for. The
    session's `run` accepts arrays of any byte order, and raises IndexError for an index out of
    bounds.
    """
    import onnxruntime

    manifest = check(folder)
    providers = list(providers or manifest["details"].get("providers") or ["CPUExecutionProvider"])
    wanted = providers[0] if isinstance(providers[0], str) else providers[0][0]
    here = onnxruntime.get_available_providers()
    if wanted not in here:
        raise RuntimeError(f"needs {wanted}, and this onnxruntime has only {', '.join(here)}")
    options = options or onnxruntime.SessionOptions()
    for name in manifest["details"]["libraries"]:
        options.register_custom_ops_library(str(folder / name))
    model = str(folder / manifest["details"]["model"])
    session = _session_class()(model, options, providers=providers)
    if session.get_providers()[0] != wanted:
        # ONNX Runtime has continued without the provider.
        raise RuntimeError(f"{wanted} did not start, as onnxruntime wrote to stderr")
    return session


def _session_class() -> Any:
    import numpy as np
    import onnxruntime

    def native(value: Any) -> Any:
        # ONNX Runtime would read the bytes of any array in this machine's byte order.
        swapped = isinstance(value, np.ndarray) and not value.dtype.isnative
        return value.astype(value.dtype.newbyteorder("=")) if swapped else value

    class _Session(onnxruntime.InferenceSession):  # type: ignore[misc]
        def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
            feed = {name: native(value) for name, value in input_feed.items()}
            # ONNX Runtime does not compare sizes of one name, and nodes broadcast what differs.
            if all(isinstance(value, np.ndarray) for value in feed.values()):
                self._refuse(feed)
            try:
                return super().run(output_names, feed, run_options)
            except Exception as error:
                if OUT_OF_BOUNDS.search(str(error)):
                    raise IndexError(str(error)) from error
                self._refuse(feed, error)
                raise

        def _refuse(self, feed: Any, error: Any = None) -> None:
            sizes: Any = {}
            for expected in self.get_inputs():
                problem = _problem(expected, feed) or _size_problem(expected, feed, sizes)
                if problem is not None:
                    raise ValueError(f"input {expected.name!r} {problem}") from error

    return _Session


def _problem(expected: Any, feed: Any) -> Any:
    """Return why ONNX Runtime cannot accept an input, as the end of a sentence, else `None`."""
    if expected.name not in feed:
        return f"is missing; there are {', '.join(feed) or 'none'}"
    value = feed[expected.name]
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return f"is {type(value).__name__}, expected an array"
    kind = expected.type[len("tensor(") : -1]
    wanted = {"float": "float32", "double": "float64"}.get(kind, kind)
    if str(value.dtype) != wanted and kind != "string":
        return f"has dtype {value.dtype}, expected {wanted}"
    if len(value.shape) != len(expected.shape):
        return f"has {len(value.shape)} dimensions, expected {len(expected.shape)}"
    return None


def _size_problem(expected: Any, feed: Any, sizes: Any) -> Any:
    """Return why an input's sizes fit neither the model nor the inputs before it, else `None`.

    `sizes` has the sizes of the named dimensions so far, and where each was found.
    """
    for dim, wanted in enumerate(expected.shape):
        size, source = feed[expected.name].shape[dim], "the model"
        if isinstance(wanted, str):
            place = f"dimension {dim} of input {expected.name!r}"
            wanted, source = sizes.setdefault(wanted, (size, place))
        if wanted is not None and size != wanted:
            return f"has size {size} in dimension {dim}, expected {wanted}, as {source} has"
    return None


def _read(path: str) -> Any:
    import numpy as np

    arrays = {}
    with np.load(path) as inputs:
        for name in inputs.files:
            try:
                arrays[name] = inputs[name]
            except ValueError as error:
                raise ValueError(f"{path}: input {name!r}: {error}") from error
    return arrays


def main() -> None:
    """Read inputs from one .npz file, run once, and write the outputs to another."""
    import numpy as np

    if len(sys.argv) != 3:
        sys.exit("usage: python run.py inputs.npz outputs.npz")
    session = load()
    outputs = session.run(None, _read(sys.argv[1]))
    names = [output.name for output in session.get_outputs()]
    np.savez(sys.argv[2], **dict(zip(names, outputs, strict=True)))


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        sys.exit(f"error: {error}")
