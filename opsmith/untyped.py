"""Name what a type checker cannot know, and why: the core writes `Any` nowhere else without a word.

What is only passed on, compared or tested is an `object` instead.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

#: What a declaration alone gives a type, and it is read when the program runs: an argument or a
#: result of an operator, a tensor or a part of one in a trace, a target's option. The functions
#: that take and return such values are ``Callable[..., Value]``.
Value: TypeAlias = Any

#: The positional arguments of a call.
Args: TypeAlias = tuple[Value, ...]

#: Arguments of a call, or another declaration's values, by name.
Arguments: TypeAlias = Mapping[str, Value]

#: A user's annotation as Python evaluates it: a class, an alias of one with parameters, any object.
Hint: TypeAlias = Any

#: JSON that this program wrote: its reader knows the keys, and a type for each would be a check
#: that only the checker makes.
Json: TypeAlias = Any

#: The object on which PyTorch passes facts from a forward to its backward; any attribute is set.
Context: TypeAlias = Any

#: An object of another package that states no types, or of a part of PyTorch that states none; or
#: of a package that may not be installed.
Untyped: TypeAlias = Any
