"""Say by which codes and words the first failure of a planted fault names the fault's kind.

Whether a failure names its kind is decided by the fault alone, by what is true in the plainest call
that shows it: contiguous arguments, usual numbers, one thread, no runtime. Nothing here may be
changed because of what a run has told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

RACES = ("OPS-SCHEDULES-SPLIT", "OPS-DETERMINISM-THREADS")
STATE = ("OPS-STATE-EARLIER", "OPS-STATE-THREADS", "OPS-RESULT-REUSED", "OPS-SIDE-EFFECTS")
#: The codes that name each kind of fault, by their beginnings.
KINDS: dict[str, tuple[str, ...]] = {
    "values": ("OPS-VALUE-",),
    "neighbours": ("OPS-VALUE-",),
    "selections": ("OPS-VALUE-", "OPS-RESULT-DECLARED"),
    "overflow": ("OPS-VALUE-RANGE", "OPS-VALUE-NAN", "OPS-VALUE-ACCUMULATION"),
    "sizes": ("OPS-SIZE-",),
    "lists": ("OPS-VALUE-WRONG", "OPS-RESULT-UNWRITTEN"),
    "layouts": ("OPS-LAYOUT-STRIDE",),
    "dtypes": ("OPS-RESULT-DECLARED",),
    "parameters": ("OPS-ARGUMENT-NUMBER",),
    "ways to call": ("OPS-STATE-MODE",),
    "state": STATE,
    "state that callers hold": ("OPS-VALUE-WRONG",),
    "mutation": ("OPS-MUTATION-", "OPS-RESULT-ALIAS"),
    "gradients": ("OPS-GRADIENT-",),
    "gradients of gradients": ("OPS-GRADIENT-SECOND", "OPS-GRADIENT-NESTED"),
    "parallel dimensions": ("OPS-PARALLEL-DIMS-CLAIM",),
    "fake kernels": ("OPS-FAKE-",),
    "sizes that tracing fixes": ("OPS-FAKE-FIXED", "OPS-COMPILE-AGAIN", "OPS-EXPORT-"),
    "sizes that export fixes": ("OPS-FAKE-",),
    "dispatch": ("OPS-DISPATCH-", "OPS-VALIDATION-", "OPS-VMAP-"),
    "exceptions and hangs": ("OPS-CALL-",),
    "narrow indices": ("OPS-SIZE-NARROW",),
    "memory": ("OPS-MEMORY-", "OPS-RESULT-UNWRITTEN", "OPS-MUTATION-"),
    "threads": RACES,
    "what a call leaves": ("OPS-SIDE-EFFECTS-", "OPS-MEMORY-LEAK"),
    "sharding": ("OPS-SHARDING-", "OPS-PARALLEL-DIMS-CLAIM"),
    "below every tolerance": ("OPS-EXACT-",),
}
#: The kinds of CUDA's faults by their code.
CUDA_KINDS = {
    "CUDA-RACE": "CUDA: races",
    "CUDA-BARRIER": "CUDA: barriers",
    "CUDA-LAUNCH": "CUDA: launches",
    "CUDA-HOST": "CUDA: memory of the host",
    "CUDA-ALIGNMENT": "CUDA: alignment",
    "CUDA-UNDEFINED": "CUDA: undefined behaviour",
    "MEMORY-BOUNDS": "CUDA: accesses beside memory",
    "MEMORY-UNINITIALIZED": "CUDA: memory that nothing wrote",
    "MUTATION-UNDECLARED": "CUDA: arguments written",
    "CALL-RAISED": "CUDA: calls that are refused",
    "": "CUDA: results",
}
KINDS |= {kind: (f"OPS-{code}",) for code, kind in CUDA_KINDS.items() if code}
KINDS[CUDA_KINDS[""]] = ("OPS-VALUE-", "OPS-RESULT-UNWRITTEN")
#: Matches words of a message that name a kind, whatever the code: a size, an argument, a dtype.
WORDS = {
    "sizes": r"\nsizes: \w+ where (len\(|[A-Z])",
    "parameters": r"\nsizes: \w+ where (?!len\()[a-z]",
    "dtypes": ", it is right.",
}
#: The codes of faults that are of a narrower kind than their family, or of another one.
FAULTS: dict[str, tuple[str, ...]] = {
    # Values: the plainest is wrong everywhere; most have a condition, which the code has to name.
    "softmax without its maximum": ("OPS-VALUE-RANGE",),
    "sigmoid by a quotient": ("OPS-VALUE-RANGE",),
    "relu that swallows NaN": ("OPS-VALUE-NAN",),
    "maximum that ignores NaN": ("OPS-VALUE-NAN",),
    "norm that overflows": ("OPS-VALUE-RANGE",),
    "denormal numbers flushed to zero": ("OPS-VALUE-RANGE",),
    "the sign of zero lost": ("OPS-VALUE-ZERO",),
    "a sum in the narrow dtype": ("OPS-VALUE-ACCUMULATION",),
    "a sum of magnitudes in bfloat16, over one of six dimensions": ("OPS-VALUE-ACCUMULATION",),
    "sum in half": ("OPS-VALUE-ACCUMULATION",),
    "eight sums in half": ("OPS-VALUE-ACCUMULATION",),
    "pairs in half": ("OPS-VALUE-ACCUMULATION",),
    "mean in bfloat16": ("OPS-VALUE-ACCUMULATION",),
    "dot in half": ("OPS-VALUE-ACCUMULATION",),
    "norm in half": ("OPS-VALUE-RANGE",),  # its squares overflow, too
    "softmax in half": ("OPS-VALUE-ACCUMULATION",),
    "a window of more than eight cut off": ("OPS-ARGUMENT-NUMBER",),
    "a sum in 32 bits": ("OPS-VALUE-RANGE",),
    "a sort that swaps ties": ("OPS-VALUE-ORDER",),
    "limits that are constants": ("OPS-ARGUMENT-NUMBER",),
    "variance divided by one less": ("OPS-VALUE-WRONG",),
    "a mask by multiplication": ("OPS-VALUE-NAN",),
    "a check for infinity that finds none": ("OPS-VALUE-RANGE", "OPS-VALUE-NAN"),
    "a compensated sum that makes NaN of infinity": ("OPS-VALUE-NAN",),
    "a mask that hides infinity, and what counts left out with it": ("OPS-VALUE-NAN",),
    "values between 600 and 1e15": ("OPS-VALUE-RANGE",),
    "values between 1e-17 and 1e-7": ("OPS-VALUE-RANGE",),
    "every value between 600 and 1e15": ("OPS-VALUE-RANGE",),
    "integers between 100 and 2**40": ("OPS-VALUE-RANGE",),
    "one of equally near neighbours three times": ("OPS-VALUE-ORDER",),
    "tokens of experts that were not chosen": ("OPS-VALUE-ORDER",),
    "values within rounding out of order": ("OPS-RESULT-DECLARED",),
    # Its formula cancels near zero, which comes before it overflows.
    "a logarithm of a sum without its maximum": ("OPS-VALUE-WRONG", "OPS-VALUE-RANGE"),
    # A fault that is listed among sizes, and wrong in each.
    "the first column left out": ("OPS-VALUE-WRONG",),
    "negative dimensions ignored": ("OPS-ARGUMENT-NUMBER",),
    "no more than three dimensions": ("OPS-CALL-RAISED", "OPS-SIZE-RANK"),
    "no bfloat16, as NumPy has none": ("OPS-CALL-RAISED",),
    "rows of double longer than 130": ("OPS-SIZE-",),
    "long rows of half that hold different values": ("OPS-SIZE-", "OPS-VALUE-ACCUMULATION"),
    "a tenth of a long bfloat16 row": ("OPS-SIZE-", "OPS-VALUE-ACCUMULATION"),
    "the same tensor twice": ("OPS-ARGUMENT-SAME",),
    # Lists.
    "no more than four of a list written": ("OPS-SIZE-LIST", "OPS-ARGUMENT-NUMBER"),
    "a list that is read taken as scratch": ("OPS-MUTATION-",),
    "an argument returned for an empty list": ("OPS-RESULT-ALIAS",),
    "an error without an optional tensor": ("OPS-CALL-RAISED",),
    "an out not written to its end": ("OPS-SIZE-", "OPS-RESULT-UNWRITTEN"),
    # State.
    "noise from the global generator": ("OPS-SIDE-EFFECTS-RANDOM", "OPS-DETERMINISM-REPEAT"),
    "last bits that differ from call to call": ("OPS-DETERMINISM-REPEAT",),
    "wrong with one thread": ("OPS-DETERMINISM-THREADS",),
    "a running sum not written": ("OPS-RESULT-UNWRITTEN",),
    "a running sum written for large batches alone": ("OPS-SIZE-",),
    "state in the kernel and not in the argument": ("OPS-STATE-EARLIER",),
    "a table written that nobody named": ("OPS-MUTATION-",),
    "the table of the first call": ("OPS-STATE-EARLIER",),
    "a table prepared once for an address": ("OPS-STATE-EARLIER",),
    "a fake kernel with the size of its first call": ("OPS-STATE-EARLIER", "OPS-FAKE-"),
    # What is written, and wrong, in arguments that may be written.
    "a declared result not written": ("OPS-RESULT-UNWRITTEN", "OPS-SIZE-"),
    "written before it is read": ("OPS-VALUE-WRONG",),
    # Memory; some kernels touch none but their own.
    "tail of vectors": ("OPS-SIZE-",),
    "aligned vectors": ("OPS-CALL-CRASH", "OPS-MEMORY-"),
    "division by zero": ("OPS-CALL-CRASH",),
    "strides ignored": ("OPS-LAYOUT-STRIDE",),
    # It has two faults, of which plain arguments show one: it writes to address 16.
    "flat reader": ("OPS-MEMORY-", "OPS-CALL-CRASH"),
    "index in 8 bits": ("OPS-MEMORY-", "OPS-SIZE-"),
    "count in 8 bits": ("OPS-SIZE-",),
    "static scratch": ("OPS-STATE-THREADS",),
    # What the call gave back is written later, or read when it is not there any more.
    "late write": ("OPS-RESULT-REUSED", "OPS-RESULT-UNWRITTEN"),
    "work that ends after the call": ("OPS-RESULT-REUSED", "OPS-RESULT-UNWRITTEN"),
    "scratch kept": ("OPS-MEMORY-BOUNDS", "OPS-MEMORY-UNINITIALIZED", "OPS-STATE-EARLIER"),
}


def kind_of_cuda(code: str, words: str) -> str:
    """Return the kind of a fault of CUDA by the code and the words that its test states.

    Without a code, results are wrong, or the words are of what nothing wrote, or of who refuses.
    """
    if not code and re.search("read element|nothing had written", words):
        code = "MEMORY-UNINITIALIZED"
    elif not code and "on the same device" in words:
        code = "CALL-RAISED"
    return CUDA_KINDS[code]


@dataclass(frozen=True)
class Told:
    """What is told first of a fault.

    Attributes:
        group: the module or the family of modules that plants it.
        kind: the kind that is planted.
        name: what is wrong.
        code: the code of the first failure; empty if none is found.
        check: the row.
        message: its first line, and those that say for which sizes and dtypes it is right.
        seconds: how long it took to be told.
    """

    group: str
    kind: str
    name: str
    code: str
    check: str = ""
    message: str = ""
    seconds: int = 0

    @property
    def names_its_kind(self) -> bool:
        """Whether the code is of the planted kind."""
        if self.kind in WORDS and re.search(WORDS[self.kind], self.message):
            return True
        return self.code.startswith(FAULTS.get(self.name) or KINDS[self.kind])
