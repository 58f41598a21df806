"""The exporter reads the sources of its translations once, and is as it was afterwards."""

import threading

import pytest
from onnxscript._internal import ast_utils
from onnxscript._internal.values import TracedOnnxFunction
from torch.onnx._internal.exporter._registration import ONNXRegistry

from opsmith.targets.onnx import torchlib
from opsmith.targets.onnx.dynamo import quietly


def registered() -> dict[str, list[str]]:
    """What every operator is translated by."""
    with quietly():
        found = ONNXRegistry.from_torchlib().functions
    return {
        str(target): [repr(one.signature) for one in several] for target, several in found.items()
    }


@pytest.fixture
def sources(monkeypatch):
    """The functions whose source is read."""
    found = []
    original = ast_utils.get_src_and_ast

    def read(function):
        found.append(function)
        return original(function)

    monkeypatch.setattr(ast_utils, "get_src_and_ast", read)
    return found


def test_what_was_read_is_not_read_again_and_says_the_same(sources):
    plain = registered()
    with torchlib.read_once():
        first = registered()
        sources.clear()
        assert registered() == first == plain
        assert not sources
    assert registered() == plain
    assert sources, "the exporter is as it was before"


def test_read_leaves_nothing_for_an_export_to_read(sources):
    with quietly():
        torchlib.read()
    sources.clear()
    with torchlib.read_once():
        registered()
    assert not sources


def test_the_exporter_is_as_it_was_after_blocks_that_overlap():
    original = vars(TracedOnnxFunction)["function_ir"]
    inside, go = threading.Event(), threading.Event()

    def other():
        with torchlib.read_once():
            inside.set()
            go.wait(10)

    thread = threading.Thread(target=other)
    with torchlib.read_once():
        thread.start()
        assert inside.wait(10)
    assert vars(TracedOnnxFunction)["function_ir"] is not original, "another thread exports"
    go.set()
    thread.join()
    assert vars(TracedOnnxFunction)["function_ir"] is original
