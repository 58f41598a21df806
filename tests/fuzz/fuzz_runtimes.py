"""Runtimes that the operators are called in: how each is made ready, and called."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from fuzz_operators import NATIVE, OPERATORS
from fuzz_ways import EAGER, TRACING, TRANSFORMS, UNSEEN, Way
from torch import Tensor

import opsmith
from opsmith import Operator

Arguments = Mapping[str, Any]


def _some(*names: str) -> Mapping[str, Way]:
    """Ways of calling that are no matter of PyTorch."""
    return {name: EAGER[name] for name in names}


class Runtime:
    """Calls operators in one runtime.

    Attributes:
        name: as the table has it.
        ways: the ways of calling.
        operators: the operators' short names.
        tensors_only: whether a call passes nothing but tensors.
        real: whether tensors that fit hold values, so that some calls must be refused.
        dtypes: of floating tensors.
        names_operator: whether a message must name the operator too.
        probed: whether one can see if a call reached the operator before it failed.
        compared: whether a message that PyTorch has for `torch.add`, too, is PyTorch's own.
        forks: whether calls may be made in a fork of the process that loaded the runtime.
        writes: whether written arguments are written in place.
        inlined: the operators in whose place the runtime runs their references.
        chosen: the operators that are called.
    """

    name = "eager"
    ways: Mapping[str, Way] = EAGER
    operators = tuple(OPERATORS)
    tensors_only = False
    real = True
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64)
    names_operator = True
    probed = True
    compared = False
    forks = True
    writes = True
    inlined: tuple[str, ...] = ()

    def __init__(self, folder: Path, operators: Sequence[str] = ()) -> None:
        self.folder = folder
        chosen = operators or self.operators
        self.chosen = [name for name in self.operators if name in chosen]

    def prepare(self) -> None:
        """Build and export; before any child is started."""
        for name in self.chosen:
            OPERATORS[name].build()

    def load(self) -> None:
        """Make a child ready."""
        for name in self.chosen:
            OPERATORS[name].build()

    def function(self, operator: Operator) -> Callable[..., Any]:
        """Return the function that calls the operator."""
        return operator

    def given(self, operator: Operator, arguments: Arguments, rng: Random) -> dict[str, Any]:
        """The arguments as this runtime is given them."""
        return dict(arguments)

    def before(self, number: int) -> None:
        """Called before every call."""

    def likewise(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function, called as the operators are."""
        return function

    def fixed(self, operator: Operator) -> dict[str, Any]:
        """The arguments that are part of the model."""
        return {}

    def inputs(self, operator: Operator) -> list[str]:
        """Return the names of arguments in messages, if they differ from the declaration's."""
        return []


class Transforms(Runtime):
    name = "transforms"
    ways = TRANSFORMS


class Tracing(Runtime):
    name = "tracing"
    ways = TRACING
    real = False
    compared = True


#: Calls after which compiled graphs are forgotten, and so the most graphs of one function.
_COMPILATIONS = 1000


class Compile(Runtime):
    name = "compile"
    probed = False
    compared = True
    ways = _some("by name", "by position")

    def load(self) -> None:
        super().load()
        self._number = 0
        self._compiled: dict[tuple[str, str], Any] = {}
        importlib.import_module("torch._inductor.compile_fx")  # for every fork at once
        # Past these limits, Dynamo stops compiling and calls the operator as it is.
        torch._dynamo.config.recompile_limit = _COMPILATIONS
        torch._dynamo.config.accumulated_recompile_limit = _COMPILATIONS

    def _backend(self) -> str:
        """Return the backend of this call: slow ones seldom."""
        if self._number % 100 == 37:
            return "inductor"
        return "aot_eager" if self._number % 10 == 3 else "eager"

    def function(self, operator: Operator) -> Callable[..., Any]:
        backend = self._backend()
        key = (operator.name, backend)
        if key not in self._compiled:

            def call(*args: Any, **kwargs: Any) -> Any:
                return operator(*args, **kwargs)

            self._compiled[key] = torch.compile(call, backend=backend)
        return self._compiled[key]

    def likewise(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, backend=self._backend())

    def before(self, number: int) -> None:
        self._number = number
        # Graphs pile up, and each call tries their guards one after another.
        if number % _COMPILATIONS == 0:
            torch._dynamo.reset()
            self._compiled.clear()


class _Model(torch.nn.Module):
    def __init__(self, operator: Operator, fixed: Arguments) -> None:
        super().__init__()
        self.operator, self.fixed = operator, dict(fixed)

    def forward(self, *tensors: Any) -> Any:
        names = [p.name for p in self.operator.signature.tensors]
        return self.operator(**dict(zip(names, tensors, strict=True)), **self.fixed)


_EXAMPLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "scale": ({"x": torch.ones(3, 4)}, {"k": 2.0, "flip": True}),
    "take": ({"x": torch.ones(3, 4), "rows": torch.tensor([0, 1])}, {}),
    "blend": ({"x": torch.ones(3, 4), "bias": torch.ones(4)}, {"weight": 3}),
    "total": ({"xs": [torch.ones(3, 4), torch.ones(3, 4)]}, {"mode": "mean"}),
    "add_to": ({"x": torch.ones(3, 4), "total": torch.ones(4)}, {"factor": 3}),
    "patch": ({"x": torch.ones(3, 4)}, {"size": (2, 5)}),
    "peak": ({"x": torch.ones(3, 4), "mask": torch.ones(3, 4, dtype=torch.bool)}, {}),
    "spread": ({"x": torch.ones(3)}, {"weights": [1.0, 2.0], "shift": 0.5}),
    "in_python": (
        {"x": torch.ones(3, 4), "rows": torch.tensor([0, 1]), "bias": torch.ones(4)},
        {"k": 1.5},
    ),
}


class _Exported(Runtime):
    """Models of one call each, loaded by `opsmith.load`."""

    target = ""
    options: Mapping[str, Mapping[str, Any]] = types.MappingProxyType({})
    operators = tuple(_EXAMPLES)
    inlined = ("in_python",)
    tensors_only = True
    names_operator = probed = writes = forks = False
    dtypes = (torch.float32,)
    ways = _some("by name", "in a thread", "in inference mode")

    def _folder(self, name: str) -> Path:
        return self.folder / self.target / name

    def prepare(self) -> None:
        super().prepare()
        for name in self.chosen:
            tensors, fixed = _EXAMPLES[name]
            if (self._folder(name) / "manifest.json").is_file():
                continue
            sizes = [
                [dict.fromkeys(range(one.dim()), torch.export.Dim.AUTO) for one in value]
                if isinstance(value, list)
                else dict.fromkeys(range(value.dim()), torch.export.Dim.AUTO)
                for value in tensors.values()
            ]
            opsmith.export(
                _Model(OPERATORS[name], fixed).eval(),
                tuple(tensors.values()),
                target=self.target,
                out=self._folder(name),
                dynamic_shapes=(tuple(sizes),),
                say=None,
                **self.options.get(name, {}),
            )

    def load(self) -> None:
        super().load()
        self._loaded = {name: opsmith.load(self._folder(name)) for name in self.chosen}

    def function(self, operator: Operator) -> Callable[..., Any]:
        loaded = self._loaded[operator.signature.name]
        names = [p.name for p in operator.signature.tensors]
        return lambda **arguments: loaded(*(arguments[name] for name in names))

    def given(self, operator: Operator, arguments: Arguments, rng: Random) -> dict[str, Any]:
        tensors = [p.name for p in operator.signature.tensors]
        return {name: value for name, value in arguments.items() if name in tensors}

    def fixed(self, operator: Operator) -> dict[str, Any]:
        return _EXAMPLES[operator.signature.name][1]

    def inputs(self, operator: Operator) -> list[str]:
        return [
            spec.name for spec in self._loaded[operator.signature.name].artifact.manifest.inputs
        ]


class AOTInductor(_Exported):
    forks = True
    options: Mapping[str, Mapping[str, Any]] = types.MappingProxyType(
        {"in_python": {"form": {"fuzz::in_python": "inline"}}}
    )
    name = target = "aotinductor"


class OnnxRuntime(_Exported):
    name = target = "onnxruntime"
    # The inputs of an ONNX model cannot be written into.
    operators = tuple(name for name in _EXAMPLES if name != "add_to")


class RunPy(_Exported):
    """The program beside an artifact, on files of arrays; one process, its ``main`` each time."""

    name, target = "run.py", "onnxruntime"
    operators = OnnxRuntime.operators
    ways = _some("by name")

    def load(self) -> None:
        super().load()
        self._programs = {}
        for name in self.chosen:
            path = self._folder(name) / "run.py"
            spec = importlib.util.spec_from_file_location(f"run_{name}", path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self._programs[name] = module
        self._files = Path(os.environ.get("TMPDIR", "/tmp")) / f"opsmith-fuzz-{os.getpid()}"
        self._files.mkdir(exist_ok=True)

    def given(self, operator: Operator, arguments: Arguments, rng: Random) -> dict[str, Any]:
        """Return the arguments as a file of arrays can hold them; a text replaces the others."""

        def stored(value: Any) -> Any:
            try:
                if isinstance(value, Tensor):
                    value = value.detach().resolve_conj().resolve_neg().numpy()
                return np.array(value if np.size(value) < 10**6 else "large")
            except Exception:  # NumPy has no such array
                return np.array("none")

        return {
            name: [stored(item) for item in value]
            if isinstance(value, list) and len(value) == 2
            else stored(value)
            for name, value in super().given(operator, arguments, rng).items()
        }

    def function(self, operator: Operator) -> Callable[..., Any]:
        program = self._programs[operator.signature.name]
        artifact = self._loaded[operator.signature.name].artifact

        def call(**arguments: Any) -> Any:
            flat = [
                item
                for value in arguments.values()
                for item in (value if isinstance(value, list) else [value])
            ]
            arrays = {spec.name: v for spec, v in zip(artifact.manifest.inputs, flat, strict=False)}
            given, out = self._files / "in.npz", self._files / "out.npz"
            np.savez(given, **arrays)
            before = sys.argv
            sys.argv = ["run.py", str(given), str(out)]
            try:
                program.main()
            except SystemExit as error:
                raise RuntimeError(str(error)) from None
            finally:
                sys.argv = before
            with np.load(out) as outputs:
                found = tuple(torch.from_numpy(outputs[name]) for name in outputs.files)
            return found if len(found) > 1 else found[0]

        return call


class _Package(Runtime):
    """Operators exported as such."""

    target = ""
    probed = False
    operators = tuple(op.signature.name for op in NATIVE if op.signature.name != "positive")

    def prepare(self) -> None:
        super().prepare()
        out = self.folder / self.target / "package"
        if not (out / "manifest.json").is_file():
            exported = [OPERATORS[name] for name in self.operators]
            opsmith.export(
                exported, target=self.target, out=out, package=f"fuzz_{self.target}", say=None
            )

    def load(self) -> None:
        super().load()
        self._loaded = opsmith.load(self.folder / self.target / "package")

    def function(self, operator: Operator) -> Callable[..., Any]:
        return self._loaded[operator.name]


class Python(_Package):
    name = target = "python"
    ways = _some("by name", "by position", "in a thread", "in a fork")

    def given(self, operator: Operator, arguments: Arguments, rng: Random) -> dict[str, Any]:
        as_arrays = rng.random() < 0.5
        return {k: _array(v) if as_arrays else v for k, v in arguments.items()}


def _array(value: Any) -> Any:
    """A plain tensor as an array, a list of them as a list; else as it is."""
    if isinstance(value, list):
        return [_array(item) for item in value]
    if type(value) is not Tensor:
        return value
    try:
        array = value.numpy()
    except Exception:
        return value
    # An array says nothing of the storage: nothing that writes into it could see its end.
    end = value.storage_offset() * value.element_size() + array.nbytes
    return value if end > value.untyped_storage().nbytes() else array


class Jax(_Package):
    name = target = "jax"
    probed = True
    forks = False

    def __init__(self, folder: Path, operators: Sequence[str] = ()) -> None:
        super().__init__(folder, operators)
        self.ways = {
            **_some("by name", "by position", "in a thread"),
            "jit": self._jit,
            "vmap": self._vmap,
            "eval_shape": self._shapes,
        }

    def load(self) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        super().load()

    def given(self, operator: Operator, arguments: Arguments, rng: Random) -> dict[str, Any]:
        import jax

        as_jax = rng.random() < 0.5

        def array(value: Any) -> Any:
            if isinstance(value, list):
                return [array(item) for item in value]
            found = _array(value)
            if as_jax and isinstance(found, np.ndarray) and type(value) is Tensor:
                # Expanded tensors may have terabytes of elements.
                return jax.device_put(found.copy()) if found.size < 10**6 else found
            return found

        return {name: array(value) for name, value in arguments.items()}

    @staticmethod
    def _traced(arguments: Arguments) -> list[str]:
        import jax

        return [
            name for name, value in arguments.items() if isinstance(value, jax.Array | np.ndarray)
        ]

    def _jit(self, call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
        import jax

        names = self._traced(arguments)
        rest = {name: value for name, value in arguments.items() if name not in names}
        arrays = {name: arguments[name] for name in names}
        return jax.jit(lambda given: call(**given, **rest))(arrays)

    def _vmap(self, call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
        import jax

        names = self._traced(arguments)
        rest = {name: value for name, value in arguments.items() if name not in names}
        arrays = {name: np.stack([np.asarray(arguments[name])] * 2) for name in names}
        if not arrays:
            return call(**arguments)
        found = jax.vmap(lambda given: call(**given, **rest))(arrays)
        return jax.tree_util.tree_map(lambda one: one[1], found)

    def _shapes(self, call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
        import jax

        names = self._traced(arguments)
        rest = {name: value for name, value in arguments.items() if name not in names}
        jax.eval_shape(lambda given: call(**given, **rest), {n: arguments[n] for n in names})
        return UNSEEN


RUNTIMES: dict[str, type[Runtime]] = {
    one.name: one
    for one in (
        Runtime, Transforms, Tracing, Compile, AOTInductor, OnnxRuntime, RunPy, Python, Jax,
    )
}  # fmt: skip
