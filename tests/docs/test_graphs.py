"""The pictures of graphs on the gallery's page."""

import re
from pathlib import Path

import graphs
import pytest
import torch
from graphs import Node

GALLERY = Path(__file__).parents[2] / "gallery"
DIAMOND = [
    Node("x", ("x", "float32 3")),
    Node("late", ("late", "float32 3")),
    Node("sin", ("aten.sin.default", "float32 3"), ("x",), is_call=True),
    Node("cos", ("aten.cos.default", "float32 3"), ("x",), is_call=True),
    Node("add", ("aten.add.Tensor", "float32 3"), ("sin", "cos", "late"), is_call=True),
    Node("result 0", ("result",), ("add",)),
]


def tops(svg: str) -> dict[str, float]:
    """How far down each box stands, by its first line."""
    found = re.findall(r'<rect [^>]* y="([\d.]+)"[^>]*/><text [^>]*>([^<]*)</text>', svg)
    return {name: float(top) for top, name in found}


def test_a_node_stands_below_what_it_takes_and_inputs_right_above_who_takes_them():
    at = tops(graphs.drawn(DIAMOND, "a graph"))
    rows = sorted(set(at.values()))
    first = [rows.index(at[name]) for name in ("x", "aten.sin.default", "aten.cos.default")]
    assert first == [0, 1, 1]
    assert at["late"] == at["aten.sin.default"]
    assert (rows.index(at["aten.add.Tensor"]), rows.index(at["result"])) == (2, 3)


def test_boxes_of_a_row_do_not_overlap_and_none_leaves_the_picture():
    svg = graphs.drawn(DIAMOND, "a graph")
    (width, height) = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups())
    boxes = [
        tuple(map(float, box))
        for box in re.findall(
            r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg
        )
    ]
    assert len(boxes) == len(DIAMOND)
    for left, top, wide, high in boxes:
        assert left >= 0 and left + wide <= width and top + high <= height
    for left, top, wide, _ in boxes:
        others = [one for one in boxes if one[1] == top and one[0] > left]
        assert all(left + wide < other[0] for other in others)


def test_each_value_that_is_taken_is_a_line():
    assert graphs.drawn(DIAMOND, "a graph").count("<path ") == 6


def test_a_label_is_text():
    svg = graphs.drawn([Node("x", ("a < b",))], 'of "x" & y')
    assert "a &lt; b" in svg
    assert 'aria-label="of &quot;x&quot; &amp; y"' in svg


def test_an_exported_program_is_drawn_with_dtypes_and_sizes():
    class Model(torch.nn.Module):
        def forward(self, x, y):
            return (x + y).relu(), x

    nodes = graphs.exported(torch.export.export(Model(), (torch.ones(2, 3), torch.ones(3))))
    assert [node.lines for node in nodes] == [
        ("x", "float32 2×3"),
        ("y", "float32 3"),
        ("aten.add.Tensor", "float32 2×3"),
        ("aten.relu.default", "float32 2×3"),
        ("result",),
        ("result",),
    ]
    assert [node.inputs for node in nodes][2:] == [("x", "y"), ("add",), ("relu",), ("x",)]


def test_constants_of_an_onnx_model_are_not_drawn():
    helper = pytest.importorskip("onnx").helper
    floats = 1

    def value(name):
        return helper.make_tensor_value_info(name, floats, [2])

    constant = helper.make_tensor("value", floats, [2], [1.0, 2.0])
    nodes = [
        helper.make_node("Constant", [], ["one"], value=constant),
        helper.make_node("Add", ["x", "one"], ["sum"]),
        helper.make_node("Mine", ["sum", "weight"], ["y"], domain="demo"),
    ]
    held = helper.make_tensor("weight", floats, [2], [1.0, 2.0])
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], [held])
    found = graphs.onnx(helper.make_model(graph))
    assert [node.lines for node in found] == [
        ("x", "input"),
        ("Add",),
        ("demo::Mine",),
        ("result",),
    ]
    assert [node.inputs for node in found] == [(), ("x",), ("Add 1",), ("Mine 2",)]


@pytest.mark.long  # exports every operator; test_an_exported_program_is_drawn_... draws one
def test_the_page_has_the_graphs_of_every_operator_of_the_gallery(gallery):
    sections = re.split(r"^## ", gallery, flags=re.MULTILINE)[1:]
    operators = {one.partition("\n")[0]: one for one in sections}
    folders = {path.parent.name for path in GALLERY.glob("*/README.md")}
    assert folders <= operators.keys()
    for name in folders:
        assert '<svg class="graph"' in operators[name], name
        assert re.search(r"In ONNX.*(\n+<svg|\d+ nodes, |refused\. )", operators[name]), name
    assert ">ranks_depth<" in operators["bev_pool_v2"]  # an input, by its parameter's name
    assert "<rect" in operators["How fast"]
