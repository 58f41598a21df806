"""Print how calls run without opsmith, as ``python -m <package>._opsmith``."""

from .operators.dispatch.gates import gate_libraries

print(gate_libraries.say())
