"""What type checkers are told: `__init__.py` imports the same names on first use."""

from opsmith.errors import (
    ArgumentError as ArgumentError,
    ArtifactError as ArtifactError,
    BuildError as BuildError,
    CheckError as CheckError,
    DeclarationError as DeclarationError,
    DifferentiationError as DifferentiationError,
    ExportError as ExportError,
    FaultError as FaultError,
    FormError as FormError,
    LoadError as LoadError,
    MissingDependencyError as MissingDependencyError,
    OpsmithError as OpsmithError,
    OptionError as OptionError,
    OutOfBoundsError as OutOfBoundsError,
    StorageError as StorageError,
    UnknownCheckError as UnknownCheckError,
    UnknownTargetError as UnknownTargetError,
)
from opsmith.kernels.languages.inline import cpp as cpp, cuda as cuda
from opsmith.operators import Operator as Operator, op as op
from opsmith.operators.adoption.adopt import adopt as adopt
from opsmith.operators.core.author_rules import Cost as Cost
from opsmith.operators.defined import DefinedOperator as DefinedOperator
from opsmith.operators.dispatch.variants import autotune as autotune
from opsmith.operators.emulation import emulate as emulate
from opsmith.philox import Philox as Philox
from opsmith.signature import (
    Between as Between,
    DtypeVar as DtypeVar,
    Extent as Extent,
    Index as Index,
    NonDifferentiable as NonDifferentiable,
    Positive as Positive,
    Selects as Selects,
    Sorted as Sorted,
    Starts as Starts,
    Total as Total,
    Unspecified as Unspecified,
)
from opsmith.targets import (
    LoadedModel as LoadedModel,
    LoadedOperators as LoadedOperators,
    export as export,
    load as load,
)
from opsmith.targets.onnx.translation_table import onnx_translations as onnx_translations

__version__: str

def elsewhere() -> str: ...
