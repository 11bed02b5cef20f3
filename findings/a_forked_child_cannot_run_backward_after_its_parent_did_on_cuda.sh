#!/usr/bin/env bash
# After a backward pass on CUDA in the parent, a forked child that runs a backward pass on the CPU alone ends in a
# RuntimeError about autograd's threads, although it touches no GPU. A spawned one does not.
# Guess before: a child fails where it uses CUDA; work on the CPU alone goes on.
# Seen: torch 2.11.0 with CUDA 13.0, NVIDIA H200, 2026-11-28.
set -euo pipefail
nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || { echo "no NVIDIA GPU here"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
if [ -z "${PYTHON:-}" ]; then
  python3 -m venv env
  PYTHON="$folder/env/bin/python"
  "$PYTHON" -m pip install --quiet --disable-pip-version-check torch==2.11.0 numpy
fi
cat > seen.py <<'PROGRAM'
import multiprocessing
import sys

import torch


def on_the_cpu(answers):
    weight = torch.ones(4, requires_grad=True)
    try:
        (weight * 2).sum().backward()
        answers.put("backward ran")
    except RuntimeError as error:
        answers.put(str(error))


def in_a_child(start):
    context = multiprocessing.get_context(start)
    answers = context.Queue()
    child = context.Process(target=on_the_cpu, args=(answers,))
    child.start()
    answer = answers.get(timeout=120)
    child.join()
    return answer


if __name__ == "__main__":
    before = in_a_child("fork")
    torch.ones(4, device="cuda", requires_grad=True).sum().backward()
    torch.cuda.synchronize()
    after, spawned = in_a_child("fork"), in_a_child("spawn")
    print(torch.__version__, "| before:", before, "| after:", after, "| spawned:", spawned)
    assert before == spawned == "backward ran"
    assert "fork" in after
    sys.exit()
PROGRAM
"$PYTHON" -W ignore seen.py
