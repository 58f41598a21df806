"""A kernel computes the same numbers in every runtime, however the runtime's threads compute."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from calling import Call
from halving import X, halve, is_right, on_a_thread_that_flushes

import opsmith

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="loops are cut from two cores on"),
]
Run = Callable[[torch.Tensor, bool, bool], Any]


def test_the_host_flushes_and_rounds_up() -> None:
    """Or the tests below would show nothing."""
    halves, sums = on_a_thread_that_flushes(lambda: (X / 2, 1 + X))
    assert not halves.view(torch.int64).any() and (sums[1::2] > 1).all()


def in_pytorch(folder: Path) -> Run:
    return lambda x, pieces, fail: halve(x, pieces, fail)


def in_python(folder: Path) -> Run:
    pytest.importorskip("nanobind")
    opsmith.export([halve], target="python", out=folder, package="halving", say=None)
    ops = opsmith.load(folder).ops
    return lambda x, pieces, fail: ops.halve(x.numpy(), pieces, fail)


def in_onnxruntime(folder: Path) -> Run:
    def run(x: torch.Tensor, pieces: bool, fail: bool) -> Any:
        return session(pieces, fail).run(["a", "b", "c"], {"x": x.numpy(), "many": np.ones(1)})

    return run


def session(pieces: bool, fail: bool) -> Any:
    """A session whose threads flush: the operator, and a product that is spread over them."""
    onnxruntime = pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    from opsmith.targets.onnxruntime import library

    def value(name: str, dtype: int = TensorProto.DOUBLE) -> Any:
        return helper.make_tensor_value_info(name, dtype, None)

    more = {"domain": "numbers_test", "pieces": pieces, "fail": fail, "upward": 0}
    nodes = [
        helper.make_node("halve", ["x"], ["a", "b", "c"], **more),
        helper.make_node("Mul", ["many", "many"], ["products"]),
    ]
    outputs = [value("a"), value("b"), value("c", TensorProto.INT64), value("products")]
    inputs = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, [n]) for n in ("x", "many")]
    model = helper.make_model(
        helper.make_graph(nodes, "graph", inputs, outputs),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("numbers_test", 1)],
        ir_version=9,
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.register_custom_ops_library(str(library.build(library.kernel_of(halve))))
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def in_aotinductor(folder: Path) -> Run:
    made = {}
    for pieces in (False, True):
        for fail in (False, True):
            name = f"{pieces}{fail}"
            model = Call(lambda x, pieces=pieces, fail=fail: halve(x, pieces, fail))
            opsmith.export(
                model, (X,), target="aotinductor", out=folder / name, say=None, verify=False
            )
            made[pieces, fail] = opsmith.load(folder / name)
    return lambda x, pieces, fail: made[pieces, fail](x)


def in_jax(folder: Path) -> Run:
    jax = pytest.importorskip("jax")
    opsmith.export([halve], target="jax", out=folder, package="halving", say=None)
    ops = opsmith.load(folder).ops

    def run(x: torch.Tensor, pieces: bool, fail: bool) -> Any:
        with jax.enable_x64(True):
            return [np.array(r) for r in ops.halve(jax.numpy.asarray(x.numpy()), pieces, fail)]

    return run


RUNTIMES = {run.__name__: run for run in (in_pytorch, in_python, in_onnxruntime, in_jax)}
RUNTIMES |= {"in_aotinductor": in_aotinductor}


@pytest.fixture(scope="module")
def runtime(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return RUNTIMES[request.param](tmp_path_factory.mktemp(request.param) / "dist")


@pytest.mark.parametrize("runtime", RUNTIMES, indirect=True)
@pytest.mark.parametrize("pieces", [False, True], ids=["one thread", "two threads"])
def test_a_kernel_keeps_subnormal_numbers_and_the_host_its_setting(runtime: Run, pieces) -> None:
    assert is_right(on_a_thread_that_flushes(lambda: runtime(X, pieces, False)), pieces)
    assert is_right(runtime(X, pieces, False), pieces)
    with pytest.raises(Exception, match="numbers_test::halve: asked to"):
        on_a_thread_that_flushes(lambda: runtime(X, pieces, True))


def test_the_threads_round_as_the_kernel_that_sets_them_to_work() -> None:
    _, sums, threads = halve(X, True, upward=True)
    assert threads.item() == 2 and bool((sums > 1).all())


#: Their squares are subnormal, and so many that a runtime spreads them over its threads.
SMALL = np.full(1 << 20, 2.0**-515)


def test_the_threads_of_onnx_runtime_flush_as_before_once_they_ran_pieces() -> None:
    made = session(pieces=True, fail=False)

    def run() -> Any:
        for _ in range(3):
            *results, products = made.run(None, {"x": X.numpy(), "many": SMALL})
        assert is_right(results, pieces=True)
        return products

    assert not on_a_thread_that_flushes(run).view(np.int64).any()


def test_the_threads_of_xla_flush_as_before_once_they_ran_pieces(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    opsmith.export([halve], target="jax", out=tmp_path / "dist", package="halving", say=None)
    ops = opsmith.load(tmp_path / "dist").ops
    with jax.enable_x64(True):
        both = jax.jit(lambda x, many: (*ops.halve(x, True), many * many))
        for _ in range(3):
            *results, products = both(X.numpy(), SMALL)
        assert is_right([np.array(result) for result in results], pieces=True)
        assert not np.asarray(products).view(np.int64).any()
        each = jax.vmap(lambda x: ops.halve(x, False))(np.stack([X.numpy()] * 3))
        for halves, sums, threads in zip(*map(np.array, each), strict=True):
            assert is_right((halves, sums, threads), pieces=False)
