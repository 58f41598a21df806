"""`opsmith bench --mesh`: what ranks would send, on meshes that no machine here has."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
import torch.distributed as dist
from jaxtyping import Float, Float32
from torch import Tensor

import opsmith
from opsmith.bench import MeshError, mesh_report, on_meshes

N, C = 512, 64


@opsmith.op("mesh::rms_norm", parallel_dims=("N",), autograd="reference")
def rms_norm(x: Float[Tensor, "N C"], w: Float[Tensor, "C"]) -> Float[Tensor, "N C"]:
    return x / (x * x).mean(1, keepdim=True).sqrt() * w


@opsmith.op("mesh::product", parallel_dims=("N",), summed_dims=("K",), autograd="reference")
def product(x: Float[Tensor, "N K"], y: Float[Tensor, "K M"]) -> Float[Tensor, "N M"]:
    return x @ y


@opsmith.op("mesh::negate", parallel_dims=("*s",))
def negate(x: Float[Tensor, "*s C"]) -> Float[Tensor, "*s C"]:
    return -x


@opsmith.op("mesh::write", mutates_args=("x",), parallel_dims=("N",))
def write(x: Float[Tensor, "N C"]) -> None:
    x.mul_(2)


@pytest.mark.slow
def test_the_bytes_of_a_step_are_those_of_the_collectives_that_it_takes() -> None:
    for ranks in (8, 4096):
        found = on_meshes(rms_norm, [(ranks,)], sizes=[{"N": N * ranks, "C": C}])
        rows, columns = found.rows
        assert (rows.placement, columns.placement) == ("x Shard(0)", "x Shard(1), w Shard(0)")
        assert (rows.claim, columns.claim) == ('parallel_dims=("N",)', "")
        # The gradient of w is the sum of the ranks', which is all that is sent.
        weight = 2 * (ranks - 1) * C * 4 // ranks
        assert (rows.ruled.forward, rows.ruled.backward, rows.ruled.collectives) == (0, weight, 1)
        # To gather x, each rank sends its part to all others; gradients are then whole.
        assert (rows.gathered.forward, rows.gathered.backward) == ((ranks - 1) * N * C * 4, 0)
        assert rows.reference == rows.ruled
        assert columns.ruled.sent > rows.ruled.sent
    assert found.unsharded["mesh::rms_norm"][0].startswith("no rule for C: neither parallel_dims")


def test_each_dimension_of_a_mesh_may_follow_a_rule_of_its_own() -> None:
    size = {"N": 64, "K": 32, "M": 16}
    rows = {row.placement: row for row in on_meshes(product, [(8, 4)], sizes=[size]).rows}
    mixed = rows["x Shard(0) Shard(1), y Replicate() Shard(0)"]
    # Forward, nothing: the result is a sum. Backward, the gradient of y over the eight.
    assert mixed.ruled.forward == 0
    assert mixed.ruled.backward == 2 * 7 * (32 // 4 * 16 * 4) // 8
    assert mixed.claim == 'parallel_dims=("N",) and summed_dims=("K",)'


def test_a_size_of_several_dimensions_is_that_of_their_only_dimension() -> None:
    rows, _ = on_meshes(negate, [(8,)], sizes=[{"s": N, "C": C}]).rows
    assert (rows.placement, rows.sizes) == ("x Shard(0)", f"s={N} C={C}")
    # To gather x, each rank sends its part to all others.
    assert (rows.gathered.forward, rows.gathered.backward) == (7 * N * C * 4 // 8, 0)


def test_an_operator_that_writes_has_a_forward_step() -> None:
    (rows, columns) = on_meshes(write, [(4,)], sizes=[{"N": 8, "C": 4}]).rows
    assert (rows.ruled.sent, rows.ruled.problem) == (0, "")
    assert columns.ruled.sent > 0


def test_a_reference_that_reads_values_says_so() -> None:
    @opsmith.op("mesh::scaled", parallel_dims=("N",))
    def scaled(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2 if float(x.sum()) > 0 else x.clone()

    (row,) = on_meshes(scaled, [(4,)], sizes=[{"N": 8}]).rows
    assert (row.ruled.sent, row.ruled.problem) == (0, "")
    assert row.reference.problem.startswith("RuntimeError: ")
    lines = [str(getattr(line, "plain", "")) for line in mesh_report.lines([row], [])]
    assert f"  reference: {row.reference.problem}" in lines


def test_what_cannot_be_counted_is_refused() -> None:
    @opsmith.op("mesh::zeros")
    def zeros(n: int) -> Float32[Tensor, "{n}"]:
        return torch.zeros(n)

    with pytest.raises(MeshError, match="mesh::zeros: takes no tensor that ranks could hold"):
        on_meshes(zeros, [(8,)])
    dist.init_process_group("fake", rank=0, world_size=2)
    try:
        with pytest.raises(MeshError, match="is a rank of a process group; call it in a process"):
            on_meshes(rms_norm, [(8,)])
    finally:
        dist.destroy_process_group()


def test_a_picture_has_three_bars_for_each_placement() -> None:
    rows = on_meshes(rms_norm, [(8,), (8, 8)], sizes=[{"N": 64, "C": 8}]).rows
    root = ElementTree.fromstring(mesh_report.to_svg(rows))
    bars = [one for one in root if one.tag.endswith("rect")]
    assert len(bars) == 3 * len(rows) == 12
    texts = [one.text for one in root if one.tag.endswith("text")]
    assert "mesh::rms_norm  N=64 C=8  float32  8x8 ranks" in texts


@pytest.mark.slow
def test_the_command_prints_saves_and_refuses(cli, tmp_path: Path) -> None:
    file = tmp_path / "ops.py"
    file.write_text(
        "import opsmith\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
        '@opsmith.op("mesh_cli::double", parallel_dims=("N",))\n'
        'def double(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:\n    return x * 2\n'
        'double.register_sizes({"N": 4096})\n'
    )
    saved, drawn = tmp_path / "mesh.json", tmp_path / "mesh.svg"
    out = cli("bench", str(file), "--mesh", "64x8", "--save", str(saved), "--plot", str(drawn))
    assert out.code == 0
    assert "mesh_cli::double  N=4096  float32  64x8 ranks" in out.stdout
    assert "nothing" in out.stdout
    document = json.loads(saved.read_text())
    assert (document["schema"], document["rows"][0]["mesh"]) == ("opsmith.mesh/1", [64, 8])
    assert drawn.read_text().startswith("<svg")
    for mesh, words in (
        ("64y8", "'64y8': expected the number of ranks along each dimension, as in 8 or 64x8"),
        ("1", "'1' has 1 ranks in 1 dimensions; expected 2 to 65536 in at most 3"),
    ):
        refused = cli("bench", str(file), "--mesh", mesh)
        assert refused.code == 2
        assert words in " ".join(refused.stderr.split())
    refused = cli("bench", str(file), "--mesh", "8", "--only", "cpu kernel")
    assert "times nothing, so it takes no --only" in " ".join(refused.stderr.split())


def test_a_size_that_leaves_a_dimension_open_is_refused(cli, tmp_path: Path) -> None:
    file = tmp_path / "open.py"
    file.write_text(
        "import opsmith\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
        '@opsmith.op("mesh_cli::halve")\n'
        'def halve(x: Float[Tensor, "*s C"]) -> Float[Tensor, "*s C"]:\n    return x / 2\n'
    )
    refused = cli("bench", str(file), "--size", "s=4")
    assert refused.code == 2
    assert "mesh_cli::halve has the dimensions s, C: write s=4,C=…" in " ".join(
        refused.stderr.split()
    )
