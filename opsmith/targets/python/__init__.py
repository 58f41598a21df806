"""Target ``python``: operators as functions of a Python module, for any library with DLPack."""

from opsmith.targets.exporting.protocol import Option
from opsmith.targets.hosted.target import PackageTarget


class PythonTarget(PackageTarget):
    """Python modules on the CPU."""

    name = "python"
    title = "Python"
    options = (
        Option("package", "the name of the Python package; by default <namespace>_python"),
        Option(
            "backend",
            'where nanobind is: "own", in the package, or "shared", in the package '
            "nanobind-backend, so that one extension serves every Python from 3.10",
            default="own",
            choices=("own", "shared"),
        ),
    )
    packages = ("nanobind",)
    install = 'pip install "opsmith[python]"'
    page = "docs/reference/python.md"


TARGET = PythonTarget()
