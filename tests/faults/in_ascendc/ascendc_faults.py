"""Plant faults in kernels in Ascend C, beside the same kernels without them."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float32
from torch import Tensor

from opsmith.checks import harness
from opsmith.checks.harness import Fault, Phase
from opsmith.kernels import kernel_source
from opsmith.kernels.languages.emulated_npu import emulated
from opsmith.signature import Signature, signature_of

HERE = Path(__file__).parent
COUNT = 100


def orders(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def queues(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def parameters(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def rearranged(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def between(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def handed(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def unusual(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def unusual_rows(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def copied(x):
    return x


def doubled(x):
    return 2 * x


def one_more(x):
    return x + 1


def doubled_and_one_more(x):
    return 2 * x + 1


def tripled(x):
    return 3 * x


def fourfold(x):
    return 4 * x


def first(x):
    return x[:1].expand(len(x))


def doubled_first(x):
    return 2 * first(x)


def with_five(x):
    return torch.cat([torch.full((1,), 5.0), x[1:]])


def five_doubled(x):
    return 2 * with_five(x)


def of_the_next_quarter(x):
    return x.roll(-(len(x) // 4))


def padded(x, rows, columns):
    """Return a matrix of the numbers, and of zeros behind them."""
    return torch.cat([x, torch.zeros(rows * columns - len(x))]).view(rows, columns)


def transposed(x):
    return padded(x, 16, 8).T.flatten()[: len(x)]


def total(x):
    return x.sum().expand(len(x))


def above_half(x):
    return torch.where(x >= 0.5, x, 0.0)


def where_it_is_greatest(x):
    return x.argmax().float().expand(len(x))


def falling(x):
    return x.sort(descending=True).values


#: By name: what is right, the code, and the words.
ORDERS = {
    "copied_in_not_waited_for": (
        doubled,
        "NPU-RACE",
        r"Muls \(V of block 0\) reads .* which DataCopyPad \(MTE2 of block 0\) writes.*MTE2_V",
    ),
    "computed_not_waited_for": (doubled, "NPU-RACE", "reads .* which Muls .*V_MTE3"),
    "copied_out_and_copied_over": (copied, "NPU-RACE", "writes .* which .* reads.*MTE3_MTE2"),
    "computed_with_and_copied_over": (tripled, "NPU-RACE", "writes .* which Add .* reads.*V_MTE2"),
    "copied_out_and_computed_over": (one_more, "NPU-RACE", "writes .* reads.*MTE3_V"),
    "flag_of_the_other_direction": (doubled, "NPU-RACE", "MTE2_V"),
    "flag_before_the_copy": (doubled, "NPU-RACE", "MTE2_V"),
    "waits_for_one_of_two_copies": (doubled, "NPU-RACE", "MTE2_V"),
    "flag_that_nobody_waits_for": (copied, "NPU-ORDER", r"nothing waited .*<MTE3_MTE2>\(3\)"),
    "flag_that_nobody_sets": (copied, "NPU-ORDER", r"<MTE2_MTE3>\(0\), which no SetFlag"),
    "flag_of_another_event": (copied, "NPU-ORDER", r"<MTE2_MTE3>\(1\), which no SetFlag"),
    "flag_set_twice": (copied, "NPU-ORDER", "sets the flag .* twice"),
    "event_that_does_not_exist": (copied, "NPU-PARAMETER", "has the event 8; there are 0 to 7"),
    "copies_out_that_overlap": (doubled, "NPU-RACE", "PipeBarrier<PIPE_MTE3>"),
    "copies_in_that_overlap": (copied, "NPU-RACE", "PipeBarrier<PIPE_MTE2>"),
    "barrier_of_another_queue": (doubled, "NPU-RACE", "PipeBarrier<PIPE_MTE3>"),
    "global_memory_read_back": (one_more, "NPU-RACE", "of the result, which .* writes.*MTE3_MTE2"),
    "copied_within_and_copied_out": (copied, "NPU-RACE", r"DataCopy \(V .*V_MTE3"),
}
#: What the compiler orders, unless it is told not to.
BY_THE_COMPILER = {
    "vector_after_vector": (doubled_and_one_more, "NPU-RACE", "PipeBarrier<PIPE_V>"),
    "vector_over_its_source": (doubled, "NPU-RACE", "PipeBarrier<PIPE_V>"),
    "vector_after_scalar": (five_doubled, "NPU-RACE", r"SetValue \(S .*S_V"),
    "scalar_after_vector": (doubled_first, "NPU-RACE", "GetValue .*V_S"),
    "scalar_after_copy": (first, "NPU-RACE", "GetValue .*MTE2_S"),
    "copy_after_scalar": (with_five, "NPU-RACE", r"SetValue \(S .*S_MTE3"),
}
QUEUES = {
    "tensor_not_queued": (doubled, "NPU-RACE", "EnQue and DeQue"),
    "result_not_queued": (doubled, "NPU-RACE", "V_MTE3"),
    "freed_through_another_queue": (doubled, "NPU-QUEUE", "did not allocate.* to be freed here"),
    "freed_twice": (doubled, "NPU-QUEUE", "FreeTensor .* has a tensor that was freed"),
    "used_after_it_was_freed": (doubled, "NPU-QUEUE", "Muls .* uses a tensor after its FreeTensor"),
    "never_freed": (doubled, "NPU-QUEUE", "none of the queue's 2 buffers is free"),
    "taken_from_an_empty_queue": (doubled, "NPU-QUEUE", "takes a tensor from an empty queue"),
    "queued_twice": (doubled, "NPU-QUEUE", "queues a tensor that is queued"),
    "more_than_the_depth": (doubled, "NPU-QUEUE", "puts 2 tensors into a queue whose depth is 1"),
    "queued_elsewhere": (doubled, "NPU-QUEUE", "did not allocate.* to be queued here"),
    "freed_while_it_is_queued": (doubled, "NPU-QUEUE", "frees a tensor that is queued"),
    "copied_into_a_queue_of_results": (doubled, "NPU-RACE", "a buffer of VECOUT.*MTE2_V"),
    "copied_out_of_a_queue_of_arguments": (doubled, "NPU-RACE", "a buffer of VECIN.*V_MTE3"),
    "more_than_the_unified_buffer": (doubled, "NPU-QUEUE", "has 196608, 2048 of them in use"),
    "more_than_the_buffers_there_are": (doubled, "NPU-QUEUE", "more than 64 buffers"),
    "past_the_end_of_its_tensor": (doubled, "MEMORY-BOUNDS", "beside its memory: byte 512 of"),
    "part_past_the_end": (doubled, "MEMORY-BOUNDS", "Muls .* beside its memory: .* TBuf"),
    "before_the_start": (doubled, "MEMORY-BOUNDS", "SetValue .* writes beside its memory"),
    "argument_past_the_end": (doubled, "MEMORY-BOUNDS", "reads 4 elements past the end of argumen"),
    "result_past_the_end": (doubled, "MEMORY-BOUNDS", "writes 1 element past the end of the resul"),
    "before_the_start_of_an_argument": (
        doubled,
        "MEMORY-BOUNDS",
        "GetValue .* reads 1 element before the start of argument 'x'",
    ),
    "argument_written": (doubled, "MUTATION-UNDECLARED", "writes element 0 of argument 'x'"),
    "nothing_written_before": (doubled, "", "Add .* reads byte 0 .* which nothing had written"),
}
PARAMETERS = {
    "tensor_at_no_block": (one_more, "NPU-PARAMETER", "no multiple of 32 bytes"),
    "copied_to_no_block": (doubled, "NPU-PARAMETER", "a destination at an address"),
    "copy_of_part_of_a_block": (doubled, "", "copies 384 of 400 bytes"),
    "too_many_repeats": (doubled, "NPU-PARAMETER", "repeats 256 times; it takes at most 255"),
    "mask_of_more_than_a_repeat": (doubled, "NPU-PARAMETER", "mask of 128 .* a repeat has 64"),
    "step_of_nothing": (doubled, "NPU-PARAMETER", "a step of 0 between blocks"),
    "tail_of_a_repeat_forgotten": (doubled, "", ""),
    "stride_of_a_repeat_in_bytes": (doubled, "MEMORY-BOUNDS", "reads beside its memory"),
    "too_many_blocks_to_copy": (doubled, "NPU-PARAMETER", "blockCount 4096; there are at most"),
    "padding_of_more_than_a_block": (doubled, "NPU-PARAMETER", "pads with more than 32 bytes"),
    "elements_cut_in_two": (doubled, "NPU-PARAMETER", "copies parts of elements"),
    "offset_of_no_element": (copied, "NPU-PARAMETER", "offset 2, which is no multiple"),
    "offset_past_the_end": (copied, "MEMORY-BOUNDS", "Gather .* reads beside its memory"),
    "compares_part_of_a_repeat": (above_half, "", "compares 64 of 100 elements"),
    "compares_integers_by_order": (
        doubled,
        "NPU-PARAMETER",
        "compares int32_t otherwise than by E",
    ),
    "index_read_as_a_number": (where_it_is_greatest, "", ""),
    "parts_that_overlap": (copied, "NPU-RACE", r"of the result, which .* \(MTE3 of block .*SyncAl"),
    "all_write_the_same": (copied, "NPU-RACE", "of the result, which .*SyncAll"),
    "result_of_another_block": (of_the_next_quarter, "NPU-RACE", "of the result, .*SyncAll"),
    "not_all_synchronise": (
        copied,
        "NPU-ORDER",
        "SyncAll .* waits for ever: there is no SyncAll of block 3",
    ),
    "sum_that_is_not_atomic": (fourfold, "NPU-RACE", "of the result, which .*SyncAll"),
    "sum_onto_what_nobody_wrote": (fourfold, "", "adds to element 0 of the result, which nothing"),
    "numbers_in_one_cache_line": (
        copied,
        "NPU-RACE",
        r"SetValue \(S of block \d\) writes element \d+ .* a cache line of 64 bytes, into which",
    ),
    "atomic_to_the_end": (copied, "NPU-ORDER", "ends with copies still atomic"),
    "grid_of_nothing": (copied, "NPU-LAUNCH", "0 blocks; expected 1 to 65535"),
    "no_stream": (copied, "NPU-LAUNCH", r"on no stream: pass opsmith::npu_stream\(ctx\)"),
}
REARRANGED = {
    "sorted_before_it_is_copied": (falling, "NPU-RACE", r"Sort32 \(V .* reads .*MTE2_V"),
    "indices_at_no_block": (falling, "NPU-PARAMETER", "Sort32 .* no multiple of 32 bytes"),
    "sorted_too_often": (falling, "NPU-PARAMETER", "repeats 256 times; it takes at most 255"),
    "sorted_without_room_for_places": (
        falling,
        "MEMORY-BOUNDS",
        "Sort32 .* writes beside its memory: byte 512 of",
    ),
    "merged_over_its_lists": (falling, "NPU-PARAMETER", "a list into memory that it reads"),
    "merged_of_one_list": (falling, "NPU-PARAMETER", "validBit 1; it is 3, 7 or 15"),
    "merged_of_too_long_a_list": (falling, "NPU-PARAMETER", "list of 4096 pairs; .* most 4095"),
    "list_of_half_a_pair": (falling, "NPU-PARAMETER", "a list at .* no multiple of 8 bytes"),
    "merged_once_in_place_of_twice": (falling, "", "merges once, not 2 times: it repeats with fo"),
    "merged_until_a_list_ends": (falling, "", ""),
    "pairs_read_as_values": (falling, "", ""),
    "repeats_two_columns": (first, "NPU-PARAMETER", "has 2 elements in dimension 1, to be 128"),
    "repeats_more_rows_than_there_are": (
        first,
        "NPU-PARAMETER",
        "has 1 elements in dimension 0, to be 2; it repeats 1 in dimension 1 alone",
    ),
    "repeats_a_row_of_no_block": (first, "NPU-PARAMETER", "a row of 4 elements, which fill no"),
    "repeats_over_its_source": (first, "NPU-PARAMETER", "result that overlaps with its argument"),
    "repeated_past_the_end": (first, "MEMORY-BOUNDS", "Broadcast .* writes beside its memory"),
    "rows_without_room_to_a_block": (
        first,
        "NPU-PARAMETER",
        "rows of 5 elements that are 5 apart; expected 8, which fill a multiple of 32 bytes",
    ),
    "summed_over_its_rows": (first, "NPU-PARAMETER", "Sum .* result that overlaps with its arg"),
    "copied_with_too_long_a_step": (doubled, "NPU-PARAMETER", "step of more than 4095 blocks"),
    "copied_within_and_not_waited_for": (copied, "NPU-RACE", r"Copy \(V .*V_MTE3"),
    "whole_tensors_of_unlike_size": (copied, "MEMORY-BOUNDS", "Add .* reads beside its memory"),
    "count_given_as_a_mask": (doubled, "NPU-PARAMETER", "takes -1 elements; the unified buffer"),
    "counts_to_the_end": (doubled, "", ""),
    "mask_that_a_count_resets": (doubled, "", ""),
    "mode_that_a_count_resets": (doubled, "NPU-PARAMETER", "mask of 100 elements; a repeat has"),
    "count_beside_a_mask": (doubled, "NPU-PARAMETER", "SetVectorMask, and a count that is not 1"),
    "count_below_zero": (doubled, "NPU-PARAMETER", "takes -28 elements; the unified buffer has"),
}


BETWEEN = {
    "flag_of_blocks_not_waited_for": (
        of_the_next_quarter,
        "NPU-RACE",
        r"of the result, which .*SyncAll\(\), or a flag between blocks, orders them",
    ),
    "flag_of_blocks_before_the_copy": (of_the_next_quarter, "NPU-RACE", "of the result, which"),
    "flag_of_blocks_behind_another_queue": (
        of_the_next_quarter,
        "NPU-RACE",
        "of the result, which",
    ),
    "flag_of_blocks_too_few_wait_for": (
        of_the_next_quarter,
        "NPU-ORDER",
        "the kernel ends, and nothing waited for CrossCoreSetFlag of block",
    ),
    "flag_of_blocks_of_another_number": (
        of_the_next_quarter,
        "NPU-ORDER",
        r"CrossCoreWaitFlag \(S of block \d\) waits for ever: there is no CrossCoreSetFlag of bl",
    ),
    "flag_of_blocks_that_one_does_not_set": (
        of_the_next_quarter,
        "NPU-ORDER",
        "waits for ever: there is no CrossCoreSetFlag of block 2",
    ),
    "flag_of_blocks_that_does_not_exist": (
        of_the_next_quarter,
        "NPU-PARAMETER",
        "has the flag 16; there are 0 to 15",
    ),
    "flag_of_blocks_without_a_scheduler": (
        of_the_next_quarter,
        "NPU-ORDER",
        "CrossCoreSetFlag .* KERNEL_TYPE_AIV_ONLY does not start: KERNEL_TYPE_MIX_AIV_1_0 does",
    ),
    "all_wait_without_a_scheduler": (
        of_the_next_quarter,
        "NPU-ORDER",
        "SyncAll .* KERNEL_TYPE_AIV_ONLY does not start",
    ),
    "all_wait_in_memory_that_is_not_zero": (
        of_the_next_quarter,
        "NPU-PARAMETER",
        "SyncAll .* has a workspace that does not begin with zeros",
    ),
    "all_wait_in_too_small_a_buffer": (
        of_the_next_quarter,
        "MEMORY-BOUNDS",
        "SyncAll .* writes beside its memory: byte 32 of",
    ),
    "more_blocks_than_cores": (
        of_the_next_quarter,
        "NPU-ORDER",
        "SyncAll .* waits for 49 blocks, and there are at most 48 cores",
    ),
}
HANDED = {
    "transposed_before_it_is_copied": (
        transposed,
        "NPU-RACE",
        r"TransDataTo5HD \(V .* reads .*MTE2_V",
    ),
    "transposed_a_step_further": (
        transposed,
        "MEMORY-BOUNDS",
        "TransDataTo5HD .* writes beside its memory",
    ),
    "transposed_again_a_step_further": (
        transposed,
        "MEMORY-BOUNDS",
        "TransDataTo5HD .* reads beside its memory",
    ),
    "transposed_too_often": (transposed, "NPU-PARAMETER", "256 times; it takes at most 255"),
    "transposed_never": (transposed, "", "reads byte 0 of .* which nothing had written"),
    "transposed_to_no_block": (transposed, "NPU-PARAMETER", "a block at .* no multiple of 32"),
    "transposed_from_no_buffer": (transposed, "MEMORY-BOUNDS", "an address that is in no buffer"),
    "transposed_to_rows_of_eight": (transposed, "", ""),
    "maximum_in_a_buffer_that_is_copied_into": (
        copied,
        "NPU-RACE",
        "ReduceMax .* writes .* which DataCopyPad .* writes",
    ),
    "minimum_over_what_is_needed": (doubled, "", ""),
    "maximum_in_too_small_a_buffer": (
        doubled,
        "MEMORY-BOUNDS",
        "ReduceMax .* writes beside its memory: byte 32 of",
    ),
    "sine_in_a_buffer_that_is_copied_out": (
        doubled,
        "NPU-RACE",
        "Sin .* writes .* which DataCopyPad .* reads.*MTE3_V",
    ),
    "sorted_over_what_is_needed": (doubled, "", ""),
    "sum_of_repeats_in_steps_of_bytes": (total, "MEMORY-BOUNDS", "ReduceSum .* reads beside"),
    "integers_without_a_scale": (
        doubled,
        "NPU-PARAMETER",
        "Cast .* takes int32_t to half before SetDeqScale",
    ),
    "event_fetched_twice": (doubled, "NPU-ORDER", r"sets the flag <MTE2_V>\(0\) twice"),
    "bound_queue_taken_for_the_other_end": (doubled, "NPU-RACE", r"Muls .* reads .*MTE2_V"),
}


def of_sixteenths(x):
    return (16 * x).floor() / 16


def transposed_halves(x):
    return padded(x.half().float(), 16, 16).T.flatten()[: len(x)]


def transposed_bytes(x):
    """Return bytes of blocks of 32: the low halves, in the high halves of the result."""
    low = padded((100 * x).half().float().round(), 16, 32)[:, :16]
    return torch.cat([torch.zeros(16, 16), low.T], 1).flatten()[: len(x)]


def transposed_by_repeats(x):
    return padded(x, 16, 16).T.flatten()[: len(x)]


def eightyfold(x):
    return 5 * (16 * x).half().float()


def greatest(x):
    return x.max().expand(len(x))


#: Right kernels of unusual form, and what is right.
UNUSUAL = {
    **dict.fromkeys(
        (
            *("ping_and_pong", "bound_queue", "tensors_in_place", "fetched_ahead"),
            *("queue_of_intermediates", "parts_of_a_buffer", "pipe_used_again"),
            *("over_its_source", "masks_and_steps", "scalars_between", "rows_with_room"),
            *("refilled_after_a_scalar", "members_and_tiling", "barrier_of_the_next_round"),
            *("parts_that_go_round_by_flags",),
            *("sum_of_blocks", "parts_that_go_round", "blocks_without_work"),
        ),
        (copied,),
    ),
    "by_way_of_half": (of_sixteenths,),
    "sum_of_all": (total,),
    "greatest_and_where": (greatest,),
    "chosen_by_bits": (above_half,),
}
UNUSUAL_ROWS = {
    "rows_by_operators": (copied,),
    "counted_with_steps": (copied,),
    "gathered_by_repeats": (copied,),
    "rows_repeated_and_summed": (copied,),
    "powers_and_rests": (copied,),
    "sorted_in_two_ways": (falling,),
    "merged_step_by_step": (falling,),
    "transposed_halves": (transposed_halves,),
    "transposed_bytes": (transposed_bytes,),
    "transposed_by_repeats": (transposed_by_repeats,),
    "products_by_masks": (eightyfold,),
    "reduced_by_repeats": (total,),
}


def phase_of(seed, fill=0xFF):
    return Phase(seed=seed, fill=fill, emulated=True)


@dataclass(frozen=True)
class Kernels:
    """Kernels of one file.

    Attributes:
        signature: of the operator that calls one of them by its name.
        faults: what is expected of each.
        flags: the compiler's.
    """

    signature: Signature
    faults: dict
    flags: tuple[str, ...] = ()

    @property
    def source(self):
        return HERE / f"{self.signature.name}.cpp"

    @cached_property
    def build(self):
        """The file, compiled for the CPU."""
        source = kernel_source(
            self.signature, "npu", self.source, asked="ascendc", flags=self.flags
        )
        return harness.build(emulated(source), emulated=True)

    def called(self, name, wrong, phase):
        """Call a kernel; return its code and words, or whether the results are right."""
        right = self.faults[name][0]
        x = torch.rand(COUNT, generator=torch.Generator().manual_seed(COUNT)) + 0.25
        case = {"x": x, "fault": name, "wrong": wrong}
        try:
            ((one,),) = harness.run(self.build, self.signature, [case], [phase])
        except Fault as found:
            return found.code.removeprefix("OPS-"), str(found)
        same = not one.refused and torch.allclose(one.results[0], right(x))
        return ("right" if same else ""), "\n".join([one.refused, *one.remarks]).strip()

    def said_of_right(self, name, phase):
        """Return what is said of the kernel without a fault: nothing, if all is well."""
        found, message = self.called(name, False, phase)
        return "" if found == "right" else f"{found}: {message}"

    def missed(self, name, phase):
        """Return what is said of a fault that is not found as it has to be; else nothing."""
        _, code, words = self.faults[name]
        found, message = self.called(name, True, phase)
        if found != code or not re.search(words, message, re.DOTALL):
            return f"{found or 'no code'}, expected {code or 'none'}, {words!r}: {message}"
        named = {int(line) for line in re.findall(rf"{re.escape(str(self.source))}:(\d+)", message)}
        if message and not named & self._lines(name):
            return f"names {sorted(named)}, expected one of {sorted(self._lines(name))}: {message}"
        return ""

    def _lines(self, name):
        """Return the lines that are marked in a fault's kernel, or by its name."""
        lines = self.source.read_text().splitlines()
        named = {n for n, text in enumerate(lines, 1) if text.endswith(f"// FAULT {name}")}
        start = next((n for n, text in enumerate(lines) if f"KERNEL({name})" in text), len(lines))
        end = next((n for n in range(start, len(lines)) if lines[n] == "}"), start)
        return named or {n + 1 for n in range(start, end) if lines[n].endswith("// FAULT")}


GROUPS = (
    Kernels(signature_of(orders, "ascendc_faults::orders"), ORDERS),
    Kernels(
        signature_of(orders, "ascendc_faults::orders"),
        ORDERS | BY_THE_COMPILER,
        ("--cce-auto-sync=off", "-DWITHOUT_ORDER"),
    ),
    Kernels(signature_of(queues, "ascendc_faults::queues"), QUEUES),
    Kernels(signature_of(parameters, "ascendc_faults::parameters"), PARAMETERS),
    Kernels(signature_of(rearranged, "ascendc_faults::rearranged"), REARRANGED),
    Kernels(signature_of(between, "ascendc_faults::between"), BETWEEN),
    Kernels(signature_of(handed, "ascendc_faults::handed"), HANDED),
)
RIGHT = (
    Kernels(signature_of(unusual, "ascendc_faults::unusual"), UNUSUAL),
    Kernels(signature_of(unusual_rows, "ascendc_faults::unusual_rows"), UNUSUAL_ROWS),
)
