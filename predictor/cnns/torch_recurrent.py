"""LSTM, GRU and RNN layers without numbers: a layer is one operator over all its positions, as in cuDNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from predictor.errors import SchemaError

Composite = Callable[[str, tuple[str, ...], Callable[[], Any], tuple[Any, ...]], Any]
"""Notes an operator of several parts as one: its name, its arguments' names, what runs it, and the arguments."""

_NAMES = ("input", "state", "weights", "directions")


def run_recurrent(torch: Any, name: str, args: Sequence[Any], note: Composite) -> tuple[Any, ...]:
    """Run a recurrent function of PyTorch, such as ``lstm``, layer by layer.

    `name`: ``lstm``, ``gru``, ``rnn_tanh`` or ``rnn_relu``. `args`: as PyTorch's layers give them: input, states,
    weights, whether biases are among these, number of layers, dropout, whether it trains, whether it runs both ways,
    whether the mini-batch is the first dimension. Gives outputs of all positions and the last states, as the function
    gives them. SchemaError if sequences are packed, or states are projected.
    """
    if len(args) != 9 or not isinstance(args[8], bool):
        raise packed_refusal()
    x, states, weights, has_biases, n_layers, dropout, trains, both, _ = args
    states, directions = tuple(states) if name == "lstm" else (states,), 2 if both else 1
    per_layer = directions * (4 if has_biases else 2)
    if len(weights) != n_layers * per_layer:
        raise SchemaError(
            f"an {name.upper()} whose states are projected (proj_size) is not counted. Record it without proj_size, "
            "and give a measured iteration of the CNN as it is as an anchor, which corrects the answer."
        )
    last: list[tuple[Any, ...]] = []
    for layer in range(n_layers):
        own = weights[layer * per_layer : (layer + 1) * per_layer]
        begin = [state[layer * directions : (layer + 1) * directions] for state in states]
        arguments = (x, tuple(begin), tuple(own), directions)
        run = _layer_of(torch, x, begin, own, directions)
        x, *ends = note(name, _NAMES, run, arguments)
        last.append(tuple(ends))
        if dropout and trains and layer + 1 < n_layers:
            x = torch.nn.functional.dropout(x, dropout)
    joined = (ends[0] if n_layers == 1 else torch.cat(ends) for ends in zip(*last, strict=True))
    return x, *joined


def packed_refusal() -> SchemaError:
    """Error about sequences of several lengths in one tensor."""
    return SchemaError(
        "packed sequences: their lengths are numbers, and tensors have none here. Give the recurrent layer the padded "
        "tensor, without pack_padded_sequence, and the answer is that of sequences of full length."
    )


def _layer_of(
    torch: Any, x: Any, states: Sequence[Any], weights: Sequence[Any], directions: int
) -> Callable[[], Any]:
    """Runs one layer: tensors of the shapes that it gives, forward and backward."""
    hidden = weights[1].shape[-1]

    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, *states_and_weights: Any) -> tuple[Any, ...]:
            ctx.save_for_backward(x, *states_and_weights)
            dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
            out = x.new_empty((*x.shape[:-1], directions * hidden), dtype=dtype)
            return out, *(out.new_empty(state.shape) for state in states)

        @staticmethod
        def backward(ctx: Any, *_gradients: Any) -> tuple[Any, ...]:
            needs = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=True)
            return tuple(torch.empty_like(tensor) if needed else None for tensor, needed in needs)

    return lambda: Layer.apply(x, *states, *weights)
