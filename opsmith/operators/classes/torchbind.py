"""Remove custom classes from an exported program: replace method calls by operator calls.

A runtime then sees plain operators, whose first arguments (the fields) are constants. Thus every
target that supports operators supports custom classes, as long as no method changes a field.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import CustomObjArgument, InputKind, InputSpec, TensorArgument
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from opsmith.compat.torch_tracing import fake_mode_of, is_fake_object, method_call, updated
from opsmith.errors import ExportError
from opsmith.operators.classes.custom_class import CustomClass, class_of
from opsmith.operators.classes.fake import method_arguments
from opsmith.operators.core.arguments import DTYPES, holds_tensors
from opsmith.signature.class_model import RESULT_DTYPES, MethodModel
from opsmith.untyped import Value


def lower_torchbind(program: ExportedProgram, *, keep_mutating: bool = False) -> ExportedProgram:
    """Replace every call of a custom class's method by a call of the method's operator.

    Fields that are numbers or strings become the operator's arguments, tensors become constants of
    the program. Objects that opsmith did not define are kept.

    Args:
        program: the exported program; it is not changed.
        keep_mutating: whether to keep objects with a method that changes a field, for a runtime
            that supports such objects.

    Returns:
        The new program, or `program` if there is nothing to replace.

    Raises:
        ExportError: a method changes a field, which a program without the object cannot store; the
            message names the method.
    """
    objects = _objects(program)
    _refuse_inner_calls(program)
    lowered = {
        name: (owner, value)
        for name, (owner, value) in objects.items()
        if not (keep_mutating and owner.model.mutable)
    }
    for owner, _ in lowered.values():
        _refuse_mutating(owner)
    if not lowered:
        return program
    return _Lowering(program, lowered).run()


def classes_in(program: ExportedProgram) -> dict[CustomClass, list[MethodModel]]:
    """Return the custom classes of a program's objects, with the methods that it calls."""
    objects = _objects(program)
    found: dict[CustomClass, list[MethodModel]] = {owner: [] for owner, _ in objects.values()}
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target is method_call():
            if str(node.args[0]) not in objects:
                continue
            owner, _ = objects[str(node.args[0])]
            method = owner.model.by_name[str(node.args[1])]
            if method not in found[owner]:
                found[owner].append(method)
    return found


def _objects(program: ExportedProgram) -> dict[str, tuple[CustomClass, torch.ScriptObject]]:
    """Return the objects of opsmith's classes, by their names in the program."""
    found: dict[str, tuple[CustomClass, torch.ScriptObject]] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.CUSTOM_OBJ and spec.target is not None:
            # A strict export stores the fake object, which holds the real one.
            value: Value = program.constants[spec.target]
            if is_fake_object(value):
                value = value.real_obj
            owner = class_of(value)
            if owner is not None:
                found[spec.arg.name] = (owner, value)
    return found


def _refuse_mutating(owner: CustomClass) -> None:
    for method in owner.model.methods:
        if method.mutates:
            raise ExportError(
                f"{owner.name}.{method.name} changes {method.mutates[0]!r}, and the program that "
                "this target runs keeps nothing between calls. Export to aotinductor, which "
                "carries the object, or return the new value and pass it in again."
            )


def _refuse_inner_calls(program: ExportedProgram) -> None:
    for module in program.graph_module.modules():
        if module is program.graph_module or not isinstance(module, GraphModule):
            continue
        for node in module.graph.nodes:
            if node.op == "call_function" and node.target is method_call():
                raise ExportError(
                    f"a method of a custom class ({node.args[1]}) is called in a branch or loop "
                    "(torch.cond, while_loop); call it before, and use the result there"
                )


class _Lowering:
    def __init__(
        self,
        program: ExportedProgram,
        objects: Mapping[str, tuple[CustomClass, torch.ScriptObject]],
    ) -> None:
        self.program = program
        self.objects = objects
        self.module = copy.deepcopy(program.graph_module)
        self.graph = self.module.graph
        given = program.graph_signature
        self.signature = dataclasses.replace(
            given, input_specs=list(given.input_specs), output_specs=list(given.output_specs)
        )
        self.constants = dict(program.constants)
        values = [node.meta.get("val") for node in self.graph.nodes]
        self.fake_mode = fake_mode_of([v for v in values if isinstance(v, Tensor)])
        # Each object's fields in the graph: constants, and nodes for tensors.
        self.fields: dict[str, dict[str, object]] = {}

    def run(self) -> ExportedProgram:
        for node in list(self.graph.nodes):
            if node.op == "placeholder" and node.name in self.objects:
                self._open(node)
        for node in list(self.graph.nodes):
            if node.op == "call_function" and node.target is method_call():
                holder = node.args[0].name
                if holder in self.objects:
                    self._replace(node, holder)
        self._drop_objects()
        self.graph.lint()
        self.module.recompile()
        return updated(self.program, self.module, self.signature, constants=self.constants)

    def _open(self, placeholder: Node) -> None:
        """Add an object's tensors to the program as constants."""
        owner, value = self.objects[placeholder.name]
        specs = self.signature.input_specs
        (spec,) = (spec for spec in specs if spec.arg.name == placeholder.name)
        path = str(spec.target).replace(".", "_")

        def constant(tensor: Tensor, name: str) -> Node:
            target = self._unused(f"{path}_{name}")
            self.constants[target] = tensor.detach()
            with self.graph.inserting_before(placeholder):
                node: Node = self.graph.placeholder(f"c_{target}")
            assert self.fake_mode is not None or not isinstance(tensor, Tensor)
            with self.fake_mode:
                node.meta["val"] = self.fake_mode.from_tensor(tensor.detach(), static_shapes=True)
            specs.insert(
                specs.index(spec),
                InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name=node.name), target),
            )
            return node

        opened: dict[str, object] = {}
        for name, field in owner.state(value).items():
            if isinstance(field, Tensor):
                opened[name] = constant(field, name)
            elif holds_tensors(field):
                opened[name] = [constant(t, f"{name}_{i}") for i, t in enumerate(field)]
            else:
                opened[name] = field
        self.fields[placeholder.name] = opened

    def _unused(self, target: str) -> str:
        taken = {*self.constants, *self.program.state_dict}
        while target in taken:
            target += "_"
        return target

    def _replace(self, node: Node, holder: str) -> None:
        owner, _ = self.objects[holder]
        method = owner.model.by_name[str(node.args[1])]
        fields = self.fields[holder]
        if method.getter is not None:
            self._put(node, fields[method.getter])
            return
        if method.returns_scalars:
            # Tracing found constants for the numbers; tensors among the results are constants or
            # unused.
            if not node.users:
                self.graph.erase_node(node)
                return
            if len(method.returns) == 1:
                self._put(node, node.meta["val"])
                return
        operator = owner.methods[method.name].operator
        arguments = method_arguments(owner, method)(tuple(node.args[2:]), node.kwargs)
        positional, keywords = operator.split({**fields, **arguments})
        with self.graph.inserting_before(node):
            call = self.graph.call_function(operator.overload, positional, keywords)
        call.meta = dict(node.meta)
        if method.returns_scalars:
            call.meta["val"] = self._with_tensors(method, node.meta["val"])
        node.replace_all_uses_with(call)
        self.graph.erase_node(node)
        self._rename_output(node.name, call.name)
        # The numbers among several results became constants during tracing, so their nodes are
        # unused.
        for unused in [*call.users, call]:
            if not unused.users and unused.op != "output":
                self.graph.erase_node(unused)

    def _with_tensors(self, method: MethodModel, values: Value) -> object:
        """Return the results with 0-dimensional tensors where the method returns numbers."""
        assert self.fake_mode is not None
        with self.fake_mode:
            return tuple(
                torch.empty((), dtype=DTYPES[RESULT_DTYPES[kind]])
                if kind in RESULT_DTYPES
                else value
                for kind, value in zip(method.returns, values, strict=True)
            )

    def _put(self, node: Node, value: Value) -> None:
        """Replace all uses of `node` by `value`, and erase `node`."""
        if isinstance(value, Node):
            node.replace_all_uses_with(value)
            self._rename_output(node.name, value.name)
        for user in list(node.users):
            user.args = map_aggregate(user.args, lambda a: value if a is node else a)
            user.kwargs = map_aggregate(user.kwargs, lambda a: value if a is node else a)
        self.graph.erase_node(node)

    def _rename_output(self, old: str, new: str) -> None:
        specs = self.signature.output_specs
        for position, spec in enumerate(specs):
            if isinstance(spec.arg, TensorArgument) and spec.arg.name == old:
                specs[position] = dataclasses.replace(spec, arg=TensorArgument(name=new))

    def _drop_objects(self) -> None:
        for node in list(self.graph.nodes):
            if node.op == "placeholder" and node.name in self.objects and not node.users:
                self.graph.erase_node(node)
                specs = self.signature.input_specs
                (spec,) = (spec for spec in specs if spec.arg.name == node.name)
                assert isinstance(spec.arg, CustomObjArgument)
                specs.remove(spec)
                self.constants.pop(str(spec.target), None)
