"""A language model whose blocks are operators writes the same text wherever it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from examples.tiny_llm.main import run, text
from examples.tiny_llm.model import Sizes, Step, TinyLlm, generate, train

SMALL = Sizes(layers=2, width=16, heads=2, hidden=24, context=24)


@pytest.mark.slow
def test_a_step_says_of_a_token_what_the_whole_text_does() -> None:
    torch.manual_seed(0)
    model = TinyLlm(SMALL)
    losses = train(model, text()[:4000], 12)
    assert losses[-1] < losses[0] - 0.2, "the blocks pass gradients on"
    said: list[Tensor] = []
    model.head.register_forward_hook(lambda head, given, logits: said.append(logits))
    step = Step(model).eval().requires_grad_(False)
    added = generate(step, step.start(), "The ", 12)
    by_step, said[:] = torch.cat(said), []
    model(torch.tensor([[ord(one) for one in "The " + added]]))
    torch.testing.assert_close(by_step, said[0][0, :-1])


@pytest.mark.long
def test_every_runtime_writes_the_same_text(tmp_path: Path) -> None:
    found = run(tmp_path, 60, 16, SMALL)
    assert set(found) == {
        "PyTorch",
        "torch.compile",
        "ONNX Runtime",
        "AOTInductor",
        "a C++ program",
    }
    ((written, _), *others) = found.values()
    assert len(written) == 16 and {other for other, _ in others} == {written}
