"""Runtimes that operators and models are exported to: one folder each, behind one small protocol.

``export`` writes an artifact and ``load`` runs it. To add a target, add a folder here whose
``__init__`` holds ``TARGET``, or register another package; `exporting.protocol` documents what a
target must implement.
"""

from opsmith.targets.exporting.artifact import Artifact, OperatorUse
from opsmith.targets.exporting.conformance import (
    DirectProof,
    GradientProof,
    ModelProof,
    OperatorProof,
)
from opsmith.targets.exporting.export import export
from opsmith.targets.exporting.loaded_artifact import LoadedModel, LoadedOperators, load
from opsmith.targets.exporting.model import Model
from opsmith.targets.exporting.protocol import (
    ModelTarget,
    OperatorRunner,
    OperatorTarget,
    Option,
    Outcome,
    Route,
    Runner,
    Target,
)
from opsmith.targets.exporting.registry import all_targets, get_target, target_names
from opsmith.targets.exporting.tracing import prepare
from opsmith.targets.exporting.verification import relative_difference

__all__ = [
    "Artifact",
    "DirectProof",
    "GradientProof",
    "LoadedModel",
    "LoadedOperators",
    "Model",
    "ModelProof",
    "ModelTarget",
    "OperatorProof",
    "OperatorRunner",
    "OperatorTarget",
    "OperatorUse",
    "Option",
    "Outcome",
    "Route",
    "Runner",
    "Target",
    "all_targets",
    "export",
    "get_target",
    "load",
    "prepare",
    "relative_difference",
    "target_names",
]
