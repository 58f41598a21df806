"""The names of PyTorch's private modules, as texts that are not imported here.

They exist in each release from 2.10 on. A process of the checks imports the modules that its rows
will need in advance. The name of an object's module tells which package the object belongs to.
"""

#: Private: ``torch._dynamo``. Without it, rows that trace begin later.
COMPILER = "torch._dynamo"

#: Private: ``torch._inductor.compile_fx``. Without it, rows that compile begin later.
INDUCTOR = "torch._inductor.compile_fx"

#: Private: ``torch.export._trace``. Without it, rows that export begin later.
EXPORTER = "torch.export._trace"

#: Private: ``torch._subclasses.fake_tensor``. The module, and the logger, of tensors without
#: values. Without it, refusals of a trace are also printed, and rows that trace begin later.
FAKES = "torch._subclasses.fake_tensor"

#: Private: ``torch._subclasses``. The package of the classes of tensors without values. Without it,
#: a loaded model warns of them.
WITHOUT_VALUES = "torch._subclasses"

#: Private: ``torch._subclasses.schema_check_mode``. The module that notices calls that write.
#: Without it, the judge does not import the module in advance.
WRITES = "torch._subclasses.schema_check_mode"
