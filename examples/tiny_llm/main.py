"""Train a small language model, export it three times, and have each write the same text.

python examples/tiny_llm/main.py [--out FOLDER] [--steps N] [--count N]
"""

import argparse
import pydoc_data.topics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch.utils import cpp_extension

import opsmith
from examples.tiny_llm.model import Sizes, Step, TinyLlm, generate, train

PROMPT = "The "


def text() -> str:
    """Give what there is to learn: Python's own reference, as its `help` shows it."""
    return "\n".join(pydoc_data.topics.topics.values())


def build_program(artifact: Path) -> Path:
    """Compile ``generate.cpp`` against an artifact of AOTInductor's, and return the program.

    Raises:
        CalledProcessError: the compiler refused it; it has said why.
    """
    program = artifact / "generate"
    libraries = cpp_extension.library_paths()
    command = ["g++", "-std=c++20", "-O1", str(Path(__file__).with_name("generate.cpp"))]
    command += ["-I", str(artifact / "runner"), "-o", str(program)]
    command += [f"-isystem{folder}" for folder in cpp_extension.include_paths()]
    command += [f"{flag}{folder}" for folder in libraries for flag in ("-L", "-Wl,-rpath,")]
    # The compiled model needs libraries that the program does not name.
    command += ["-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10", "-ldl"]
    subprocess.run(command, check=True)
    return program


def run(folder: Path, steps: int, count: int, sizes: Sizes) -> dict[str, tuple[str, float]]:
    """Train, export, and continue the same prompt in each runtime.

    Args:
        folder: where the artifacts go.
        steps: how long to train.
        count: how many characters to write.
        sizes: the model's.

    Returns:
        By runtime: what it wrote, and how many tokens a second it took.
    """
    torch.manual_seed(0)
    model = TinyLlm(sizes)
    elements = sum(weight.numel() for weight in model.parameters())
    print(f"Training {elements:,} weights for {steps} steps …", flush=True)
    losses = train(model, text(), steps)
    for number in sorted({0, *range(0, steps, max(steps // 5, 1)), steps - 1}):
        print(f"  step {number:4d}   {losses[number]:.2f} nats a character")
    step = Step(model).eval().requires_grad_(False)
    state = step.start()
    example = (torch.tensor([65]), torch.tensor([0]), *state)

    found = {}

    def try_in(runtime: str, call: Callable[..., object]) -> None:
        with torch.inference_mode():
            generate(call, state, PROMPT, 1)
            begun = time.perf_counter()
            added = generate(call, state, PROMPT, count)
        tokens = len(PROMPT) + count - 1
        found[runtime] = added, tokens / (time.perf_counter() - begun)

    try_in("PyTorch", step)
    print("Compiling, and exporting to ONNX Runtime and to AOTInductor …", flush=True)
    try_in("torch.compile", torch.compile(step, fullgraph=True))
    for target, name in (("onnxruntime", "ONNX Runtime"), ("aotinductor", "AOTInductor")):
        opsmith.export(step, example, target=target, out=folder / target, overwrite=True)
        try_in(name, opsmith.load(folder / target))
    program = build_program(folder / "aotinductor")
    command = [str(program), str(folder / "aotinductor"), str(count), PROMPT]
    done = subprocess.run(command, env={}, check=True, capture_output=True, text=True)
    found["a C++ program"] = done.stdout, float(done.stderr)
    return found


def main() -> None:
    """Run the example; exit code 1 where two runtimes write different texts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where the artifacts go (default: nowhere)")
    parser.add_argument("--steps", type=int, default=150, help="how long to train")
    parser.add_argument("--count", type=int, default=200, help="how many characters to write")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.out or Path(temporary)
        found = run(folder, arguments.steps, arguments.count, Sizes())
    written = {added for added, _ in found.values()}
    for runtime, (_, rate) in found.items():
        print(f"  {runtime:14} {rate:7.0f} tokens a second")
    for added in written:
        print(f"\n{PROMPT}{added}")
    print(f"\n{'The same text in all' if len(written) == 1 else 'Different texts'}")
    sys.exit(len(written) > 1)


if __name__ == "__main__":
    main()
