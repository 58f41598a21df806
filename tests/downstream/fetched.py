"""Sources of others, of one commit each, which git fetches for whoever runs these recipes."""

import subprocess
from pathlib import Path

FETCHED = Path(__file__).parents[2] / "build" / "downstream"


def sources(repository: str, commit: str) -> Path:
    """The folder of a repository of GitHub's at a commit, which git fetches at the first call.

    Where git cannot reach GitHub, put the repository's files, or those that a recipe includes, into
    ``build/downstream/<owner>+<name>/<commit>``, and an empty file ``.git/FETCHED`` beside them.

    Raises:
        CalledProcessError: git cannot fetch it; it has said why.
    """
    folder = FETCHED / repository.replace("/", "+") / commit
    if not (folder / ".git" / "FETCHED").exists():
        folder.mkdir(parents=True, exist_ok=True)
        address = f"https://github.com/{repository}"
        for words in (
            ("init", "--quiet"),
            ("fetch", "--quiet", "--depth=1", address, commit),
            ("checkout", "--quiet", "--force", commit),
        ):
            subprocess.run(["git", "-C", folder, *words], check=True)
        (folder / ".git" / "FETCHED").touch()
    return folder
