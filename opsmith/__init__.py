"""One declaration of a PyTorch operator, taken to every runtime and proved to agree everywhere."""

from opsmith.errors import (
    ArgumentError,
    ArtifactError,
    BuildError,
    CheckError,
    DeclarationError,
    DifferentiationError,
    ExportError,
    MissingError,
    OpsmithError,
)
from opsmith.operators import Operator, op
from opsmith.operators.adopt import adopt
from opsmith.operators.classes import CustomClass, custom_class, method
from opsmith.operators.cost import Cost
from opsmith.operators.emulation import emulate
from opsmith.signature import (
    Between,
    Extent,
    Index,
    NonDifferentiable,
    Positive,
    Sorted,
    Starts,
    Total,
)
from opsmith.targets import LoadedModel, LoadedOperators, export, load
from opsmith.targets.torch_onnx import onnx_translations
from opsmith.watching import Difference, Watch, watch

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArtifactError",
    "Between",
    "BuildError",
    "CheckError",
    "Cost",
    "CustomClass",
    "DeclarationError",
    "Difference",
    "DifferentiationError",
    "ExportError",
    "Extent",
    "Index",
    "LoadedModel",
    "LoadedOperators",
    "MissingError",
    "NonDifferentiable",
    "Operator",
    "OpsmithError",
    "Positive",
    "Sorted",
    "Starts",
    "Total",
    "Watch",
    "adopt",
    "custom_class",
    "emulate",
    "export",
    "load",
    "method",
    "onnx_translations",
    "op",
    "watch",
]
