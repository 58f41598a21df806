"""Which rows run for the checks that are asked for."""

from gallery.my_add.my_add import my_add
from opsmith.checks.runner import planned


def rows(*select):
    return [(subject.kernel, check.name) for subject, check in planned([my_add], select)]


def test_a_kernel_is_built_before_its_checks_and_no_other_kernel_is():
    assert rows("cuda-on-cpu") == [("cuda", "build"), ("cuda", "cuda-on-cpu")]
    assert [check for kernel, check in rows("cuda-on-cpu", "exact") if kernel == "cpu"] == [
        "build",
        "exact",
    ]


def test_every_kernel_is_built_where_that_is_all_there_is_to_do():
    assert rows("build") == [("cpu", "build"), ("cuda", "build")]
    assert rows("randomness") == rows("build")
