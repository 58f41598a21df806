"""The runner's own JSON reader and SHA-256."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from opsmith.kernels.toolchain import compilers
from opsmith.targets.aotinductor.runtime import SOURCES

PROGRAM = """
#include "opsmith_json.h"
#include "opsmith_sha256.h"
#include <cstdio>
#include <iostream>
#include <iterator>

void show(const opsmith::Json& json) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.object()) {
      std::cout << key << "=";
      show(value);
    }
  } else if (json.is_string()) {
    std::cout << json.string() << "\\n";
  } else if (json.is_null()) {
    std::cout << "null\\n";
  } else {
    try {
      std::cout << json.number() << "\\n";
    } catch (const std::runtime_error&) {
      for (const opsmith::Json& item : json.array()) show(item);
    }
  }
}

int main(int argc, char** argv) {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (std::string(argv[argc - 1]) == "sha") {
    opsmith::Sha256 sha;
    // In pieces of changing size.
    for (size_t at = 0, size = 1; at < text.size(); at += size, size = size * 3 % 200 + 1) {
      sha.update(text.data() + at, std::min(size, text.size() - at));
      if (at + size > text.size()) break;
    }
    std::cout << sha.finish();
    return 0;
  }
  try {
    show(opsmith::Json::parse(text));
  } catch (const std::runtime_error& error) {
    std::cout << error.what();
    return 1;
  }
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("headers")
    (folder / "main.cpp").write_text(PROGRAM)
    compiler = compilers.find_compiler("a test")
    command = [compiler.path, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-O0", f"-I{SOURCES}"]
    subprocess.run([*command, folder / "main.cpp", "-o", folder / "main"], check=True)
    return folder / "main"


def test_sha256_is_the_one_that_python_computes(program: Path) -> None:
    for size in (0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 1000, 70_001):
        data = bytes((i * 31 + size) % 256 for i in range(size))
        done = subprocess.run([program, "sha"], input=data, capture_output=True, check=True)
        assert done.stdout.decode() == hashlib.sha256(data).hexdigest(), size


def test_json_is_read(program: Path) -> None:
    value = {"a": [1, -2.5, 'x\n"\\/é€😀', None], "b": {"c": "", "d": {}}, "e": [], "f": 1e3}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=2)):
        done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
        assert done.stdout == 'a=1\n-2.5\nx\n"\\/é€😀\nnull\nb=c=\nd=e=f=1000\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it ends too early at byte 0"),
        ("{", "a key should stand here at byte 1"),
        ('{"a" 1}', "a colon should stand here at byte 5"),
        ("[1 2]", "a comma or a closing bracket should stand here at byte 3"),
        ('["a', "a string does not end at byte 3"),
        (r'["\q"]', "an unknown escape at byte 4"),
        (r'["\u12"]', "four hexadecimal digits should stand here at byte 6"),
        ("[1-2]", "a value should stand here at byte 1"),
        ("[] []", "something follows the end at byte 3"),
        ("[" * 300, "it is nested too deeply at byte 200"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(program: Path, text: str, message: str) -> None:
    done = subprocess.run([program], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, message)
