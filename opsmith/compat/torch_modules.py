"""The names of PyTorch's private modules, as texts: nothing here imports them.

They are in each release from 2.10 on. A process of the checks imports ahead what its rows will
import, and what somebody's module is called tells whose object a thing is.
"""

from __future__ import annotations

#: Private: ``torch._dynamo``. Without it, rows that trace begin later.
COMPILER = "torch._dynamo"

#: Private: ``torch._inductor.compile_fx``. Without it, rows that compile begin later.
INDUCTOR = "torch._inductor.compile_fx"

#: Private: ``torch.export._trace``. Without it, rows that export begin later.
EXPORTER = "torch.export._trace"

#: Private: ``torch._subclasses.fake_tensor``. The module, and the logger, of tensors without
#: values. Without it, what a trace refuses is also printed, and rows that trace begin later.
FAKES = "torch._subclasses.fake_tensor"

#: Private: ``torch._subclasses``. Where the classes of tensors without values are. Without it, a
#: loaded model warns of them.
WITHOUT_VALUES = "torch._subclasses"

#: Private: ``torch._decomp.decompositions``. Where PyTorch writes operators by others. Without it,
#: derivatives in JAX need more operators than have a translation.
DECOMPOSITIONS = "torch._decomp.decompositions"

#: Private: ``torch._refs.nn.functional``. Where PyTorch writes further operators by others. See
#: `DECOMPOSITIONS`.
REFERENCES = "torch._refs.nn.functional"
