#!/usr/bin/env bash
# FlopCounterMode gives 0 for nn.TransformerEncoderLayer and nn.MultiheadAttention in evaluation mode without gradients,
# and for nn.LSTM in any mode. In training mode on a CPU it counts an attention with dropout whole, and one without
# dropout less its products of queries, keys and values.
# Guess before: it counts by dispatched operators, so only unusual ones are missed; the fused layer decomposes.
# Seen: torch 2.13.0, CPU, 2026-11-28. The fast path of evaluation, the CPU's flash attention and the recurrent kernels
# are operators of their own, in no table of the counter, and an operator in no table counts as 0 without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.11}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$folder"
env/bin/python -W ignore - <<'PYTHON'
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def counted(module, *inputs, **options):
    with FlopCounterMode(display=False) as counter:
        module(*inputs, **options)
    return counter.get_total_flops()


tokens = torch.randn(2, 10, 16)
layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
attention = nn.MultiheadAttention(16, 2, batch_first=True)
projections, products = 2 * 20 * 16 * 16 * 4, 2 * 2 * 2 * 10 * 10 * 16
dense = 2 * 2 * 20 * 16 * 32
training = counted(layer, tokens), counted(attention, tokens, tokens, tokens, need_weights=False)
layer.eval(), attention.eval()
with torch.no_grad():
    evaluation = counted(layer, tokens), counted(attention, tokens, tokens, tokens, need_weights=False)
recurrent = counted(nn.LSTM(8, 8), torch.randn(5, 2, 8))
print(f"encoder layer, attention: training {training}, evaluation {evaluation}; LSTM {recurrent}")
print(f"by hand: {projections + products + dense}, {projections + products}; LSTM {2 * 5 * 2 * 4 * 8 * 16}")
assert training == (projections + products + dense, projections)
assert evaluation == (0, 0)
assert recurrent == 0
PYTHON
