"""Find in a source, with its line, what a field cannot follow."""

from opsmith.checks.numerics.exact.language import obstacle, table_in


def test_a_source_that_reads_the_bits_of_a_number_is_told_with_its_line(tmp_path):
    source = tmp_path / "bits.cpp"
    for line, what in {
        "const int32_t bits = *(int32_t*)&x;": "(int32_t*)&",
        "union { T value; uint32_t bits; } both;": "union",
        "const auto bits = std::bit_cast<uint32_t>(x);": "bit_cast",
        'asm volatile("mov.b32 %0, %1;" : "=r"(bits) : "f"(x));': "asm",
        "const __m256 lanes = _mm256_loadu_ps(from);": "_mm256_",
    }.items():
        source.write_text(f"// a union of two sets\n{line}\n")
        assert obstacle(source) == f"{what!r} at {source}:2 may read the bits of a number"
    source.write_text("out[i] = static_cast<T>((int)x);  // no union here\n")
    assert obstacle(source) == ""


def test_a_table_of_numbers_is_found_with_its_line(tmp_path):
    source = tmp_path / "kernel.cpp"
    for line in (
        "static const std::array<double, 2049> table = make();",
        "constexpr float table[] = {0.1f, 0.2f};",
        "static constexpr const double kTable [4] = {};",
    ):
        source.write_text(f"#include <array>\n{line}\n")
        assert table_in(source) == f"{source}:2"
    source.write_text(
        "double sums[4] = {};\nstatic const int64_t sizes[] = {1};\n// const float t[2]"
    )
    assert table_in(source) == ""
