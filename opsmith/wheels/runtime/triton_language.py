"""In an installed package, in place of ``opsmith.kernels.languages.triton.language``.

Triton compiles its kernels where they are called, and nothing ahead of time.
"""

from __future__ import annotations

from typing import Any

Triton: Any = None
