"""The declaration of an operator as plain data, from which everything else is derived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from opsmith.signature.dtype_variables import (
    UNBOUND,
    DtypeVariable,
    combinations,
    parts,
    variables_of,
)
from opsmith.signature.dtypes import DTypes
from opsmith.signature.equations import Equation, sources_of
from opsmith.signature.parameters import (
    NO_DEFAULT,
    Parameter,
    Result,
    ScalarType,
    SequenceType,
    TensorListType,
    TensorType,
    quoted,
)
from opsmith.signature.sizes import conditions, expressions
from opsmith.signature.sizes.conditions import Condition, SizeComparison, decided
from opsmith.signature.sizes.shapes import Fixed, Variadic, bound_by
from opsmith.untyped import Untyped

# Sizes may be symbolic while tracing, so every int is declared as SymInt.
_KINDS = {"int": "SymInt", "float": "float", "bool": "bool", "str": "str"}


@dataclass(frozen=True)
class Signature:
    """An operator's name, parameters and results, and the author's claims.

    Attributes:
        namespace: the ``ns`` of ``ns::name``.
        name: the name in the namespace.
        parameters: the parameters, in order.
        results: the results, in order.
        data_dependent: the dimensions of results whose sizes depend on data.
        parallel_dims: the dimensions along which each slice is computed on its own.
        summed_dims: the dimensions over which results without them are sums of slices' results.
        linear_in: groups of arguments in which the results are linear, each group as a whole.
        where: the conditions on sizes and int arguments, as the author wrote them.
        batch_invariant: the `parallel_dims` along which a slice has the same bits in every batch.
        doc: the docstring of the declaration.
    """

    namespace: str
    name: str
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    data_dependent: tuple[str, ...] = ()
    parallel_dims: tuple[str, ...] = ()
    summed_dims: tuple[str, ...] = ()
    linear_in: tuple[tuple[str, ...], ...] = ()
    where: tuple[str, ...] = ()
    batch_invariant: tuple[str, ...] = ()
    doc: str = field(default="", compare=False)

    def _repr_pretty_(self, printer: Untyped, cycle: bool) -> None:
        """Print the name alone where Hypothesis, in each search, describes what it draws from."""
        printer.text(self.qualname)

    @property
    def qualname(self) -> str:
        """``namespace::name``."""
        return f"{self.namespace}::{self.name}"

    @cached_property
    def by_name(self) -> dict[str, Parameter]:
        """The parameters by name."""
        return {parameter.name: parameter for parameter in self.parameters}

    def parameter(self, name: str) -> Parameter:
        """Return the parameter called `name`."""
        return self.by_name[name]

    @cached_property
    def tensors(self) -> tuple[Parameter, ...]:
        """The parameters that are tensors or lists of tensors."""
        return tuple(p for p in self.parameters if p.is_tensor or p.is_tensor_list)

    @property
    def owners(self) -> tuple[Parameter | Result, ...]:
        """The parameters, then the results."""
        return (*self.parameters, *self.results)

    @cached_property
    def nondifferentiable(self) -> frozenset[str]:
        """The names of the tensors that no gradient reaches."""
        return frozenset(p.name for p in self.tensors if not p.differentiable)

    @cached_property
    def drawn(self) -> Parameter | None:
        """The seed and offset that calls draw from a generator; `None` without."""
        return next((p for p in self.parameters if p.drawn), None)

    @cached_property
    def mutated(self) -> tuple[Parameter, ...]:
        """The parameters that the operator writes into."""
        return tuple(p for p in self.parameters if p.mutated)

    @cached_property
    def shaped(self) -> bool:
        """Return whether every result's shape is declared, so that a fake kernel can be derived."""
        return all(
            isinstance(result.type, TensorType) and result.type.shape is not None
            for result in self.results
        )

    @cached_property
    def dtype_variables(self) -> tuple[DtypeVariable, ...]:
        """The dtypes that each call chooses, in order of first appearance."""
        types = (owner.tensor_type for owner in self.owners)
        return variables_of(t.dtypes for t in types if t is not None and t.shape is not None)

    @cached_property
    def generic(self) -> DTypes | None:
        """The choices of dtypes that a call has; `None` if every dtype is fixed.

        Where there are several variables, a choice is a text such as ``float32+int64``.
        """
        if not self.dtype_variables:
            return None
        label = " and ".join(variable.label for variable in self.dtype_variables)
        return DTypes(combinations(self.dtype_variables), label)

    def variable_position(self, type_: TensorType) -> int | None:
        """Return the position of a tensor's dtype variable; `None` if its dtype is fixed."""
        if not type_.shaped_generic:
            return None
        return next(i for i, v in enumerate(self.dtype_variables) if type_.dtypes in v.classes)

    def dtype_in(self, type_: TensorType, chosen: str | None) -> str | None:
        """Return the dtype of a tensor in a call, or `None` if nothing says it.

        Args:
            type_: the type of the tensor.
            chosen: the call's choice of dtypes, one of those in `generic`.
        """
        position = self.variable_position(type_)
        if position is None:
            return type_.dtypes.names[0] if len(type_.dtypes.names) == 1 else None
        if chosen is None or parts(chosen)[position] == UNBOUND:
            return None
        return self.dtype_variables[position].dtype_of(type_.dtypes, parts(chosen)[position])

    def dtypes_in(self, chosen: str | None) -> frozenset[str]:
        """Return the dtypes of the tensors of a call, as far as `chosen` determines them."""
        types = (owner.tensor_type for owner in self.owners)
        found = (self.dtype_in(type_, chosen) for type_ in types if type_ is not None)
        return frozenset(dtype for dtype in found if dtype is not None)

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """The named dimensions (variadic ones too) that arguments bind, in binding order."""
        return tuple(self.dim_sources)

    @cached_property
    def dim_sources(self) -> dict[str, str]:
        """By named dimension: the parameter that binds it first; see `sources_of`."""
        return self._sources[0]

    @cached_property
    def equations(self) -> tuple[Equation, ...]:
        """The dimensions whose sizes are solved for a name, in an order that allows it."""
        return self._sources[1]

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions on sizes and int arguments, parsed when they are first needed.

        A dimension with a column that holds an index is large enough for it.
        """
        scalars = [
            parameter.name
            for parameter in self.parameters
            if isinstance(parameter.type, ScalarType | SequenceType)
            and parameter.type.kind == "int"
        ]
        written = [conditions.parse(text, scalars) for text in self.where]
        for parameter in self.tensors:
            for column in parameter.columns:
                last = parameter.dims[-1] if parameter.dims else None
                if isinstance(last, Fixed):
                    one = SizeComparison(last.expression, ">", expressions.Integer(column.place))
                    text = f"{expressions.text(last.expression)} > {column.place}"
                    if decided(one) is None:
                        written.append(Condition(text, (one,)))
        return tuple(written)

    @cached_property
    def _sources(self) -> tuple[dict[str, str], tuple[Equation, ...]]:
        return sources_of(self.tensors)

    @cached_property
    def certain_dims(self) -> frozenset[str]:
        """The named dimensions that every call binds, even if optional arguments are absent."""
        return frozenset(
            name
            for name, source in self.dim_sources.items()
            if (self.by_name[source].is_tensor and not self.by_name[source].optional)
            or source in self.nonempty
        )

    @cached_property
    def nonempty(self) -> dict[str, tuple[str, ...]]:
        """The lists of tensors that must not be empty, with the names that only they fix."""
        found: dict[str, list[str]] = {}
        for name in self._read_dims():
            source = self.by_name.get(self.dim_sources.get(name, ""))
            if source is not None and source.is_tensor_list and not source.optional:
                found.setdefault(source.name, []).append(name)
        chosen = {self.variable_position(result.tensor_type) for result in self.results} - {None}
        for position in sorted(chosen, key=str):
            first = self._first_of_variable(position)
            if first is not None and first.is_tensor_list and not first.optional:
                found.setdefault(first.name, []).append("the dtype")
        return {name: tuple(dims) for name, dims in found.items()}

    def least_numel(self) -> int:
        """Return the number of elements of all tensors if all but stated sizes were 1."""
        return sum(owner.shape.least_numel({}) for owner in self.owners if owner.shape)

    def _first_of_variable(self, position: int | None) -> Parameter | None:
        """Return the parameter that binds a dtype variable, required tensors before lists."""
        ranked = sorted(self.tensors, key=lambda p: (p.optional, p.is_tensor_list))
        types = ((p, p.tensor_type) for p in ranked)
        return next((p for p, t in types if t and self.variable_position(t) == position), None)

    def _read_dims(self) -> list[str]:
        """Return the named dimensions that are read outside the argument that binds them."""
        read: dict[str, None] = {}
        for result in self.results:
            for dim in result.dims:
                match dim:
                    case Fixed(expression):
                        read |= dict.fromkeys(sorted(expressions.names(expression)))
                    case Variadic(str(name)):
                        read[name] = None
        for parameter in self.parameters:
            limits = [e for c in parameter.constraints for e in c.expressions()]
            for expression in (*limits, *parameter.computed):
                for name in sorted(expressions.names(expression)):
                    if self.dim_sources.get(name) != parameter.name:
                        read[name] = None
        for condition in self.conditions:
            read |= dict.fromkeys(condition.dims)
        return list(read)

    @cached_property
    def variadic_dims(self) -> frozenset[str]:
        """The names that stand for any number of dimensions."""
        return frozenset(
            dim.name
            for owner in self.owners
            for dim in owner.dims
            if isinstance(dim, Variadic) and dim.name is not None
        )

    @cached_property
    def constrained_dims(self) -> frozenset[str]:
        """The named dimensions that decide which values fit, or that a condition reads.

        A constraint depends on their size, or spans them. Values that fit
        the whole dimension may not fit a slice of it, or several dimensions joined to one.
        """
        found = {name for condition in self.conditions for name in condition.dims}
        for parameter in self.parameters:
            for constraint in parameter.constraints:
                for expression in constraint.expressions():
                    found |= expressions.names(expression)
                if constraint.along:
                    found |= set(bound_by(parameter.dims[-constraint.along :]))
        return frozenset(found)

    @cached_property
    def told_dims(self) -> frozenset[str]:
        """The named dimensions that the numbers in a sequence must add up to, or end at.

        A compiler treats such numbers as constants, and so the size as well.
        """
        return frozenset(
            name
            for parameter in self.parameters
            if parameter.is_sequence
            for constraint in parameter.constraints
            if constraint.along
            for expression in constraint.expressions()
            for name in expressions.names(expression)
        )

    def unspecified(self) -> list[str]:
        """Return the values for which results are unspecified: ``NaN and infinity of 'x'``."""
        return [
            f"{' and '.join(p.unspecified)} of {p.name!r}" for p in self.tensors if p.unspecified
        ]

    def schema(self) -> str:
        """Return the schema without the namespace, as ``torch.library.define`` expects it."""
        return schema_of(self.name, self.parameters, self.results)

    @cached_property
    def writing(self) -> Signature:
        """The signature of the out variant, in which each result is an argument that is written.

        It has no results, although the out variant returns what it was given.
        """
        memory = [Parameter(r.name, r.type, keyword_only=True, mutated=True) for r in self.results]
        return replace(self, parameters=(*self.parameters, *memory), results=())

    @cached_property
    def no_out(self) -> str:
        """The reason why the operator has no out variant; empty if it has one."""
        if self.mutated:
            return f"it writes into {self.mutated[0].name!r} already"
        if any(isinstance(result.type, TensorListType) for result in self.results):
            return "it returns a list, and nothing says of how many tensors"
        if self.data_dependent:
            return f"data decide the size of {', '.join(self.data_dependent)}"
        if not self.results:
            return "it returns nothing"
        return "" if self.shaped else "its declaration gives a result without a shape"

    def out_schema(self) -> str:
        """Return the schema of the out variant: ``f.out(Tensor x, *, Tensor(a!) out) -> …``."""
        types = [f"Tensor({chr(ord('a') + place)}!)" for place in range(len(self.results))]
        text = self.writing.schema().replace(self.name, f"{self.name}.out", 1).removesuffix("()")
        return text + (types[0] if len(types) == 1 else f"({', '.join(types)})")

    def facts(self) -> str:
        """Return everything in the declaration except its documentation, as a text.

        No shape is parsed for it.
        """
        dtypes = [p.tensor_type and p.tensor_type.dtypes.names for p in self.parameters]
        results = [
            (one.annotation or str(one.type), one.tensor_type.dtypes.names, one.differentiable)
            for one in self.results
        ]
        annotations = [parameter.annotation for parameter in self.parameters]
        variables = [variable.names for variable in self.dtype_variables]
        claims: tuple[object, ...] = self.data_dependent, self.parallel_dims
        if self.summed_dims or self.linear_in:
            claims = (*claims, self.summed_dims, self.linear_in)
        if self.where:
            claims = (*claims, self.where)
        if self.batch_invariant:
            claims = (*claims, "batch_invariant", self.batch_invariant)
        return repr(
            (self.namespace, self.schema(), annotations, dtypes, variables, results, claims)
        )

    def result_dims(self, result: Result) -> tuple[Fixed | Variadic, ...]:
        """Return the dimensions of a result; the signature must be `shaped`."""
        dims = tuple(dim for dim in result.dims if isinstance(dim, Fixed | Variadic))
        assert len(dims) == len(result.dims)
        return dims


def schema_of(name: str, parameters: Sequence[Parameter], results: Sequence[Result]) -> str:
    """Return the schema: ``name(Tensor x, SymInt[3] size, *, float scale=1.0) -> Tensor``."""
    arguments: list[str] = []
    aliases = iter("abcdefghijklmnopqrstuvwxyz")
    starred = False
    for parameter in parameters:
        if parameter.keyword_only and not starred:
            arguments.append("*")
            starred = True
        arguments.append(_argument(parameter, next(aliases) if parameter.mutated else None))
    returned = ["Tensor[]" if isinstance(r.type, TensorListType) else "Tensor" for r in results]
    returns = returned[0] if len(returned) == 1 else f"({', '.join(returned)})"
    return f"{name}({', '.join(arguments)}) -> {returns}"


def _argument(parameter: Parameter, alias: str | None) -> str:
    mark = f"({alias}!)" if alias else ""
    match parameter.type:
        case TensorType():
            text = f"Tensor{mark}"
        case TensorListType():
            text = f"Tensor{mark}[]"
        case ScalarType(kind):
            text = _KINDS[kind]
        case SequenceType(kind, length):
            # Only a sequence of ints may carry its length: the schema language lets one int stand
            # for all of them there, and refuses a length for the other kinds.
            text = f"{_KINDS[kind]}[{length if length and kind == 'int' else ''}]"
    if parameter.optional:
        text += "?"
    text = f"{text} {parameter.name}"
    if parameter.default is not NO_DEFAULT:
        text += f"={_default(parameter.default)}"
    return text


def _default(value: object) -> str:
    match value:
        case str():
            return quoted(value)
        case list() | tuple():
            return f"[{', '.join(_default(item) for item in value)}]"
        case _:
            return repr(value)
