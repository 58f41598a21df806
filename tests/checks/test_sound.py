import pytest
from sound import OPERATORS

from opsmith import testing


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_a_sound_operator_passes_every_check(operator):
    report = testing.check(operator, examples=30)
    # Nothing is left out in silence.
    for row in report.rows:
        assert row.message if row.status == "not applicable" else row.cases, row
