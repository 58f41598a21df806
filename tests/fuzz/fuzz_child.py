"""The process that makes the calls, one after another; it may crash or hang, and is told apart.

python fuzz_child.py RUNTIME FOLDER OPERATOR,… SEED

Loads the runtime, and reads lines ``OPERATOR FROM TO fuzz`` and ``OPERATOR FROM TO baseline``. For
each it makes the calls, in a fork of its own where the runtime bears that, so that nothing is
loaded again after a crash. Writes one line of JSON before the first call (``begin`` and the
process), before each call (its number), after it (its outcome), and after the last.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import fuzz_arguments as arguments
import numpy as np
import torch
from fuzz_operators import OPERATORS
from fuzz_runtimes import RUNTIMES, Runtime
from fuzz_ways import UNSEEN, Killed, choose
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.utils._pytree import tree_leaves

from opsmith import DifferentiationError, Operator

_NO_CALL = "XLA makes no call for results without elements"

#: Ways after which what was written lies in the argument itself.
_WRITES = {"by name", "by position", "in a thread", "without gradients", "autocast"}


def _state() -> tuple[Any, ...]:
    """Return the state of this thread that PyTorch keeps, and some of its errors leave changed."""
    return (
        torch._C._functorch.maybe_current_level(),
        torch._C._len_torch_dispatch_stack(),
        str(torch._C._dispatch_tls_local_exclude_set()),
        str(torch._C._dispatch_tls_local_include_set()),
        torch.is_inference_mode_enabled(),
        torch.autograd.forward_ad._current_level,
    )


class Reached(Exception):
    """The call came as far as the operator."""


def _probe(*args: Any, **kwargs: Any) -> Any:
    raise Reached("the operator was reached")


Drawn = tuple[arguments.Call, str, Random]


class Fuzzer:
    """Makes and judges the calls of one operator in one runtime."""

    def __init__(self, runtime: Runtime, operator: Operator, seed: str) -> None:
        self.runtime, self.operator, self.seed = runtime, operator, seed
        names = [p.name for p in operator.signature.parameters]
        self._names = [*names, *runtime.inputs(operator), "nothing_so_called"]

    def draw(self, number: int) -> Drawn:
        """The call of a number, the same in every process."""
        runtime = self.runtime
        rng = Random(f"{self.seed}/{self.operator.name}/{runtime.name}/{number}")
        # torch.manual_seed keeps a seed, with a traceback, for each kind of device that is missing.
        torch.default_generator.manual_seed(number)
        call = arguments.draw(
            self.operator,
            rng,
            dtypes=runtime.dtypes,
            tensors_only=runtime.tensors_only,
            # A model takes as many tensors as it was exported with.
            length=2 if runtime.tensors_only else None,
        )
        way = choose(runtime.ways, rng)
        call.arguments = runtime.given(self.operator, call.arguments, rng)
        return call, way, rng

    def judge(self, number: int, drawn: Drawn | None = None) -> tuple[str, str]:
        """Make a call, drawn or not; what came of it, and what there is to say of that."""
        self.runtime.before(number)
        call, way, rng = drawn or self.draw(number)
        if self.operator.signature.name in self.runtime.inlined:
            # The reference in an operator's place does not compare values with the declaration.
            call.must_refuse &= set(call.spoiled.values()) != {"wrong values"}
        expected, unknown = None, "must be refused"
        if not call.must_refuse:
            expected, unknown = self._expected(call)
        state = rng.getstate()
        try:
            result = self.runtime.ways[way](
                self.runtime.function(self.operator), call.arguments, rng
            )
        except Killed as error:
            return "crashed", f"{way}: {error}"
        except Exception as error:
            # No argument is wrong where there is no gradient.
            no_gradient = any(isinstance(one, DifferentiationError) for one in causes(error))
            if self._is_named(str(error)) or (no_gradient and self.operator.name in str(error)):
                return "refused", ""
            note = f"{way}: {type(error).__name__}: {str(error)[:400]}"
            if self.runtime.probed and not self._is_reached(number, state):
                return "elsewhere", note
            if self.runtime.compared and alike(error, self.baseline(number, state)):
                return "elsewhere", note
            return "unnamed", note
        if result is UNSEEN or not self.runtime.real:
            return "accepted", ""
        if call.must_refuse:
            if self.runtime.name == "jax" and not any(np.size(one) for one in tree_leaves(result)):
                return "unchecked", f"{way}: {_NO_CALL}"
            return "wrong", f"{way}: accepted"
        if expected is None:
            return ("wrong" if unknown.startswith("!") else "unchecked"), f"{way}: {unknown}"
        written = way in _WRITES and self.runtime.writes
        return self._compare(call, expected, result, written, way)

    def _is_reached(self, number: int, state: Any) -> bool:
        """Return whether a call comes as far as the operator, from that state of chance."""
        call, way, rng = self.draw(number)
        rng.setstate(state)
        try:
            self.runtime.ways[way](_probe, call.arguments, rng)
        except Exception as error:
            return isinstance(error, Reached) or "the operator was reached" in str(error)
        return True

    def _is_named(self, message: str) -> bool:
        operator = self.operator.name in message or not self.runtime.names_operator
        marks = [mark for name in self._names for mark in (f"'{name}", f"input: {name} ")]
        count = " arguments" in message and "takes" in message
        return operator and (count or any(mark in message for mark in marks))

    def _expected(self, call: arguments.Call) -> tuple[Any, str]:
        """The reference's results and what it wrote; `None`, and why, where it gives none."""
        fixed = self.runtime.fixed(self.operator)
        try:
            if call.undefined or any(map(_without_values, tree_leaves(dict(call.arguments)))):
                return None, "no values"
            given = arguments.plain(self.operator, {**call.arguments, **fixed})
        except arguments.NotPlain as error:
            return None, f"! accepted though {error}"
        except Exception as error:
            return None, f"{type(error).__name__}: {str(error)[:80]}"
        empty = any(0 in t.shape for t in tree_leaves(given) if isinstance(t, Tensor))
        try:
            returned = self.operator.reference(**given)
        except Exception as error:
            if empty and self.runtime.name == "jax":
                return None, _NO_CALL
            return None, f"! accepted though the reference raises {str(error)[:80]}"
        results = returned if isinstance(returned, tuple) else (returned,)
        return (results, [given[p.name] for p in self.operator.signature.mutated]), ""

    def _compare(
        self, call: arguments.Call, expected: Any, result: Any, written: bool, way: str
    ) -> tuple[str, str]:
        results, changed = expected
        found = list(result) if isinstance(result, tuple | list) else [result]
        if self.runtime.name == "jax":
            results = (*results, *changed)
        elif written:
            results = (*results, *changed)
            found += [call.arguments[p.name] for p in self.operator.signature.mutated]
        found = found[: len(results)] if not self.runtime.writes else found
        try:
            tensors = [arguments.plain_tensor(value) for value in found]
            assert len(tensors) == len(results), f"{len(tensors)} results"
            for one, other in zip(tensors, results, strict=True):
                torch.testing.assert_close(one, other, equal_nan=True, rtol=1e-4, atol=1e-4)
        except AssertionError as error:
            return "wrong", f"{way}: {' '.join(str(error).split())[:200]}"
        except Exception as error:
            return "unchecked", f"{way}: {type(error).__name__}: {str(error)[:80]}"
        return "accepted", ""

    def baseline(self, number: int, state: Any = None) -> Exception | None:
        """Make the same call of `torch.add`, and return what it raises."""
        call, way, rng = self.draw(number)
        if state is not None:
            rng.setstate(state)

        try:
            self.runtime.ways[way](
                self.runtime.likewise(likeness(call.arguments)), call.arguments, rng
            )
        except Exception as error:
            return error
        return None


def add_to_each(*args: Any, **kwargs: Any) -> list[Tensor]:
    """Add to every tensor, and return every sum: a compiler leaves out what nobody reads."""
    return [
        torch.add(torch.as_tensor(value), 1)
        for value in tree_leaves((args, kwargs))
        if isinstance(value, Tensor | np.ndarray)
    ]


def add_together(*args: Any, **kwargs: Any) -> list[Tensor]:
    """Add each tensor to the next, too."""
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
    together = [torch.add(one.sum(), other.sum()) for one, other in itertools.pairwise(tensors)]
    return [*add_to_each(*args, **kwargs), *together]


def likeness(values: Mapping[str, Any]) -> Callable[..., list[Tensor]]:
    """Return the function of PyTorch's that a call is compared with.

    No operator takes tensors that are fake beside others, so that adding to each says too little.
    """
    tensors = [value for value in tree_leaves(dict(values)) if isinstance(value, Tensor)]
    mixed = len({isinstance(value, FakeTensor) for value in tensors}) > 1
    return add_together if mixed else add_to_each


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and the errors that it was raised from: compilers wrap those they meet."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def alike(one: BaseException | None, other: BaseException | None) -> bool:
    """Return whether two errors, and their causes, are of one kind and begin alike.

    Numbers, places in memory, and the operator's name may differ.
    """
    if one is None or other is None:
        return one is other
    same = type(one) is type(other) and _beginning(one) == _beginning(other)
    return same and alike(one.__cause__, other.__cause__)


def _beginning(error: BaseException) -> str:
    # A FakeTensorMode quotes the call in which it found tensors of both kinds.
    lines = [*str(error).partition(" Found in ")[0].splitlines(), "", ""]
    # Dynamo quotes the error that it met, after lines that are the same for every error.
    said = " ".join([*lines[: 1 + lines[0].endswith("raised:")], *re.findall("got .*", str(error))])
    return re.sub(r"torch\._ops\.[\w.]+|0x[0-9a-f]+|\d+", "#", said)


def _without_values(value: Any) -> bool:
    if not isinstance(value, Tensor):
        return False
    if value.device.type == "meta" or type(value).__name__ == "FakeTensor":
        return True
    return torch._C._functorch.is_functorch_wrapped_tensor(value) or (
        value.numel() > 10**6 or torch._is_zerotensor(value)
    )


def describe(call: arguments.Call, way: str) -> str:
    """A call in one line."""
    spoiled = ", ".join(f"{name}: {how}" for name, how in call.spoiled.items()) or "as declared"
    return f"{way}; {spoiled}"


def main() -> None:
    name, folder, operators, seed = sys.argv[1:]
    pipe = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not mix with what is said here

    def say(*words: Any) -> None:
        os.write(pipe, json.dumps(words).encode() + b"\n")

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    runtime = RUNTIMES[name](Path(folder), operators.split(","))
    runtime.load()
    say("loaded")
    for line in sys.stdin:
        operator, first, last, what = line.split()
        fuzzer = Fuzzer(runtime, OPERATORS[operator], seed)
        if runtime.forks and (child := os.fork()):
            _, status = os.waitpid(child, 0)
            if status != 0:
                say("died", status)
            continue
        say("process", os.getpid())
        state = _state()
        for number in range(int(first), int(last)):
            drawn = fuzzer.draw(number)
            say("begin", number, describe(*drawn[:2]))
            if what == "baseline":
                fuzzer.baseline(number)
                continue
            outcome, note = fuzzer.judge(number, drawn)
            if outcome in ("accepted", "refused"):
                say("end", number, outcome)
            else:
                say("end", number, outcome, note)
            if runtime.forks and _state() != state:
                say("stale", number)
                break
            if number % 500 == 0:
                gc.collect()
        else:
            say("done")
        if runtime.forks:
            os._exit(0)
    os._exit(0)


if __name__ == "__main__":
    main()
