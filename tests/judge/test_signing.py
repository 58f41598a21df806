"""Verdicts are signed with a key of minisign, which no candidate can read."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import minisign
import pytest
from typer.testing import CliRunner

from opsmith.checks.run_report import Report
from opsmith.cli.app import app
from opsmith.errors import LoadError
from opsmith.judge import NotSandboxedError, Verdict
from opsmith.judge.signing import read_key, write_signed
from opsmith.system.processes.sandbox.policy import hides, unavailable

SPEC = Path(__file__).with_name("spec.py")
in_a_sandbox = pytest.mark.skipif(bool(unavailable()), reason=f"no sandbox: {unavailable()}")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """Write a secret key, and the public key beside it, into a folder of its own."""
    pair = minisign.KeyPair.generate()
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "host.pub").write_bytes(bytes(pair.public_key))
    (folder / "host.key").write_bytes(bytes(pair.secret_key))
    return folder / "host.key"


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """Write a candidate into a folder of its own."""
    path = tmp_path / "candidate" / "kernels.py"
    path.parent.mkdir()
    path.write_text("from spec import scale\n")
    return path


def _no_password() -> str:
    raise AssertionError("nobody asked for a password")


@in_a_sandbox
def test_the_signature_holds_for_what_is_written_and_for_nothing_else(tmp_path, key, kernels):
    verdict = Verdict(Report([], 7), 7, {"kernels.py": "0" * 64})
    secret = read_key(key, (SPEC, kernels), _no_password)
    out, signature = write_signed(verdict, tmp_path / "verdict.json", secret)
    public = minisign.PublicKey.from_file(key.with_name("host.pub"))
    signed = minisign.Signature.from_file(signature)
    assert signature.name == "verdict.json.minisig"
    public.verify_file(out, signed)
    assert "opsmith judge: undecided" in signed.trusted_comment
    assert json.loads(out.read_text())["files"] == {"kernels.py": "0" * 64}
    out.write_text(out.read_text().replace('"seed": 7', '"seed": 8'))
    with pytest.raises(minisign.VerifyError):
        public.verify_file(out, signed)


@in_a_sandbox
@pytest.mark.skipif(not shutil.which("minisign"), reason="the program minisign is not installed")
def test_minisign_itself_verifies_it(tmp_path, key, kernels):
    verdict = Verdict(Report([], 7), 7, {})
    out, _ = write_signed(
        verdict, tmp_path / "verdict.json", read_key(key, (SPEC, kernels), _no_password)
    )
    command = ["minisign", "-V", "-p", str(key.with_name("host.pub")), "-m", str(out)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert "opsmith judge: undecided" in said.stdout


def test_an_unsigned_verdict_leaves_no_older_signature_beside_it(tmp_path):
    old = tmp_path / "verdict.json.minisig"
    old.write_text("of another verdict")
    assert write_signed(Verdict(Report([], 7), 7, {}), tmp_path / "verdict.json", None) == [
        tmp_path / "verdict.json"
    ]
    assert not old.exists()


@in_a_sandbox
def test_a_key_with_a_password_needs_it(tmp_path, key, kernels):
    secret = minisign.SecretKey.from_file(key)
    secret.encrypt("open")
    key.write_bytes(bytes(secret))
    assert not read_key(key, (SPEC, kernels), lambda: "open").is_encrypted()
    with pytest.raises(LoadError, match=r"host\.key is no secret key of minisign: "):
        read_key(key, (SPEC, kernels), lambda: "wrong")


@in_a_sandbox
def test_a_key_that_a_candidate_could_read_is_refused(tmp_path, key, kernels):
    beside = kernels.with_name("host.key")
    beside.write_bytes(key.read_bytes())
    with pytest.raises(LoadError, match="which lies beside the files that are judged"):
        read_key(beside, (SPEC, kernels), _no_password)
    shown = Path("/usr/share/host.key")
    assert not hides(shown, os.environ) and hides(key, os.environ)
    with pytest.raises(LoadError, match="since the sandbox does not hide its folder"):
        read_key(shown, (SPEC, kernels), _no_password)


def test_nothing_is_signed_without_a_sandbox(monkeypatch, key, kernels):
    monkeypatch.setattr("opsmith.judge.signing.unavailable", lambda: "not for this test")
    with pytest.raises(
        NotSandboxedError, match=r"grants no sandbox \(not for this test\), and the"
    ):
        read_key(key, (SPEC, kernels), _no_password)


@in_a_sandbox
@pytest.mark.parametrize(
    ("text", "said"),
    [("", "no secret key of minisign"), (None, "the key cannot be read: [Errno 2]")],
)
def test_what_is_no_key_is_refused_before_anything_is_judged(tmp_path, kernels, text, said):
    path = tmp_path / "keys" / "host.key"
    path.parent.mkdir()
    if text is not None:
        path.write_text(text)
    out = tmp_path / "verdict.json"
    options = ["--candidate", str(kernels), "--verdict", str(out), "--sign", str(path)]
    result = CliRunner().invoke(app, ["judge", str(SPEC), *options])
    assert result.exit_code == 2
    assert said in result.output
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--candidate", "k.py", "--sign", "host.key"], "--sign signs a file: name it by"),
        (["--candidates", ".", "--verdict", "v.json"], "--verdict takes one candidate: name"),
    ],
)
def test_options_that_do_not_fit_each_other(options, said):
    result = CliRunner().invoke(app, ["judge", str(SPEC), *options])
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())
