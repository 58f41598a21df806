"""Rewrite inline PTX, ``asm volatile("…" : … : …)``, to calls of the emulation.

A statement becomes an expression: each operand is a variable with its bits, each instruction a call
of a function in ``emulated/ptx.h``, and results are stored at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from emulators.cuda.declarations import Edit
from emulators.cuda.own_code import OwnCode

if TYPE_CHECKING:
    from tree_sitter import Node

#: The header that a rewritten file includes.
HEADER = "emulated/ptx.h"
_PTX = "::emulated::ptx::"
#: Instructions, whose dots stand for themselves, and what emulates these.
_INSTRUCTIONS = tuple(
    (re.compile(pattern.replace(".", r"\.")), function)
    for pattern, function in (
        (
            r"mma.sync.aligned.m16n8k(8|16).row.col.(f16|f32).(f16).(f16).\2",
            r"mma<\1, \2, \3, \4>",
        ),
        (
            r"mma.sync.aligned.m16n8k(8|16).row.col.f32.bf16.bf16.f32",
            r"mma<\1, f32, bf16, bf16>",
        ),
        (r"mma.sync.aligned.m16n8k(4|8).row.col.f32.tf32.tf32.f32", r"mma<\1, f32, tf32, tf32>"),
        (
            r"mma.sync.aligned.m16n8k32.row.col.f32.(e4m3|e5m2).(e4m3|e5m2).f32",
            r"mma<32, f32, \1, \2>",
        ),
        (
            r"mma.sync.aligned.m16n8k(16|32).row.col.s32.([su]8).([su]8).s32",
            r"mma<\1, s32, \2, \3>",
        ),
        (
            r"mma.sync.aligned.m16n8k(16|32).row.col.satfinite.s32.([su]8).([su]8).s32",
            r"mma<\1, s32, \2, \3, true>",
        ),
        # ptxas takes the shape behind the number too.
        (
            r"(ld|st)matrix.sync.aligned(?:.m8n8)?.x([124])(?:.m8n8)?.shared(?:::cta)?.b16",
            r"\1matrix<\2>",
        ),
        (
            r"(ld|st)matrix.sync.aligned(?:.m8n8)?.x([124]).trans(?:.m8n8)?.shared(?:::cta)?.b16",
            r"\1matrix<\2, true>",
        ),
        (r"cp.async.ca.shared(?:::cta)?.global(?:.L2::\d+B)?", "cp_async<4, 8, 16>"),
        (r"cp.async.cg.shared(?:::cta)?.global(?:.L2::\d+B)?", "cp_async<16>"),
        (r"cp.async.cg.shared(?:::cta)?.global.L2::cache_hint", "cp_async_hinted<16>"),
        (r"createpolicy.fractional.L2::\w+.b64", "set"),
        (r"cp.async.commit_group", "cp_async_commit_group"),
        (r"cp.async.wait_group", "cp_async_wait_group"),
        (r"cp.async.wait_all", "cp_async_wait_all"),
        (r"bar(?:rier)?(?:.cta)?.(sync|arrive)(?:.aligned)?", r"bar_\1"),
        (r"cvta.to.shared.u(?:32|64)", "cvta_to_shared"),
        (r"cvta.to.global.u64|cvt.u(?:32.u64|64.u32)|mov.(?:[bus](?:32|64)|f32)", "set"),
        (r"setp.(eq|ne).[bus]32", r"set_if_\1"),
        (r"lop3.b32", "lop3"),
        (r"fence.(?:acq_rel|sc).(?:gpu|sys)|membar.(?:gl|sys)", "fence_device"),
        (r"fence.(?:acq_rel|sc).cta|membar.cta", "fence_block"),
        (r"ld.(?:global.acquire.gpu|acquire.gpu.global).[bus]32", "load_acquire"),
        (r"red.(?:relaxed.gpu.)?global.add.[us]32", "add_at"),
    )
)
_BITS = {"r": 32, "f": 32, "h": 16, "l": 64, "d": 64, "n": 64}
_REGISTERS = re.compile(r"\.reg\s*\.(pred|[bfsu](?:16|32|64))\s+(.+)\Z", re.DOTALL)
_INSTRUCTION = re.compile(
    r"(?:@(?P<no>!?)(?P<if>[\w%$]+)\s+)?(?P<name>[a-z][\w.:]*)\s*(?P<operands>.*)\Z", re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)")
_OPERAND = re.compile(r'"([=+]?)&?([a-z])"')
#: Matches a comma outside of a list in braces.
_SEPARATOR = re.compile(r",(?![^{}]*\})")
#: What an `asm` outside of functions stands in: that is of the host's assembler.
_FILE_SCOPE = ("translation_unit", "linkage_specification", "declaration_list")
_LANE = "%laneid"
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?)U?\Z")


def inline_ptx(code: OwnCode) -> Iterator[Edit]:
    """Yield the edits of the inline PTX of a source.

    Raises:
        UnreadableError: an instruction is not emulated.
    """
    for node in code.found("asm"):
        if node.parent and node.parent.parent and node.parent.parent.type in _FILE_SCOPE:
            # The host's assembler is meant.
            yield node.start_byte, node.end_byte, " ".join(code.of(node).split())
            continue
        try:
            yield node.start_byte, node.end_byte, _expression(code, node)
        except _NotEmulatedError as error:
            what = f"inline PTX that is not emulated ({error})"
            raise code.unreadable(what, node.start_byte) from None


class _NotEmulatedError(Exception):
    pass


def _expression(code: OwnCode, node: Node) -> str:
    """Return the expression for a statement."""
    if node.has_error:
        raise _NotEmulatedError(" ".join(code.of(node).split()))
    before, after = [], []
    operands = [
        operand
        for name in ("output_operands", "input_operands")
        if (listed := node.child_by_field_name(name)) is not None
        for operand in listed.children_by_field_name("operand")
    ]
    for number, operand in enumerate(operands):
        found = _OPERAND.match(code.of(operand))
        value = operand.child_by_field_name("value")
        if found is None or found[2] not in _BITS or value is None:
            raise _NotEmulatedError(f"the operand {' '.join(code.of(operand).split())}")
        kind, constraint = found.groups()
        bits = f"uint{_BITS[constraint]}_t"
        expression = f"({' '.join(code.of(value).split())})"
        if kind:
            before.append(f"auto&& opsmith_at_{number} = {expression};")
            after.append(f"{_PTX}give(opsmith_at_{number}, opsmith_{number});")
            expression = f"opsmith_at_{number}"
        taken = f"~{bits}{{0}}" if kind == "=" else f"{_PTX}take<{bits}>({expression})"
        before.append(f"{bits} opsmith_{number} = {taken};")
    statements = _statements(_template(code, node.child_by_field_name("assembly_code")))
    return f"({{ {' '.join([*before, *statements, *after])} (void)0; }})"


def _template(code: OwnCode, node: Node | None) -> str:
    """Return the instructions of a statement, with `#0` for an operand, and without comments."""
    if node is None:
        raise _NotEmulatedError("without instructions")
    parts = []
    for literal in node.named_children if node.type == "concatenated_string" else [node]:
        text = code.of(literal)
        if literal.type == "raw_string_literal":
            parts.append(text.partition("(")[2].rpartition(")")[0])
        elif literal.type == "string_literal":
            parts.append(_ESCAPED.sub(lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), text[1:-1]))
        else:
            raise _NotEmulatedError(f"{' '.join(text.split())} is no text")
    joined = re.sub(r"//[^\n]*|/\*.*?\*/", " ", "".join(parts), flags=re.DOTALL)
    return re.sub(r"%(%|\d+)", lambda m: "%" if m[1] == "%" else f"#{m[1]}", joined)


def _statements(text: str) -> list[str]:
    """Return the C++ statements for the instructions of a statement."""
    names: set[str] = set()
    out = []
    for part in text.split(";"):
        instruction = part.strip()
        while instruction[:1] in ("{", "}"):
            out.append(instruction[0])
            instruction = instruction[1:].strip()
        if not instruction:
            continue
        registers = _REGISTERS.match(instruction)
        if registers is not None:
            declared = [name.strip() for name in registers[2].split(",")]
            names.update(declared)
            bits = "bool" if registers[1] == "pred" else f"uint{registers[1][1:]}_t"
            out += [f"{bits} {_register(name, names)}{{}};" for name in declared]
            continue
        out.append(_call(instruction, names))
    return out


def _call(instruction: str, names: set[str]) -> str:
    match = _INSTRUCTION.match(instruction)
    if match is None:
        raise _NotEmulatedError(instruction)
    called = _emulation(match["name"])
    if called is None:
        raise _NotEmulatedError(match["name"])
    operands = match["operands"].strip()
    arguments = [
        _argument(one.strip(), names, written=number == 0)
        for number, one in enumerate(_SEPARATOR.split(operands) if operands else [])
    ]
    condition = f"if ({match['no']}{_register(match['if'], names)}) " if match["if"] else ""
    return f"{condition}{called}({', '.join(arguments)});"


def _emulation(instruction: str) -> str | None:
    """Return the function that emulates an instruction."""
    for pattern, function in _INSTRUCTIONS:
        match = pattern.fullmatch(instruction)
        if match is not None:
            return re.sub(r"\b(?!true)[a-z]\w*", rf"{_PTX}\g<0>", match.expand(function))
    return None


def _argument(operand: str, names: set[str], *, written: bool) -> str:
    if operand.startswith("{"):
        parts = [_register(one.strip(), names) for one in operand.strip("{} \n\t").split(",")]
        return f"{{{', '.join(f'&{one}' if written else one for one in parts)}}}"
    if operand.startswith("["):
        base, plus, offset = operand.strip("[] \n\t").partition("+")
        address = _register(base.strip(), names)
        return f"{address} + {_register(offset.strip(), names)}" if plus else address
    return _register(operand, names)


def _register(name: str, names: set[str]) -> str:
    """Return the C++ name of a register, or a number."""
    if name.startswith("#"):
        return f"opsmith_{name[1:]}"
    if name in names and re.fullmatch(r"[\w%$]+", name):
        return f"opsmith_register_{re.sub(r'[%$]', '_', name)}"
    if name == _LANE:
        return "::emulated::lane_number()"
    if _NUMBER.match(name):
        return name
    raise _NotEmulatedError(f"the register {name}")
