"""Take operators, samples and references from PyTorch's own test suite, and draft declarations.

What is written goes to ``build/corpus/drafts``: for each overload the file that `opsmith adopt`
writes, unedited, and the suite's samples as tensors. Drafting is slow, so it is done once.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opsmith.drafting import draft_operator
from opsmith.errors import DeclarationError

FOLDER = Path(__file__).parents[2] / "build" / "corpus"
DRAFTS = FOLDER / "drafts"
#: What became of each overload: `Drafted` as JSON.
INDEX = Path(__file__).parent / "drafted.json"
#: Samples of the suite that are tried, and that are kept, for each operator.
_TRIED, _KEPT = 40, 8
#: Elements of the largest tensor of a sample that is kept.
_ELEMENTS = 2000
#: Seconds in which a sample is found, and in which a declaration is drafted.
_SECONDS = 60


@dataclass(frozen=True)
class Drafted:
    """What became of one overload.

    Attributes:
        name: ``aten::add.Tensor``.
        entry: the name of its entry in the suite's list, ``add``.
        example: the suite's sample that the draft began with, as Python; empty where `opsmith
            adopt` found a call by itself.
        compared: whether the suite has a reference in NumPy or SciPy.
        refused: what `opsmith adopt` said in place of a draft, first alone, then with the example.
        seconds: how long drafting took.
        drafted: whether there is a draft.
    """

    name: str
    entry: str
    example: str = ""
    compared: bool = False
    refused: tuple[str, ...] = ()
    seconds: float = 0.0
    drafted: bool = False

    @property
    def file(self) -> Path:
        """Return the file of the draft."""
        return DRAFTS / f"{stem_of(self.name)}.py"


def stem_of(name: str) -> str:
    """Return ``aten_add_Tensor`` for ``aten::add.Tensor``."""
    return name.replace("::", "_").replace(".", "_")


def entries() -> list[Any]:
    """Return the suite's list of operators, with samples and references; takes 15 s to import."""
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def draft_all(parts: list[str]) -> Iterator[Drafted]:
    """Draft every operator that has no draft here yet, and yield what became of each.

    Args:
        parts: parts of the names of entries; all entries where there are none.
    """
    DRAFTS.mkdir(parents=True, exist_ok=True)
    known = index()
    done = {one.entry for one in known.values() if not one.drafted or one.file.is_file()}
    for entry in entries():
        label = f"{entry.name}.{entry.variant_test_name}".rstrip(".")
        if label in done or (parts and not any(part in label for part in parts)):
            continue
        found = _in_a_fork(entry, label, known)
        known[found.name or found.entry] = found
        yield found
        _write(known.values())


def _in_a_fork(entry: Any, label: str, known: Mapping[str, Drafted]) -> Drafted:
    """Draft an entry's overload in a copy of this process, which a call may end."""
    file = FOLDER / "one.json"
    file.unlink(missing_ok=True)
    copy = os.fork()
    if copy == 0:
        with contextlib.suppress(BaseException):
            file.write_text(json.dumps(_one(entry, label, known)))
        os._exit(0)
    _, status = os.waitpid(copy, 0)
    if not file.is_file():
        how = f"ended its process with status {status}"
        return Drafted("", label, refused=(how,))
    return _revived(_read(file))


def _one(entry: Any, label: str, known: Mapping[str, Drafted]) -> dict[str, Any]:
    try:
        with limited(_SECONDS):
            found = _overload_of(entry)
    except Exception as error:
        return asdict(Drafted("", label, refused=(f"no sample: {error}",)))
    if found is None:
        return asdict(Drafted("", label, refused=("no overload takes the suite's samples",)))
    if found[0] in known and known[found[0]].entry != label:
        return asdict(Drafted("", label, refused=(f"its overload is {found[0]}",)))
    return asdict(replace(_draft(*found, label), compared=entry.ref is not None))


def _revived(found: dict[str, Any]) -> Drafted:
    return Drafted(**{"name": "", **found, "refused": tuple(found.get("refused", ()))})


def index() -> dict[str, Drafted]:
    """Return what became of each overload, by its name, or its entry where it has none."""
    if not INDEX.is_file():
        return {}
    found = [_revived(one) for one in _read(INDEX)]
    return {one.name or one.entry: one for one in found}


def here() -> dict[str, Drafted]:
    """Return the overloads whose drafts are on this machine, by name."""
    return {name: one for name, one in index().items() if one.drafted and one.file.is_file()}


def _write(every: Iterable[Drafted]) -> None:
    lines = [json.dumps({k: v for k, v in asdict(one).items() if v}) for one in every]
    whole = INDEX.with_suffix(".new")
    whole.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    whole.replace(INDEX)


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """End a block by an exception after so many seconds."""

    def over(*_: Any) -> None:
        raise TimeoutError(f"not finished after {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _overload_of(entry: Any) -> tuple[str, list[tuple[Any, ...]]] | None:
    """Return the overload that an entry calls, and the samples, as arguments of the overload."""
    short = entry.name.rpartition(".")[2]
    names = dict.fromkeys((entry.aten_name, entry.name.replace(".", "_"), short))
    packets = [
        getattr(torch.ops.aten, name) for name in names if name and hasattr(torch.ops.aten, name)
    ]
    dtype = next(
        (one for one in (torch.float32, torch.int64, torch.bool) if one in entry.dtypes), None
    )
    if dtype is None or not packets:
        return None
    torch.manual_seed(0)
    samples = [
        ((one.input, *one.args), one.kwargs)
        for one in itertools.islice(entry.sample_inputs("cpu", dtype), _TRIED)
    ]
    best: tuple[str, list[tuple[Any, ...]]] | None = None
    for packet in packets:
        for name in packet.overloads():
            overload = getattr(packet, name)
            if "out" in name or any(one.is_out for one in overload._schema.arguments):
                continue
            taken = [one for one in samples if _takes(overload, entry.op, *one)]
            if taken and (best is None or len(taken) > len(best[1])):
                best = str(overload.name()), taken
    return best


def _takes(overload: Any, op: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Return whether an overload gives what the entry's function gives."""
    try:
        torch.manual_seed(0)
        wanted = op(*args, **kwargs)
        torch.manual_seed(0)
        found = overload(*args, **kwargs)
    except TimeoutError:
        raise
    except Exception:
        return False
    try:
        return _equal(found, wanted)
    except Exception:
        return False


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Tensor):
        return isinstance(found, Tensor) and torch.equal(
            torch.nan_to_num(found), torch.nan_to_num(wanted)
        )
    if isinstance(wanted, tuple | list):
        return len(found) == len(wanted) and all(map(_equal, found, wanted))
    return bool(found == wanted)


def _draft(name: str, samples: list[tuple[Any, ...]], label: str) -> Drafted:
    """Draft one overload: as a user does who names it, then with a sample of the suite."""
    file = Drafted(name, label).file
    started = time.monotonic()
    refused: list[str] = []
    text = ""
    # A sample with few and small tensors shows more than one that is large or empty.
    order = sorted(samples, key=lambda one: abs(_elements(one) - 30))
    for example in (None, *(_written(*one) for one in order[:2])):
        if example is not None and len(example) > 2000:
            continue
        try:
            with limited(_SECONDS):
                text = draft_operator(name, example)
        except (DeclarationError, TimeoutError) as error:
            refused.append(str(error))
            continue
        except Exception as error:
            refused.append(f"{type(error).__name__}: {error}")
            continue
        file.write_text(text)
        small = [one for one in samples if _elements(one) <= _ELEMENTS]
        step = max(1, len(small) // _KEPT)
        torch.save(small[::step][:_KEPT], file.with_suffix(".pt"))
        break
    else:
        example = ""
    seconds = round(time.monotonic() - started, 1)
    return Drafted(
        name, label, example or "", refused=tuple(refused), seconds=seconds, drafted=bool(text)
    )


def _elements(sample: tuple[Any, ...]) -> int:
    return max((one.numel() for one in _tensors(sample)), default=0)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _written(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return a sample as the Python that a user would give as an example."""
    positional = [_value(one) for one in args]
    return ", ".join([*positional, *(f"{name}={_value(one)}" for name, one in kwargs.items())])


def _value(value: Any) -> str:
    if isinstance(value, Tensor):
        shape = ", ".join(map(str, value.shape))
        if value.dtype == torch.float32 and value.numel() > 40:
            return f"torch.randn({shape})"
        listed = (
            [round(one, 3) if isinstance(one, float) else one for one in value.tolist()]
            if (value.dim() == 1)
            else value.tolist()
        )
        return f"torch.tensor({listed}, dtype={value.dtype})" + (
            f".reshape({shape})" if not value.numel() else ""
        )
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)
