"""Where a notebook of a repository on GitHub opens to be run: in Colab, in Binder."""

from __future__ import annotations

import re

BRANCH = "online"  # of the repository: what `online` writes, and nothing else


def repository(source: str) -> tuple[str, str]:
    """(owner, name) of https://github.com/OWNER/REPO, from it or the address of anything in it.

    Raises ValueError for another address: Colab and Binder open notebooks from GitHub.
    """
    match = re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?(?:/.*)?", source)
    if not match:
        raise ValueError(f"{source!r} is not the address of a repository on GitHub, from where Colab and "
                         "Binder open notebooks: give it as https://github.com/OWNER/REPO")
    return match[1], match[2]


def colab(source: str, name: str) -> str:
    """Where Colab opens a notebook, `name` without .ipynb: its copy, since Colab gets that file alone."""
    owner, repo = repository(source)
    return f"https://colab.research.google.com/github/{owner}/{repo}/blob/{BRANCH}/{name}.ipynb"


def binder(source: str, name: str) -> str:
    """Where Binder opens a notebook, with the repository around it, set up as the folder `binder` says."""
    owner, repo = repository(source)
    return f"https://mybinder.org/v2/gh/{owner}/{repo}/HEAD?urlpath=lab/tree/notebooks/{name}.ipynb"
