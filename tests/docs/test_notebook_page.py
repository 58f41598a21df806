"""The tutorial that is a notebook runs from its first cell to its last."""

from pathlib import Path

import nbformat
import notebook
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorials" / "notebook.ipynb"


@pytest.mark.slow  # a kernel of Jupyter's, and two builds
def test_the_notebook_finds_its_fault_and_shows_it_mended_on_its_page_too(monkeypatch):
    ran = None

    def kept(read):
        nonlocal ran
        nbformat.validate(read)
        ran = NotebookClient(read, timeout=300, kernel_name="python3").execute()
        return ran

    monkeypatch.setattr(notebook, "executed", kept)
    page = notebook.page(NOTEBOOK)
    code = [cell for cell in ran.cells if cell.cell_type == "code"]
    assert "tensor([[-1.,  1.]])" in str(code[1].outputs)
    assert "has 1 dimensions, expected 2" in str(code[2].outputs)
    broken, mended = (shown(cell) for cell in (code[4], code[5]))
    assert "OPS-VALUE" in broken
    assert "OPS-" not in mended
    assert "passed" in mended
    for words in ("```text\n", "has 1 dimensions, expected 2", "OPS-VALUE"):
        assert words in page


def shown(cell: nbformat.NotebookNode) -> str:
    """Return the HTML that a cell's last expression is shown as."""
    (result,) = [output for output in cell.outputs if output.output_type == "execute_result"]
    return result.data["text/html"]


def test_the_notebook_is_kept_without_outputs():
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert not cell.get("outputs")
