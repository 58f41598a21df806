"""The pages that are generated from the code, by their places on the site."""

from __future__ import annotations

from pathlib import Path

import api
import commands
import cpp_headers
import gallery_page
import notebook
from markdown_of import described

_DOCS = Path(__file__).parents[1]


def pages() -> dict[str, str]:
    """Every generated page, as Markdown."""
    return {
        **{f"reference/api/{name}.md": api.page(module) for name, module in api.MODULES.items()},
        "reference/cli.md": commands.page(),
        "reference/header.md": cpp_headers.page(),
        "reference/artifact.md": artifact(),
        "gallery.md": gallery_page.page(),
        "tutorials/notebook.md": notebook.page(_DOCS / "tutorials" / "notebook.ipynb"),
    }


def artifact() -> str:
    """The page on what an export leaves."""
    from opsmith.targets.exporting import artifact as module

    head = f"""# Artifacts

What `opsmith export` and `opsmith.export` leave is a folder. It is written under a temporary name
and renamed, so that it is whole or not there. What is in it depends on the target; this is alike:

| file | what it is |
|---|---|
| `{module.MANIFEST}` | what the artifact is for, and the SHA-256 of every other file |
| `README.md` | how to run it, and what became of each operator |
| `libraries/` | the kernels, where the target runs them |

Opening an artifact compares every file with its digest: nothing is loaded that is not what was
written. `{module.MANIFEST}` is one JSON object. Its `"manifest"` is the version of the layout,
{module.VERSION} now; this opsmith reads versions {" and ".join(map(str, module._READ))}.
The other keys are the fields of `Manifest`:
"""
    parts = [head]
    for name in ("Manifest", "TensorSpec", "OperatorUse", "Agreement", "CallSpec", "File"):
        parts.append(f"## {name}\n\n{described(getattr(module, name))}")
    return "\n".join(parts)
