"""cuRAND's Philox in the emulation of CUDA gives the words of opsmith.philox, and their numbers."""

import pytest
import torch
from emulated_sources import obstacle
from jaxtyping import Float64
from torch import Tensor

from opsmith import philox
from opsmith.checks import harness
from opsmith.checks.harness import Phase
from opsmith.kernels import kernel_source
from opsmith.kernels.languages.emulated_cuda import emulated
from opsmith.signature import signature_of


def numbers(x: Float64[Tensor, "N"], subsequence: int, offset: int) -> Float64[Tensor, "3 N"]: ...


SIGNATURE = signature_of(numbers, "curand_test::numbers")
KERNEL = """\
#include "numbers.h"

#include <curand_kernel.h>
#include <opsmith/cuda.h>

__global__ void draw(double* out, int n, int subsequence, int offset) {
  curandStatePhilox4_32_10_t words, uniform, normal;
  curand_init(7, subsequence, offset, &words);
  curand_init(7, subsequence, offset, &uniform);
  curand_init(7, subsequence, offset, &normal);
  for (int i = 0; i < n; ++i) {
    out[i] = curand(&words);
    out[n + i] = curand_uniform(&uniform);
    out[2 * n + i] = curand_normal(&normal);
  }
}

void numbers(const opsmith::Context& ctx, const curand_test::numbers_args& a) {
  opsmith::launch(ctx, draw, 1, 1, 0, a.out.data(), static_cast<int>(a.N),
                  static_cast<int>(a.subsequence), static_cast<int>(a.offset));
}
OPSMITH_KERNEL(curand_test, numbers, cuda)
"""


@pytest.mark.slow
def test_words_uniform_and_normal_numbers(tmp_path):
    source = tmp_path / "numbers.cu"
    source.write_text(KERNEL)
    build = harness.build(
        emulated(kernel_source(SIGNATURE, "cuda", source), watched=True), emulated=True
    )
    case = {"x": torch.zeros(10, dtype=torch.float64), "subsequence": 5, "offset": 6}
    ((call,),) = harness.run(build, SIGNATURE, [case], [Phase(seed=1, emulated=True)])
    words, uniform, normal = call.results[0]
    right = philox.words(philox.state(7), [16], subsequence=5)[6:].double()
    assert words.tolist() == right.tolist()
    assert torch.equal(uniform, (right.float() * 2**-32 + 2**-33).double())
    first, second = uniform.view(-1, 2).unbind(1)
    length, angle = (-2 * first.log()).sqrt(), 2 * torch.pi * second
    pairs = torch.stack([angle.sin() * length, angle.cos() * length], 1).flatten()
    torch.testing.assert_close(normal, pairs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("text", ["curandState s;", "curand_uniform_double(&s);"])
def test_other_generators_and_double_precision_are_not_emulated(tmp_path, text):
    assert "cuRAND" in obstacle(tmp_path, f"#include <curand_kernel.h>\n{text}\n")
    text = "#include <curand_kernel.h>\ncurandStatePhilox4_32_10_t s;\n"
    assert obstacle(tmp_path, text) == "None"
