"""``python -m <package>._opsmith`` says how calls run, where opsmith is not installed."""

from .operators.dispatch import gate_libraries

print(gate_libraries.say())
