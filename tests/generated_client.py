"""A client that openapi-python-client makes of the OpenAPI document, for tests that ask with it."""

import json
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["PACKAGE", "generate_client"]

PACKAGE = "epochcast_client"
_CONFIG = "content_type_overrides:\n  text/csv: application/octet-stream\n"


def generate_client(document, folder):
    """Make the package in a folder, of which the folder with the package comes back; nothing may be left out."""
    (folder / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "config.yaml").write_text(_CONFIG, encoding="utf-8")
    tool = Path(sys.executable).with_name("openapi-python-client")
    options = ["--path", "openapi.json", "--output-path", "made", "--config", "config.yaml"]
    environment = {**os.environ, "PATH": f"{tool.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    done = subprocess.run(
        [tool, "generate", *options], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "WARNING" in done.stdout) == (0, False), done.stdout + done.stderr
    return folder / "made"
