"""What stands for ``dataclasses`` in an installed package does what that does, as far as asked."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from opsmith.wheels import carried

FILE = Path(carried.__file__).parent / "runtime" / "dataclasses.py"


def _ours() -> Any:
    spec = importlib.util.spec_from_file_location("dataclasses_of_a_wheel", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Made:
    """The same classes by one of the two."""

    def __init__(self, by: Any) -> None:
        @by.dataclass(frozen=True)
        class Point:
            x: int
            y: int = 2
            note: str = by.field(default="", compare=False)
            kind: ClassVar[str] = "point"

        @by.dataclass(frozen=True)
        class Named(Point):
            names: tuple[str, ...] = by.field(default_factory=tuple)

            def __repr__(self) -> str:
                return f"named {self.names}"

        @by.dataclass
        class Handle:
            path: str
            tags: list[str] = by.field(default_factory=list, kw_only=True)
            _open: bool = by.field(init=False, repr=False)

            def __post_init__(self) -> None:
                self._open = bool(self.path)

        self.Point, self.Named, self.Handle, self.replace = Point, Named, Handle, by.replace


@pytest.fixture(params=["dataclasses", "ours"])
def made(request: pytest.FixtureRequest) -> Made:
    return Made(dataclasses if request.param == "dataclasses" else _ours())


def test_what_they_are_made_of_shown_as_and_equal_to(made: Made) -> None:
    point = made.Point(1, note="why")
    assert (point.x, point.y, point.note, made.Point.y, point.kind) == (1, 2, "why", 2, "point")
    assert repr(point).endswith("Point(x=1, y=2, note='why')")
    assert point == made.Point(y=2, x=1) and hash(point) == hash(made.Point(1))
    assert point != made.Point(1, 3) and point != (1, 2)
    named = made.Named(1, 2, "", ("a",))
    assert named != made.Point(1) and repr(named) == "named ('a',)"
    match named:
        case made.Named(x, y):
            assert (x, y) == (1, 2)
    assert made.replace(named, names=(), x=5) == made.Named(5)


def test_which_may_change(made: Made) -> None:
    point, handle = made.Point(1), made.Handle("p", tags=["t"])
    for change in (lambda: setattr(point, "x", 2), lambda: delattr(point, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    assert handle._open and "_open" not in repr(handle)
    handle.path = ""
    assert handle != made.Handle("p", tags=["t"])
    assert made.Handle("a").tags is not made.Handle("a").tags
    with pytest.raises(TypeError, match="unhashable"):
        hash(handle)


def test_what_they_do_not_take(made: Made) -> None:
    for wrong in (
        lambda: made.Point(),
        lambda: made.Point(1, 2, "", 4),
        lambda: made.Point(1, x=2),
        lambda: made.Point(1, z=2),
        lambda: made.Handle("p", ["t"]),
        lambda: made.Handle("p", _open=True),
    ):
        with pytest.raises(TypeError):
            wrong()


def test_modules_in_wheels_use_no_more_of_it() -> None:
    known = set(_ours().__all__)
    for place, text in carried.modules().items():
        for names in re.findall(r"^from \.*dataclasses import (.*)$", text, re.MULTILINE):
            if place != "_opsmith/dataclasses.py":
                assert set(names.split(", ")) <= known, place
        assert place == "_opsmith/dataclasses.py" or "from dataclasses import" not in text, place
        assert set(re.findall(r"@dataclass\((.*)\)", text)) <= {"frozen=True"}, place
