"""`nms` keeps what the definition keeps: box after box, each beside all that stay."""

import torch

from gallery.nms.nms import boxes_of, nms


def overlap(a: list[float], b: list[float]) -> float:
    width = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    height = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    areas = [(one[2] - one[0]) * (one[3] - one[1]) for one in (a, b)]
    return width * height / (sum(areas) - width * height)


def test_the_reference_keeps_a_box_that_overlaps_none_of_those_that_stay() -> None:
    given = boxes_of(80, dtype=torch.float64)
    boxes, kept = given["boxes"].tolist(), list[int]()
    for one in given["scores"].argsort(descending=True).tolist():
        if all(overlap(boxes[one], boxes[other]) <= 0.4 for other in kept):
            kept.append(one)
    assert nms.reference(**given, iou_threshold=0.4).tolist() == kept
    assert 4 < len(kept) < 60
