"""Numbers that are never rounded, in the memory of a kernel's arguments and results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from opsmith.checks.cases.failure import Inapplicable
from opsmith.checks.numerics.exact import arrays
from opsmith.checks.numerics.exact.arrays import Array
from opsmith.checks.numerics.exact.language import BITS

#: What ``native/handles.h`` says: the number of places, and of those of 16 bits; the bits of a NaN,
#: below which a place is; a constant of single precision, without residues.
_PLACES, _SHORT_PLACES = 1 << 22, 1 << 16
_NAN = 0x7FC00000
_CONSTANT = (1 << 63 | 1) - (1 << 64)


class Memory:
    """Memory in which each number has 16 bytes, whatever type it stands for."""

    variables: Mapping[str, str] = {}

    def begin(self) -> None:
        """Prepare for the arguments of another call."""

    def bits(self, dtype: str) -> int:
        """Return the size of an element of a real dtype."""
        del dtype
        return BITS

    def pack(self, array: Array, bits: int) -> bytes:
        """Return the memory of numbers."""
        del bits
        return arrays.to_bytes(array)

    def unpack(self, memory: bytes, bits: int) -> Array:
        """Return the numbers of a memory, one after the other."""
        return arrays.from_bytes(memory, (len(memory) * 8 // bits,))


class Handles(Memory):
    """Memory in which a number has the size of its type: its place in a table, which is a file."""

    def __init__(self, folder: Path) -> None:
        file = folder / "numbers"
        self.variables = {"OPSMITH_EXACT_TABLE": str(file)}
        self._table = torch.from_file(
            str(file), shared=True, size=2 * _PLACES, dtype=torch.int64
        ).view(_PLACES, 2)

    def begin(self) -> None:
        """Forget the numbers of the last call."""
        self._table[0] = torch.tensor([1, _SHORT_PLACES])

    def bits(self, dtype: str) -> int:
        """Return the size of an element of a real dtype; of double, two handles are none."""
        return {"float16": 16, "bfloat16": 16, "float32": 32}.get(dtype, BITS)

    def pack(self, array: Array, bits: int) -> bytes:
        """Put numbers into the table, and return where they are."""
        packed = super().pack(array, bits)
        if bits == BITS or not packed:
            return packed
        column, most = (0, _SHORT_PLACES) if bits == 16 else (1, _PLACES)
        numbers = torch.frombuffer(bytearray(packed), dtype=torch.int64).view(-1, 2)
        first = int(self._table[0, column])
        end = first + len(numbers)
        if end > most:
            raise Inapplicable(f"a case has more numbers than {bits} bits have places for")
        self._table[first:end] = numbers
        self._table[0, column] = end
        places = torch.arange(first, end)
        return _bytes(places.to(torch.uint16) if bits == 16 else (places | _NAN).to(torch.int32))

    def unpack(self, memory: bytes, bits: int) -> Array:
        """Return the numbers of a memory; 32 bits that are no place are a constant."""
        if bits == BITS:
            return super().unpack(memory, bits)
        if bits == 16:
            places = torch.frombuffer(bytearray(memory), dtype=torch.uint16).long()
            numbers = self._table[places] * (places != 0)[:, None]
        else:
            given = torch.frombuffer(bytearray(memory), dtype=torch.int32)
            places = given.long() ^ _NAN
            held = (places >= _SHORT_PLACES) & (places < self._table[0, 1])
            values = given.view(torch.float32).double()
            rest = torch.where(values == 0, 0, _CONSTANT)
            constants = torch.stack([values.view(torch.int64), rest], dim=1)
            numbers = torch.where(held[:, None], self._table[places * held], constants)
        return super().unpack(_bytes(numbers), BITS)


def _bytes(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()
