"""A machine that grants no sandbox."""

import sys

import pytest


@pytest.fixture
def without_sandbox(monkeypatch):
    """Have the judge believe that the machine grants no sandbox."""
    module = sys.modules["opsmith.judge.judge"]
    monkeypatch.setattr(module, "unavailable", lambda: "not for this test")
