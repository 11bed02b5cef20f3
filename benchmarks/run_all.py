"""Runs every bench_*.py of this folder and service.py, each in a process of its own: `make bench`.

Exits with 1 if any of them failed, after running them all.
"""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def main() -> int:
    failed = []
    for script in [*sorted(FOLDER.glob("bench_*.py")), FOLDER / "service.py"]:
        print(f"== {script.stem}", flush=True)
        if subprocess.run([sys.executable, str(script)], check=False).returncode:
            failed.append(script.name)
        print(flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
