"""The table of what is proved exactly has every operator of the gallery, in order."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import exact_table


def test_every_operator_is_in_the_table_in_order():
    names = [name for path in exact_table.files() for name in exact_table.declared(path)]
    assert len(names) > 25
    assert list(exact_table.table()) == names


def test_no_operator_fails():
    assert [line for line in exact_table.table().values() if "fails" in line] == []
