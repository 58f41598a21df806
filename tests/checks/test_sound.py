import pytest
from sound import OPERATORS

from opsmith import testing
from opsmith.checks import all_checks

# The targets' checks come later and have tests of their own.
PYTORCH = [check.name for check in all_checks() if check.order < 200]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_a_sound_operator_passes_every_check(operator):
    report = testing.check(operator, select=PYTORCH, examples=30)
    # Nothing is left out in silence.
    for row in report.rows:
        assert row.message if row.status == "not applicable" else row.cases, row
