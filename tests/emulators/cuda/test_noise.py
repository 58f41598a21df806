"""However a source is written, the emulation reads the same of it."""

import re
from pathlib import Path

import pytest
from emulated_sources import own_code
from noise import ATTRIBUTE, noised

from emulators.cuda.rewriting import rewrite

REPOSITORY = Path(__file__).parents[3]
SOURCES = [
    source
    for folder in ("tests/faults/in_cuda", "gallery", "trophies")
    for source in sorted((REPOSITORY / folder).rglob("*.cu"))
    if "ATen/" not in source.read_text()
]
SEEDS = range(3)
#: What is written for the emulation's runtime.
CALLS = re.compile(
    r"::emulated::(?:device_variable|shared|dynamic_shared|host_only|kernel_only"
    r"|check_threads|Configured)\b"
)


def read(folder, text, source):
    """Return the tokens of a source as C++, without those that are noise."""
    for name in re.findall(r'^#include "(.+)"', text, re.MULTILINE):
        if not (source.parent / name).is_file():
            (folder / name).touch()
    made = rewrite(own_code(folder, text, include_dirs=(source.parent,)))
    made = re.sub(r"^#.*", "", made, flags=re.MULTILINE).replace(ATTRIBUTE, "")
    return "".join(re.sub(r"(OpsmithShared)\d+", r"\1", made).split())


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_noise_in_a_source_changes_nothing_that_is_read(source, tmp_path):
    text = source.read_text()
    expected = read(tmp_path, text, source)
    assert CALLS.search(expected)
    for seed in SEEDS:
        assert noised(text, seed) != noised(text, seed + 1)
        assert read(tmp_path, noised(text, seed), source) == expected, f"seed {seed}"


def test_all_that_is_rewritten_stands_in_these_sources(tmp_path):
    read_ones = "".join(read(tmp_path, source.read_text(), source) for source in SOURCES)
    assert len(set(CALLS.findall(read_ones))) == 7
