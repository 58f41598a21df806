"""The README of a package says how to run what the folder holds."""

from opsmith.targets.aotinductor import target


def test_a_program_that_was_built_is_named_and_how_to_build_it_elsewhere() -> None:
    built, source = ("\n".join(target._how("cpu", {"runner": made})) for made in (True, False))
    command = "opsmith-run . input.pt --output output.pt"
    assert f"It is built for this machine: `runner/{command}`. Elsewhere:\n" in built
    assert "It is built" not in source
    for text in (built, source):
        assert "cmake -S runner -B build -DTORCH_DIR=/path/to/libtorch && cmake" in text
        assert f"\nbuild/{command}\n" in text
