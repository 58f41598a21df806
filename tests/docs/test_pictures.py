"""The pictures show what the commands print today, and fetch nothing when they are viewed."""

import re

import pictures
import pytest

#: What differs from run to run and from machine to machine: numbers, how a long line is broken,
#: and whether there is a GPU.
VARIES = re.compile(
    r"– (?=cuda)|: no cuda device on this machine|\d+(?:\.\d+)?(?:e[+-]?\d+)?|\s+|>"
)


def told(text: str) -> str:
    return VARIES.sub("", text)


@pytest.mark.slow
def test_the_picture_of_a_declaration_is_what_show_prints():
    now = pictures.drawn(pictures.SHOW, pictures.shown())
    drawn = (pictures.ASSETS / "show.svg").read_text()
    assert told(pictures.words(drawn)) == told(pictures.words(now)), (
        "run: python docs/site/pictures.py"
    )


@pytest.mark.long  # tests/cli/test_check.py states what is printed
def test_the_recording_of_a_check_is_what_check_prints(tmp_path):
    now = pictures.drawn(pictures.CHECK, pictures.checked(tmp_path))
    drawn = (pictures.ASSETS / "check.svg").read_text()
    assert "was never written" in pictures.words(drawn)
    assert told(pictures.words(drawn)) == told(pictures.words(now)), (
        "run: python docs/site/pictures.py"
    )


def test_the_rows_of_the_recording_appear_one_after_the_other_and_stay():
    drawn = (pictures.ASSETS / "check.svg").read_text()
    still = pictures.drawn("x", "first\n\nlast")
    moving = pictures.animated(still)
    assert pictures.words(moving) == pictures.words(still)
    for text in (moving, drawn):
        rows = set(re.findall(r'<text class="[^"]*" x="[\d.]+" y="([\d.]+)"', text))
        delays = [float(one) for one in re.findall(r"animation-delay:([\d.]+)s", text)]
        assert delays == sorted(set(delays))
        assert (delays[0], len(delays)) == (0, len(rows))
        # "both" keeps a row hidden before, and shown after; nothing runs for ever.
        assert re.findall(r"animation: ([^}]*?) }", text) == ["opsmith-appear 0.2s both", "none"]
        assert "infinite" not in text


@pytest.mark.parametrize("name", ["check.svg", "show.svg"])
def test_a_picture_fetches_nothing(name):
    text = (pictures.ASSETS / name).read_text()
    assert not re.search(r"url\(.?http", text)
    assert "@import" not in text
    # Links in a comment and the namespace of SVG are not fetched.
    assert re.findall(r"(?:href|src)=\"http", text) == []
