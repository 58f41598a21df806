"""Runtimes that operators and models are taken to, one folder each, behind one small protocol.

``export`` leaves an artifact, ``load`` runs it. A target is added by adding a folder here whose
``__init__`` holds ``TARGET``, or by another package; see `opsmith.targets.protocol` for what it
owes.
"""

from opsmith.targets.artifact import Agreement, Artifact, Manifest, OperatorUse, TensorSpec
from opsmith.targets.exporting import export
from opsmith.targets.loaded import LoadedModel, LoadedOperators, load
from opsmith.targets.model import Model
from opsmith.targets.proof import DirectProof, GradientProof, ModelProof, OperatorProof
from opsmith.targets.protocol import (
    ModelTarget,
    OperatorRunner,
    OperatorTarget,
    Option,
    Outcome,
    Route,
    Runner,
    Target,
)
from opsmith.targets.registry import all_targets, get_target, target_names
from opsmith.targets.tracing import prepare
from opsmith.targets.verification import relative_difference

__all__ = [
    "Agreement",
    "Artifact",
    "DirectProof",
    "GradientProof",
    "LoadedModel",
    "LoadedOperators",
    "Manifest",
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
    "TensorSpec",
    "all_targets",
    "export",
    "get_target",
    "load",
    "prepare",
    "relative_difference",
    "target_names",
]
