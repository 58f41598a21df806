"""Words for a candidate that cannot be imported."""

import pytest

from opsmith.checks.cases.failure import Failure
from opsmith.judge.session import Session


@pytest.mark.parametrize(
    ("how", "code", "said", "coded"),
    [
        (
            "did not return within 20 s",
            "OPS-CALL-HANG",
            "importing the candidate, with the compilation of its sources, did not return within "
            "20 s",
            "OPS-CALL-HANG",
        ),
        (
            "raised ValueError: no",
            "OPS-CALL-RAISED",
            "importing the candidate raised ValueError: no",
            "OPS-JUDGE-IMPORT",
        ),
        ("was killed", "OPS-CALL-CRASH", "was killed", "OPS-CALL-CRASH"),
    ],
)
def test_a_failed_import_says_that_it_was_one(monkeypatch, how, code, said, coded):
    def load(session):
        raise Failure(how, code=code)

    monkeypatch.setattr(Session, "load", load)
    with pytest.raises(Failure) as raised:
        object.__new__(Session).kernels()
    assert (str(raised.value), raised.value.code) == (said, coded)
