"""The sample as a wheel, built once for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from wheel_samples import LEVEL, SAMPLE, install

from opsmith.errors import MissingDependencyError
from opsmith.kernels.toolchain import nvcc
from opsmith.wheels import build_wheel


@contextmanager
def _without_nvcc() -> Iterator[None]:
    """Where nvcc is, it takes a minute for all GPUs."""

    def missing(what: str) -> None:
        raise MissingDependencyError(f"{what}: needs the CUDA compiler nvcc")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvcc, "usable_nvcc", missing)
        yield


@pytest.fixture(scope="module", autouse=True)
def _no_nvcc() -> Iterator[None]:
    with _without_nvcc():
        yield


@pytest.fixture(scope="session")
def said() -> list[str]:
    """What was said while `wheel` was built."""
    return []


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> Path:
    """The sample's wheel."""
    with _without_nvcc():
        return build_wheel(
            SAMPLE, tmp_path_factory.mktemp("wheel"), levels=[LEVEL], say=said.append
        )


@pytest.fixture
def site(wheel: Path, tmp_path: Path) -> Path:
    """The wheel, installed into a folder of its own."""
    folder = tmp_path / "site"
    install(wheel, folder)
    return folder
