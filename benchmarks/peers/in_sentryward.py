"""SentryWard over the launches of planted CUDA faults: PTX and a file of JSON each."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from launches import Compiled, only

#: Its results, by what they say of a kernel; what is not here is a refusal.
FINDS = ("not_wellsynced", "potential_race", "invalid_lifecycle")
PASSES = ("race_free", "verified")
UNDECIDED = ("timeout", "analysis_budget_exceeded", "memory_budget_exceeded", "allocation_failed")
#: Seconds for one launch.
LIMIT = 60


class NotExpressible(Exception):
    """A launch cannot be told in its JSON; the message says why."""


def kernel_input(launch: dict[str, Any], ptx: str) -> dict[str, Any]:
    """Return a launch as its JSON has it.

    Raises:
        NotExpressible: an argument is a structure, or a pointer into no memory of the device.
    """
    declared, given = [], []
    for i, argument in enumerate(launch["arguments"]):
        if "bytes" in argument:
            raise NotExpressible("an argument is a structure")
        if "room" in argument:
            if argument["offset"]:
                raise NotExpressible("a pointer does not point to the start of its memory")
            name = argument["room"]
            declared.append({"parameter": i, "type": "pointer", "space": "global", "object": name})
        else:
            given.append({"parameter": i, "type": argument["type"], "value": argument["value"]})
    shape: dict[str, Any] = {"grid_dim": launch["grid"], "block_dim": launch["block"]}
    if cluster := re.search(r"\.reqnctapercluster (\d+)(?:, (\d+), (\d+))?", ptx):
        shape["cluster_dim"] = [int(n or 1) for n in cluster.groups()]
    if launch["shared"]:
        shape["dynamic_shared_bytes"] = launch["shared"]
    return {
        "schema": "spverify.kernel-input/v1",
        "entry": launch["kernel"],
        "launch": shape,
        "declarations": declared,
        "arguments": given,
    }


def asked(program: Path, launch: dict[str, Any], build: Compiled, folder: Path) -> dict[str, Any]:
    """Ask about one launch; return its result, the words, and the seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    ptx = only(build.ptx, launch["kernel"])
    (folder / "kernel.ptx").write_text(ptx)
    text = json.dumps(kernel_input(launch, ptx), indent=1)
    (folder / "input.json").write_text(text)
    command = [str(program), "kernel.ptx", "--input", "input.json", "--timeout", str(LIMIT)]
    started = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    seconds = time.monotonic() - started
    (folder / "output.json").write_text(done.stdout)
    answer = json.loads(done.stdout)
    return {"result": answer["result"], "words": words_of(answer), "seconds": seconds}


def words_of(answer: dict[str, Any]) -> str:
    """Return the result, and what its first two diagnostics say."""
    said = [one.get("message") or one["code"] for one in answer.get("diagnostics", ())]
    return "; ".join(dict.fromkeys([answer["result"], *said[:2]]))


def same_for_both(wrong: dict[str, Any], right: dict[str, Any], build: Compiled) -> bool:
    """Return whether PTX and launch are those of the right twin: the fault is in neither."""

    def told(call: dict[str, Any]) -> list[tuple[str, str]]:
        pairs = []
        for launch in call["launches"]:
            name = launch["kernel"]
            ptx = re.sub(r"\t\.loc.*\n|//.*\n|\$\w+", "", only(build.ptx, name)).replace(name, "")
            mangled = re.sub(r"_Z\w+", "", ptx)
            pairs.append((mangled, json.dumps({**launch, "kernel": ""})))
        return pairs

    return told(wrong) == told(right)


def verdict_on(
    program: Path, call: dict[str, Any], build: Compiled, folder: Path
) -> tuple[str, str, float]:
    """Return a verdict as `table` has it, its words, and the seconds."""
    if not call["launches"]:
        return "not tried", "no kernel of its own is launched", 0.0
    said = []
    for i, launch in enumerate(call["launches"]):
        try:
            said.append(asked(program, launch, build, folder / str(i)))
        except NotExpressible as error:
            return "not tried", str(error), 0.0
    seconds = sum(one["seconds"] for one in said)
    for word, results in (("flags", FINDS), ("undecided", UNDECIDED), ("refuses", None)):
        for one in said:
            if (one["result"] in results) if results else one["result"] not in PASSES:
                return word, one["words"], seconds
    return "passes", said[0]["result"], seconds
