import pytest
from faulty import FAULTS

from opsmith import checks


@pytest.mark.slow
@pytest.mark.usefixtures("brief_shrinking")
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name):
    operator, check, words = FAULTS[name]
    caseless = words == "the reference refuses every sampled case"
    report = checks.run(operator, select=[check], isolate=False)
    assert [row.status for row in report.rows] == ["failed"], report.rows
    text = report.explain()
    assert f"{operator.name}: check {check!r} failed" in text
    assert words in text
    if not caseless:
        assert "smallest case: x: " in text
    assert f"repeat: opsmith check tests/checks/faulty.py --check {check} --seed 0" in text
