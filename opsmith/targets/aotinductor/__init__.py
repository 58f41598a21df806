"""AOTInductor: a compiled model and its operator libraries, run from Python or from C++ alone."""

from opsmith.targets.aotinductor.target import AOTInductor

TARGET = AOTInductor()
