"""Write a source of CUDA again, so that it means the same and looks otherwise."""

import re
from random import Random

#: What stays as it is: comments, literals, directives with their continuations.
KEPT = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"\w*\(.*?\)\w*\"|\"(?:\\.|[^\"\\\n])*\"|(?<!\w)'(?:\\.|[^'\\\n])+'"
    r"|^[ \t]*#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE,
)
#: An attribute that says nothing of the code that comes.
ATTRIBUTE = "__attribute__((unused))"
MACROS = """\
#define NOISE_DEVICE __device__
#define NOISE_SHARED __shared__
#define NOISE_GLOBAL __global__
#define NOISE_SAME(...) __VA_ARGS__
"""
DIRECTIVES = (
    "#include <cstdint>",
    "#pragma nv_diag_suppress 177",
    "#define NOISE_VALUE (1 + \\\n  2)",
    "#undef NOISE_VALUE",
    "#if 0\n__device__ int never; }\n#include <cub/never.cuh>\n#endif",
    "#ifdef NOISE_PYTHON\n#include <Python.h>\n#else\n#endif",
    "#if defined(__CUDACC__) && \\\n    1\n#endif",
)
COMMENTS = (
    " /* __shared__ */ ",
    " /* <<< ; { */ ",
    ' /* " */ ',
    " /* a\n#include <cub/never.cuh>\n */ ",
)
STATEMENT = re.compile(
    r"^([ \t]*)((?:extern |static )?(?:__shared__|__device__)[^;(){}\n]*;|\w+<<<[^;{}\n]*;)$",
    re.MULTILINE,
)
PLAIN_LINE = re.compile(r"^[^\n/#\"'\\]*$")


def noised(text, seed):
    """Return the source with directives, comments, continuations, attributes, macros and spaces."""
    rng = Random(seed)
    text = STATEMENT.sub(lambda one: _wrapped(rng, one), text)
    parts, at, depth = [], 0, 0
    for kept in [*KEPT.finditer(text), None]:
        end = len(text) if kept is None else kept.start()
        code, depth = _code(rng, text[at:end], text, at, depth)
        parts += [code, "" if kept is None else kept[0]]
        at = end if kept is None else kept.end()
    return MACROS + "".join(parts)


def _wrapped(rng, statement):
    """Return a declaration, or a launch, as the argument of a macro."""
    if "AT_DISPATCH" in statement[0] or rng.random() < 0.5:
        return statement[0]
    return f"{statement[1]}NOISE_SAME({statement[2][:-1]});"


def _code(rng, code, text, start, depth):
    """Return code without literals and comments, with noise; and how many parentheses are open."""
    out = []
    for token in re.finditer(r"\n|[ \t]+|\w+|<<<|>>>|.", code):
        word = token[0]
        at = start + token.start()
        begin, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        line = text[begin : len(text) if end < 0 else end]
        depth += (word == "(") - (word == ")")
        chance = rng.random()
        if word in ("__device__", "__shared__", "__global__"):
            if chance < 0.3:
                word = f"NOISE_{word.strip('_').upper()}"
            elif chance < 0.5 and not re.match(r"\s*\(", text[at + len(word) :]):
                word = f"{word} {ATTRIBUTE}"
        elif word == "\n" and depth == 0 and chance < 0.1 and re.search(r"[;{}]\Z", line):
            word = f"\n{rng.choice(DIRECTIVES)}\n"
        elif word in ("<<<", ">>>") and chance < 0.3:
            word = f" {word} "
        elif word[0] in " \t" and line[: at - begin].strip() and chance < 0.1:
            word = rng.choice(("  ", "\t", *COMMENTS[:3]))
        elif _may_break(word, line, text[at + len(word) :]) and depth == 0 and chance < 0.2:
            word = rng.choice(("\n", " \\\n", COMMENTS[3]))
        out.append(word)
    return "".join(out), depth


def _may_break(word, line, after):
    """Return whether a line may be broken at a space.

    One with a comment may be the line that has to be named; and a brace at the start of a line ends
    a kernel.
    """
    return word[0] in " \t" and PLAIN_LINE.match(line) and not after.startswith("}")
