"""Calls on several devices of XLA's: each computes its part, and what is sent is what has to be."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

#: The collectives of each program; results and gradients are compared in the process itself.
EXPECTED = """\
product: P(None, None), P(None, 'a'): nothing
product: P(None, 'b'), P('b', 'a'): all-reduce
product: P('a', None), P(None, None): nothing
product: P('a', 'b'), P('b', None): all-reduce
product: P(('a', 'b'), None), P(None, None): nothing
normed: P('a', 'b'), P(): nothing
normed, gradient: P('a', 'b'), P(): nothing
normed: P('a', None, 'b'), P('b',): all-gather
normed, gradient: P('a', None, 'b'), P('b',): all-gather
normed, explicit: P('a', 'b'), P(): nothing
uneven: P('a',), P(): all-gather
add_to: P('a',), P('a',), P('a',), P('a',): nothing
shard_map: P('a', 'b'), P(): nothing
"""


@pytest.mark.long
def test_devices_compute_their_parts_and_send_what_the_rules_say() -> None:
    program = Path(__file__).with_name("partitioned.py")
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == EXPECTED
