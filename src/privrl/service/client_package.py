"""The npm package of the clients in JavaScript: `privrl serve client` writes it, and a service serves its files."""

import functools
import json
from importlib.metadata import version
from pathlib import Path

CLIENT_FOLDER = Path(__file__).parent / "client"
MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".ts": "text/plain",
}
_DESCRIPTION = "package.json"
PACKAGE_FILES = (
    _DESCRIPTION,
    "index.mjs",
    "index.d.ts",
    "node.mjs",
    "node.d.ts",
    "requests.mjs",
    "privrl-client.mjs",
    "privrl-policy.mjs",
    "privrl-policy.d.ts",
)
"""The files of the package."""


@functools.cache
def read_package() -> dict[str, bytes]:
    """Read the files by name; the package has the version of privrl."""
    files = {name: (CLIENT_FOLDER / name).read_bytes() for name in PACKAGE_FILES}
    described = json.loads(files[_DESCRIPTION])
    versioned = {"name": described.pop("name"), "version": version("privrl"), **described}
    return files | {_DESCRIPTION: json.dumps(versioned, indent=2).encode() + b"\n"}
