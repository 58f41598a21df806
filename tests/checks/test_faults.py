import pytest
from faulty import FAULTS

from opsmith import CheckError, checks, testing


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name):
    operator, check, words = FAULTS[name]
    report = checks.run(operator, select=[check], isolate=False)
    assert [row.status for row in report.rows] == ["failed"], report.rows
    text = report.explain()
    assert f"{operator.name}: check {check!r} failed" in text
    assert words in text
    if words != "the reference refuses every sampled case":
        assert "smallest case: x: " in text
    assert f"repeat: opsmith check tests/checks/faulty.py --check {check} --seed 0" in text
    with pytest.raises(CheckError, match=f"check {check!r} failed"):
        testing.check(operator, select=[check])
