"""Check what others wrote, at pinned commits: what breaks for users is seen before they see it.

    python tests/downstream/run.py [pytorch_scatter …]

git fetches the sources, and they run unedited: operators by `opsmith check`, whole programs by
`opsmith emulate`. Each must end as it did when its recipe was written.
"""

import json
import subprocess
import sys
from pathlib import Path

from fetched import sources

HERE = Path(__file__).parent
OPSMITH = [sys.executable, "-m", "opsmith"]
#: By the name of a file here: which rows fail, by which codes.
OPERATORS: dict[str, set[tuple[str, str]]] = {
    "pytorch_scatter": set(),
    # It launches on the default stream, which does not wait for the work on PyTorch's own.
    "bevdet": {("cuda-on-cpu", "OPS-CUDA-LAUNCH")},
}
#: By name: the repository and its commit, the program, and its arguments. Nothing is found.
PROGRAMS = {
    f"llm.c/{name}": (
        "karpathy/llm.c",
        "f1e2ace651495b74ae22d45d1723443fd00ecd3a",
        f"dev/cuda/{name}.cu",
        ["1"],
    )
    for name in ("gelu_forward", "layernorm_forward")
}


def check(name: str) -> str:
    """Check an operator of others; return what is not as it was, or nothing."""
    command = [*OPSMITH, "check", "--json", str(HERE / f"{name}.py")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if not done.stdout:
        return f"the check ended with exit code {done.returncode}"
    rows = json.loads(done.stdout)["rows"]
    failed = {(row["check"], row["code"]) for row in rows if row["status"] == "failed"}
    passed = [row for row in rows if row["status"] == "passed"]
    if failed == OPERATORS[name] and passed:
        return ""
    return f"{len(passed)} rows passed, and these failed: {sorted(failed) or 'none'}"


def emulate(name: str) -> str:
    """Run a program of others; return what is not as it was, or nothing."""
    repository, commit, program, arguments = PROGRAMS[name]
    file = sources(repository, commit) / program
    command = [*OPSMITH, "emulate", "--repeats", "1", str(file), *arguments]
    code = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
    return f"the program ended with exit code {code}" if code else ""


def main(names: list[str]) -> int:
    """Try what is named, or everything.

    Returns:
        0 if all is as it was, 1 if not, 2 if nothing has such a name.
    """
    known = [*OPERATORS, *PROGRAMS]
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"nothing is called {', '.join(unknown)}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    changed = {}
    for name in names or known:
        print(f"\n{name}", flush=True)
        if problem := check(name) if name in OPERATORS else emulate(name):
            changed[name] = problem
    print()
    for name, problem in changed.items():
        print(f"{name} has changed: {problem}")
    print(f"{len(names or known) - len(changed)} of {len(names or known)} are as they were")
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
