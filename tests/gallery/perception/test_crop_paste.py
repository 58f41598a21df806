import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import opsmith
from gallery.crop_paste.crop_paste import crop, paste

BOXES = [
    (1, 2, 4, 5),
    (-2, -1, 3, 4),
    (5, 4, 9, 9),
    (-1, -2, 8, 9),
    (9, 1, 11, 4),
    (-4, -5, -1, -2),
]


@pytest.mark.parametrize("box", BOXES)
def test_crops_as_pil_does(box: tuple[int, int, int, int]) -> None:
    image = torch.randint(256, (6, 7), dtype=torch.uint8)
    expected = torch.from_numpy(np.array(Image.fromarray(image.numpy()).crop(box)))
    assert torch.equal(crop(image, box), expected)
    assert torch.equal(crop.reference(image, box), expected)


@pytest.mark.parametrize("box", BOXES)
def test_pastes_as_pil_does(box: tuple[int, int, int, int]) -> None:
    image, patch = (torch.randint(256, size, dtype=torch.uint8) for size in ((6, 7), (3, 2)))
    expected = Image.fromarray(image.numpy().copy())
    expected.paste(Image.fromarray(patch.numpy()), box[:2])
    for run in (paste, paste.reference):
        assert torch.equal(run(image, patch, box[:2]), torch.from_numpy(np.array(expected)))


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float64, torch.complex128])
def test_no_value_of_any_dtype_is_lost(dtype: torch.dtype) -> None:
    image = torch.randn(2, 3, 4, 5, dtype=torch.float64).to(dtype)
    assert torch.equal(crop(image, (1, 1, 5, 4)), image[..., 1:4, 1:5])


def test_the_gradients_are_each_other() -> None:
    image = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    patch = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: crop(x, (-1, 2, 4, 7)), (image,))
    assert torch.autograd.gradcheck(lambda x, y: paste(x, y, (4, -1)), (image, patch))
    (grad,) = torch.autograd.grad(crop(image, (4, 3, 9, 5)).sum(), image)
    assert torch.equal(
        grad, paste(torch.zeros_like(image), torch.ones_like(grad[:, 3:, 4:]), (4, 3))
    )


@pytest.mark.slow
def test_compiles_without_a_graph_break() -> None:
    def swap(image: torch.Tensor) -> torch.Tensor:
        return paste(image, crop(image, (0, 0, 2, 2)) * 2, (3, 3)) + 1

    image = torch.randn(3, 6, 7)
    torch.testing.assert_close(torch.compile(swap, fullgraph=True)(image), swap(image))


@pytest.mark.slow
def test_importing_it_imports_no_pil() -> None:
    text = "import sys, gallery.crop_paste.crop_paste; assert 'PIL' not in sys.modules"
    subprocess.run([sys.executable, "-c", text], check=True)


def test_a_box_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(opsmith.ArgumentError, match=r"would have -2 as its dimension"):
        crop(torch.zeros(4, 4), (3, 0, 1, 2))
