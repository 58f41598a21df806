"""`moe_gating` chooses the best experts, and sorts every choice by its expert."""

import torch

from gallery.moe_gating.moe_gating import moe_gating


def test_the_reference_sorts_every_choice_by_its_expert() -> None:
    logits = torch.randn(9, 4)
    weights, experts, offsets, choices = moe_gating.reference(logits, 2)
    torch.testing.assert_close(weights.sum(1), torch.ones(9))
    assert torch.equal(experts.long(), logits.topk(2).indices)
    assert sorted(choices.tolist()) == list(range(18))
    for expert in range(4):
        mine = choices[offsets[expert] : offsets[expert + 1]].long()
        assert (experts.reshape(-1)[mine] == expert).all()
        assert torch.equal(mine, mine.sort().values)
