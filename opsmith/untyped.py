"""Name what a type checker cannot know, and why. What is only passed on or compared is an `object`.

The core writes `Any` nowhere else, except with the reason on its line.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

#: What a declaration alone gives a type, and it is read when the program runs: an argument or a
#: result of an operator, a part of one in a trace, a target's option.
Value: TypeAlias = Any
#: The positional arguments of a call.
Args: TypeAlias = tuple[Value, ...]
#: Arguments of a call, or what else a declaration names, by name.
Arguments: TypeAlias = Mapping[str, Value]
#: A user's annotation as Python evaluates it: a class, an alias with parameters, any object.
Hint: TypeAlias = Any
#: JSON that opsmith wrote, whose keys its reader knows; a type for each would check nothing.
Json: TypeAlias = Any
#: The object on which PyTorch hands facts from a forward to its backward: it takes any attribute.
Context: TypeAlias = Any
#: An object of another package, or of a private part of one, that states no types.
Untyped: TypeAlias = Any
