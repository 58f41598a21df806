"""The judge's process imports nothing that changed since a candidate may run."""

import importlib
import os
import py_compile
import sys
import time

import pytest
from test_snapshot import written

from opsmith.judge.closed import closed
from opsmith.judge.snapshot import collect


@pytest.fixture
def files(tmp_path):
    place = written(
        tmp_path / "given",
        {
            "closed_spec.py": "def f():\n    import closed_late\n    return closed_late.A\n",
            "closed_late.py": "A = 1\n",
        },
    )
    return collect(place / "closed_spec.py").copy_to(tmp_path / "copy")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a folder on `sys.path` whose files are older than any run of the judge."""
    folder = tmp_path / "installed"
    written(folder, {"closed_old.py": "A = 1\n", "closed_two.py": "A = 1\n"})
    time.sleep(0.2)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name in sys.modules if name.startswith("closed_")]:
        del sys.modules[name]


def test_what_was_there_before_is_imported_and_what_was_planted_is_not(files, installed):
    with closed(files):
        assert importlib.import_module("closed_old").A == 1
        (installed / "closed_new.py").write_text("A = 2\n")
        importlib.invalidate_caches()
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("closed_new")
    assert importlib.import_module("closed_new").A == 2, "the rule ends with the block"


def test_a_file_that_is_rewritten_or_replaced_is_not_imported_whatever_its_times(files, installed):
    with closed(files):
        target = installed / "closed_old.py"
        target.write_text("A = 2\n")
        os.utime(target, (0, 0))
        other = installed / "closed_other.py"
        other.write_text("A = 3\n")
        os.utime(other, (0, 0))
        other.rename(installed / "closed_two.py")
        for name in ("closed_old", "closed_two"):
            with pytest.raises(ModuleNotFoundError):
                importlib.import_module(name)


def test_a_planted_file_hides_none_behind_it(files, installed, tmp_path, monkeypatch):
    first = tmp_path / "first"
    first.mkdir()
    monkeypatch.syspath_prepend(str(first))
    with closed(files):
        written(first, {"closed_old.py": "A = 2\n"})
        importlib.invalidate_caches()
        assert importlib.import_module("closed_old").A == 1


def test_bytecode_is_neither_read_nor_written(files, installed, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    source = installed / "closed_old.py"
    poison = installed / "poison.py"
    poison.write_text("A = 2\n")
    os.utime(poison, ns=(0, source.stat().st_mtime_ns))
    bytecode = importlib.util.cache_from_source(str(source))
    py_compile.compile(str(poison), bytecode, dfile=str(source))
    with closed(files):
        assert importlib.import_module("closed_old").A == 1
        importlib.import_module("closed_two")
    assert not os.path.exists(importlib.util.cache_from_source(str(installed / "closed_two.py")))
    del sys.modules["closed_old"]
    assert importlib.import_module("closed_old").A == 2, "the poison works elsewhere"


def test_what_a_specification_imports_late_comes_from_memory(files, installed):
    sys.path.insert(0, str(files.root))
    spec = importlib.import_module("closed_spec")
    late = files.root / "closed_late.py"
    with closed(files):
        assert str(files.root) not in sys.path
        late.chmod(0o644)
        late.write_text("A = 2\n")
        assert spec.f() == 1
    sys.path.remove(str(files.root))


def test_a_failure_is_explained_though_a_module_of_the_profiler_was_planted(files, installed):
    # Dynamo imports cProfile when it is imported; a planted file of this name once ran here.
    with closed(files):
        for name in ("cProfile", "pstats", "torch._dynamo", "hypothesis"):
            assert name in sys.modules
