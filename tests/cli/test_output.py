import io

import pytest
from rich.console import Console

from opsmith.cli import output
from opsmith.system.text import beginning, wrapped

MESSAGE = (
    "my_ops::my_op: nothing says which sizes to time. Register those that are served, or give "
    "them with each call:\n  opsmith bench my_operators/of_this_project/my_op.py --size N=4096,C=64"
)


def _said(say, monkeypatch, *, is_terminal):
    stream = io.StringIO()
    console = Console(file=stream, width=50, force_terminal=is_terminal, color_system=None)
    monkeypatch.setattr(output, "stderr", lambda: console)
    say(MESSAGE)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(("say", "begin"), [(output.say, ""), (output.say_error, "error: ")])
def test_a_message_is_wrapped_at_words_on_a_terminal_and_its_command_is_left_whole(
    say, begin, monkeypatch
):
    *prose, command = _said(say, monkeypatch, is_terminal=True)
    first, last = MESSAGE.split("\n")
    assert command == last
    assert " ".join(prose) == begin + first
    assert max(map(len, prose)) <= 50


@pytest.mark.parametrize(("say", "begin"), [(output.say, ""), (output.say_error, "error: ")])
def test_a_message_in_a_file_is_not_wrapped(say, begin, monkeypatch):
    assert "\n".join(_said(say, monkeypatch, is_terminal=False)) == begin + MESSAGE


def test_wrapped_text_keeps_its_indentation_and_its_long_words():
    path = "/home/me/" + "folder/" * 9
    text = f"  kernel: {path}\n\n  one two three"
    assert wrapped(text, 12) == f"  kernel:\n  {path}\n\n  one two\n  three"


def test_what_is_left_out_of_another_programs_output_is_counted():
    lines = [*map(str, range(14)), "", " "]
    assert beginning(lines).splitlines() == [*map(str, range(12)), "(2 more lines)"]
    assert beginning(lines, 14).splitlines() == lines[:14]
