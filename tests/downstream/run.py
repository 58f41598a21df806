"""Check what others wrote, at pinned commits: what breaks for users is seen before they see it.

    python tests/downstream/run.py [pytorch_scatter …]

git fetches the sources, and they run unedited: operators by `opsmith check`, kernels in Ascend C by
its row `ascendc-on-cpu`, whole programs by `opsmith emulate`. Each must end as it did when its
recipe was written. docs/reference/npu.md says what was found in the kernels.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from fetched import sources

HERE = Path(__file__).parent
OPSMITH = [sys.executable, "-m", "opsmith"]
#: By the name of a file here: which rows fail, by which codes.
OPERATORS: dict[str, set[tuple[str, str]]] = {
    "pytorch_scatter": set(),
    # It launches on the default stream, which does not wait for the work on PyTorch's own.
    "bevdet": {("cuda-on-cpu", "OPS-CUDA-LAUNCH")},
}
PASSED, BOUNDS, RACE = "passed", "OPS-MEMORY-BOUNDS", "OPS-NPU-RACE"
#: Kernels in Ascend C, by the name of a file here: what `ascendc-on-cpu` says of each, in memory of
#: the tensors' sizes and as torch_npu's allocator gives it; see driving.py.
KERNELS: dict[str, dict[str, tuple[str, str]]] = {
    "driving_elementwise": {
        "hypot": (BOUNDS, PASSED),
        "hypot_grad": (BOUNDS, PASSED),
        "add_relu": (RACE, RACE),
        "fused_bias_leaky_relu": (BOUNDS, BOUNDS),
        "fake_tensor_quant": (PASSED, PASSED),
        "fake_tensor_quant_with_axis": (PASSED, PASSED),
    },
    "driving_points": {
        "group_points": (BOUNDS, PASSED),
        "group_points_grad": (BOUNDS, PASSED),
        "bev_pool": (BOUNDS, PASSED),
        "bev_pool_grad": ("not applicable", "not applicable"),
        "bev_pool_v2": (BOUNDS, PASSED),
        "bev_pool_v2_grad": ("OPS-NPU-QUEUE", "OPS-NPU-QUEUE"),
        "graph_softmax": (PASSED, PASSED),
        "scatter_mean_grad": (BOUNDS, PASSED),
        "scatter_add_grad": (BOUNDS, PASSED),
    },
    "driving_sampling": {
        "furthest_point_sampling_with_dist": (BOUNDS, RACE),
        "furthest_point_sampling": (BOUNDS, RACE),
        "max_pool2d": (RACE, RACE),
        "sparse_inverse_conv3d": (BOUNDS, PASSED),
        "border_align": (BOUNDS, BOUNDS),
        "hard_voxelize": (BOUNDS, PASSED),
    },
    "driving_boxes": {
        "nms3d": (BOUNDS, BOUNDS),
        "nms3d_normal": (BOUNDS, BOUNDS),
        "draw_gaussian_to_heatmap": (BOUNDS, RACE),
        "cartesian_to_frenet1": (BOUNDS, BOUNDS),
        "boxes_overlap_bev": (PASSED, PASSED),
        "box_iou": (PASSED, PASSED),
        "calc_poly_start_end_sl": (PASSED, PASSED),
        "gaussian": (BOUNDS, PASSED),
    },
    "driving_sampler": {
        "grid_sampler2d_v2_grad": (PASSED, PASSED),
        "grid_sampler3d_grad_v1": ("OPS-VALUE-WRONG", "OPS-VALUE-WRONG"),
    },
    "driving_more1": {
        "graph_softmax_grad": (BOUNDS, PASSED),
        "gather_nms3d_mask": (RACE, RACE),
        "assign_score_withk": (PASSED, PASSED),
        "border_align_grad": (BOUNDS, BOUNDS),
        "knn": (BOUNDS, PASSED),
        "dynamic_voxelization": (BOUNDS, BOUNDS),
        "dynamic_scatter_sum": (BOUNDS, BOUNDS),
        "dynamic_scatter_mean": (BOUNDS, BOUNDS),
        "dynamic_scatter_max": (BOUNDS, BOUNDS),
        "dynamic_scatter_grad_sum": (BOUNDS, BOUNDS),
        "dynamic_scatter_grad_mean": (BOUNDS, RACE),
        "dynamic_scatter_grad_max": (BOUNDS, BOUNDS),
    },
    "driving_attention": {
        "geometric_kernel_attention": (BOUNDS, BOUNDS),
        "deformable_aggregation": (BOUNDS, PASSED),
        "bev_pool_v3": (BOUNDS, BOUNDS),
        "bev_pool_v3_without_depth": (BOUNDS, PASSED),
    },
    "driving_more2": {
        "voxel_pooling_train": (BOUNDS, PASSED),
        "voxel_pooling_train_grad": (BOUNDS, RACE),
        "points_in_box": ("OPS-NPU-QUEUE", "OPS-NPU-QUEUE"),
        "points_in_box_all": (BOUNDS, BOUNDS),
        "voxel_to_point": (BOUNDS, PASSED),
        "roipoint_pool3d": (BOUNDS, PASSED),
        "roiaware_pool3d": (BOUNDS, RACE),
        "nms3d_on_sight": (BOUNDS, BOUNDS),
    },
    "driving_sparse": {
        "scatter_mean": (BOUNDS, RACE),
        "scatter_mean_div": (BOUNDS, RACE),
        "radius": (BOUNDS, RACE),
        "sparse_conv3d": (PASSED, PASSED),
        "subm_sparse_conv3d_with_key": (BOUNDS, BOUNDS),
    },
    "ascend_lora": {
        "sgemmv_shrink": (PASSED, PASSED),
        "sgemmv_expand": ("OPS-VALUE-WRONG", "OPS-VALUE-WRONG"),
    },
    "ascend_direct": {
        "add_custom": (PASSED, PASSED),
        "bgmv_shrink": (PASSED, PASSED),
        "bgmv_expand": (PASSED, PASSED),
        "sgmv_shrink": (PASSED, PASSED),
        "sgmv_expand": (PASSED, PASSED),
        "store_kv_block": ("OPS-NPU-QUEUE", "OPS-NPU-QUEUE"),
    },
}
#: By name: the repository and its commit, the program, and its arguments. Nothing is found.
PROGRAMS = {
    f"llm.c/{name}": (
        "karpathy/llm.c",
        "f1e2ace651495b74ae22d45d1723443fd00ecd3a",
        f"dev/cuda/{name}.cu",
        ["1"],
    )
    for name in ("gelu_forward", "layernorm_forward")
}


def check(name: str) -> str:
    """Check an operator of others; return what is not as it was, or nothing."""
    command = [*OPSMITH, "check", "--json", str(HERE / f"{name}.py")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if not done.stdout:
        return f"the check ended with exit code {done.returncode}"
    rows = json.loads(done.stdout)["rows"]
    failed = {(row["check"], row["code"]) for row in rows if row["status"] == "failed"}
    passed = [row for row in rows if row["status"] == "passed"]
    if failed == OPERATORS[name] and passed:
        return ""
    return f"{len(passed)} rows passed, and these failed: {sorted(failed) or 'none'}"


def emulate(name: str) -> str:
    """Run a program of others; return what is not as it was, or nothing."""
    repository, commit, program, arguments = PROGRAMS[name]
    file = sources(repository, commit) / program
    command = [*OPSMITH, "emulate", "--repeats", "1", str(file), *arguments]
    code = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
    return f"the program ended with exit code {code}" if code else ""


def judge(name: str) -> str:
    """Judge kernels in Ascend C of others; return what is not as it was, or nothing."""
    # With a seed no case comes first for having failed before, as it may in the other memory.
    words = ("--json", "--check", "ascendc-on-cpu", "--seed", "0")
    command = [*OPSMITH, "check", *words, str(HERE / f"{name}.py")]
    said: dict[str, list[str]] = {}
    for padding in ({}, {"OPSMITH_PADDED": "32"}):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | padding)
        if not done.stdout:
            return f"the check ended with exit code {done.returncode}"
        for row in json.loads(done.stdout)["rows"]:
            if row["check"] == "ascendc-on-cpu":
                kernel = row["operator"].partition("::run_")[2]
                said.setdefault(kernel, []).append(row["code"] or row["status"])
    for kernel, verdicts in said.items():
        print(f"{kernel:36}{'   padded: '.join(verdicts)}", flush=True)
    return ", ".join(
        f"{kernel}: {' and '.join(verdicts)}"
        for kernel, verdicts in said.items()
        if tuple(verdicts) != KERNELS[name].get(kernel)
    )


def attempt(name: str) -> str:
    """Run a recipe; return what is not as it was, or nothing."""
    if name in OPERATORS:
        return check(name)
    return judge(name) if name in KERNELS else emulate(name)


def main(names: list[str]) -> int:
    """Try what is named, or everything.

    Returns:
        0 if all is as it was, 1 if not, 2 if nothing has such a name.
    """
    known = [*OPERATORS, *KERNELS, *PROGRAMS]
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"nothing is called {', '.join(unknown)}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    changed = {}
    for name in names or known:
        print(f"\n{name}", flush=True)
        if problem := attempt(name):
            changed[name] = problem
    print()
    for name, problem in changed.items():
        print(f"{name} has changed: {problem}")
    print(f"{len(names or known) - len(changed)} of {len(names or known)} are as they were")
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
