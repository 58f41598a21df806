"""Numbers of 8 bits convert as PyTorch's do, and what is too large is clamped or not."""

import subprocess
from pathlib import Path

import pytest
import torch

import emulators.cuda
from opsmith.kernels.toolchain import compilers

INCLUDE = Path(emulators.cuda.__file__).parent / "include"
#: Writes the number that each of 256 bytes is, then for each number read the byte that it becomes.
PROGRAM = """\
#include <emulated/fp8.h>

#include <cstdio>
#include <initializer_list>

int main() {
  using namespace emulated;
  for (const Fp8Layout& layout : {e4m3, e5m2}) {
    for (int byte = 0; byte < 256; ++byte) {
      const float number = from_fp8(static_cast<unsigned char>(byte), layout);
      std::fwrite(&number, sizeof number, 1, stdout);
    }
  }
  float number;
  while (std::fread(&number, sizeof number, 1, stdin) == 1) {
    for (const Fp8Layout& layout : {e4m3, e5m2}) {
      std::putchar(to_fp8(number, layout, true));
      std::putchar(to_fp8(number, layout, false));
    }
  }
}
"""
DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)


def same(a, b) -> bool:
    return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True) and bool(
        (a.signbit() == b.signbit())[~a.isnan()].all()
    )


@pytest.mark.slow
def test_numbers_of_8_bits_convert_as_those_of_pytorch(tmp_path):
    source, program = tmp_path / "fp8.cpp", tmp_path / "fp8"
    source.write_text(PROGRAM)
    compiler = compilers.find_compiler("a test").path
    command = [compiler, "-std=c++20", "-w", f"-I{INCLUDE}", str(source), "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True)
    ties = torch.arange(256, dtype=torch.uint8).view(DTYPES[0]).float().nan_to_num(0)
    exponents = torch.randint(-30, 22, (4000,))
    numbers = torch.cat(
        [
            torch.ldexp(torch.randn(4000), exponents),
            (ties + ties.roll(1)) / 2,
            torch.tensor([0.0, -0.0, 448, 464, 464.1, 57344, 61440, 61439, 1e30, -1e30]),
            torch.tensor([torch.inf, -torch.inf, torch.nan]),
        ]
    )
    done = subprocess.run(
        [str(program)], input=numbers.numpy().tobytes(), capture_output=True, check=True
    )
    whole = torch.frombuffer(bytearray(done.stdout), dtype=torch.uint8)
    decoded, encoded = whole[:2048].view(torch.float32).view(2, 256), whole[2048:].view(-1, 2, 2)
    for kind, dtype in enumerate(DTYPES):
        of_bytes = torch.arange(256, dtype=torch.uint8).view(dtype).float()
        assert same(decoded[kind], of_bytes)
        most = torch.finfo(dtype).max
        clamped, plain = (encoded[:, kind, i].contiguous().view(dtype).float() for i in (0, 1))
        assert same(clamped, numbers.clamp(-most, most).to(dtype).float())
        # The numbers that round to more than the greatest: 464 is a tie that rounds to 448.
        over = numbers.abs() > 464 if kind == 0 else numbers.abs() >= 61440
        assert same(plain[~over], clamped[~over])
        beyond = torch.tensor(torch.nan if kind == 0 else torch.inf)
        assert same(plain[over], beyond.expand(int(over.sum())).copysign(numbers[over]))
