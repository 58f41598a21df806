"""Custom classes: state and methods that a model holds, declared like operators."""

from opsmith.operators.classes.custom_class import (
    CustomClass,
    Method,
    all_classes,
    class_of,
    custom_class,
    get,
)
from opsmith.operators.classes.read_class import method

__all__ = [
    "CustomClass",
    "Method",
    "all_classes",
    "class_of",
    "custom_class",
    "get",
    "method",
]
