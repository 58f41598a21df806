"""What type checkers are told: `__init__.py` imports the same names on first use."""

from opsmith.errors import ArgumentError as ArgumentError
from opsmith.errors import ArtifactError as ArtifactError
from opsmith.errors import BuildError as BuildError
from opsmith.errors import CheckError as CheckError
from opsmith.errors import DeclarationError as DeclarationError
from opsmith.errors import DifferentiationError as DifferentiationError
from opsmith.errors import ExportError as ExportError
from opsmith.errors import FaultError as FaultError
from opsmith.errors import FormError as FormError
from opsmith.errors import LoadError as LoadError
from opsmith.errors import MissingDependencyError as MissingDependencyError
from opsmith.errors import OpsmithError as OpsmithError
from opsmith.errors import OptionError as OptionError
from opsmith.errors import OutOfBoundsError as OutOfBoundsError
from opsmith.errors import StorageError as StorageError
from opsmith.errors import UnknownCheckError as UnknownCheckError
from opsmith.errors import UnknownTargetError as UnknownTargetError
from opsmith.kernels.languages.inline import cpp as cpp
from opsmith.kernels.languages.inline import cuda as cuda
from opsmith.monitoring import Difference as Difference
from opsmith.monitoring import Monitor as Monitor
from opsmith.monitoring import monitor as monitor
from opsmith.operators import Operator as Operator
from opsmith.operators import op as op
from opsmith.operators.adoption.adopt import adopt as adopt
from opsmith.operators.core.author_rules import Cost as Cost
from opsmith.operators.defined import DefinedOperator as DefinedOperator
from opsmith.operators.emulation import emulate as emulate
from opsmith.philox import Philox as Philox
from opsmith.signature import Between as Between
from opsmith.signature import DtypeVar as DtypeVar
from opsmith.signature import Extent as Extent
from opsmith.signature import Index as Index
from opsmith.signature import NonDifferentiable as NonDifferentiable
from opsmith.signature import Positive as Positive
from opsmith.signature import Selects as Selects
from opsmith.signature import Sorted as Sorted
from opsmith.signature import Starts as Starts
from opsmith.signature import Total as Total
from opsmith.signature import Unspecified as Unspecified
from opsmith.targets import LoadedModel as LoadedModel
from opsmith.targets import LoadedOperators as LoadedOperators
from opsmith.targets import export as export
from opsmith.targets import load as load
from opsmith.targets.onnx.translation_table import onnx_translations as onnx_translations

__version__: str

def elsewhere() -> str: ...
