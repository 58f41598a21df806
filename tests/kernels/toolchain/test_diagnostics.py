"""What a compiler says once for each dtype is told once."""

from opsmith.kernels.toolchain.diagnostics import compile_error

ONE = """\
k.cpp: In instantiation of 'void k(const a<T>&) [with T = {dtype}]':
/opsmith/include/entry.h:61:9:   required from 'int enter(const Raw*)'
k.cpp:8:1:   required from here
k.cpp:6:50: error: 'const struct a<{dtype}>' has no member named 'xs'
    6 |   a.out[n] = a.xs[n];
      |              ~~^~
k.cpp:6:50: note: declared here
"""
OTHER = """\
k.cpp: In function 'int main()':
k.cpp:9:1: error: expected ';'
"""


def test_an_error_of_a_template_is_told_once_with_what_leads_to_it():
    said = ONE.format(dtype="float") + OTHER + ONE.format(dtype="double")
    told = compile_error("k.cpp", said)
    assert told == f"k.cpp did not compile:\n\n{(ONE.format(dtype='float') + OTHER).strip()}"


def test_what_clang_says_behind_an_error_belongs_to_it():
    one = "k.cpp:6:16: error: no member named 'xs' in 'a<{0}>'\nk.cpp:8:1: note: with T = {0}\n"
    told = compile_error("k.cpp", one.format("float") + one.format("double") + "1 error generated.")
    assert told.splitlines()[2:] == [*one.format("float").splitlines(), "1 error generated."]


def test_what_a_linker_says_behind_a_repeated_warning_is_told():
    warning = "k.cpp:6:16: warning: unused variable 'n'\n   6 |  int n;\n"
    linker = "/usr/bin/ld: k.o: undefined reference to `missing(int)'"
    assert "nothing defines missing(int)" in compile_error("k.cpp", warning * 2 + linker)
