"""Which algorithm cuDNN runs a convolution with: by its heuristic or by trying all, within a limit of workspace.

Iteration times jump between batch sizes where the choice changes, so every choice is kept.
"""

import ctypes
import json
from collections.abc import Iterable
from dataclasses import dataclass

from predictor.errors import SchemaError
from proxy_cnns.backends.chainer.cudnn.library import ALGORITHMS, DIRECTIONS, Cudnn, Descriptor, Performance

Shape = tuple[int, ...]
MOST_RESULTS = 16
"""More than any pass has algorithms and math types."""
_HINT = "Raise the limit: EPOCHCAST_WORKSPACE_MIB in the environment gives it in MiB."


@dataclass(frozen=True, slots=True)
class Convolution:
    """One pass of a convolution in cuDNN's terms.

    `direction` is ``forward``, ``backward_data`` or ``backward_filter``; `x`, `w`, `y` are the shapes of the input,
    the weights and the output (or of their gradients), in the order of NCHW.
    """

    direction: str
    x: Shape
    w: Shape
    y: Shape
    padding: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    dtype: str

    @property
    def name(self) -> str:
        """Shape of the layer at its batch size, such as ``128x64x32x32_64x64x3x3_s1x1_p1x1``."""
        parts = [_sizes(self.x), _sizes(self.w), f"s{_sizes(self.stride)}", f"p{_sizes(self.padding)}"]
        parts += [f"d{_sizes(self.dilation)}"] * (self.dilation != (1, 1))
        parts += [f"g{self.groups}"] * (self.groups > 1)
        return "_".join(parts)


@dataclass(frozen=True, slots=True)
class Choice:
    """The algorithm of one pass.

    `how` is ``heuristic`` or ``autotune``, `time_ms` what autotuning measured (None: it was not), `math` cuDNN's
    number of the arithmetic.
    """

    convolution: Convolution
    how: str
    algorithm: int
    workspace_bytes: int
    math: int
    time_ms: float | None = None

    @property
    def name(self) -> str:
        """Name that cuDNN gives the algorithm."""
        names = ALGORITHMS[self.convolution.direction]
        return names[self.algorithm] if self.algorithm < len(names) else f"algorithm {self.algorithm}"


@dataclass(frozen=True, slots=True)
class Operands:
    """A described pass: descriptors and addresses of what it reads (two) and writes (the third), in cuDNN's order.

    `convolution` describes the convolution, with the arithmetic that is allowed.
    """

    convolution: Descriptor
    descriptors: tuple[Descriptor, Descriptor, Descriptor]
    addresses: tuple[int, int, int]


def choose(
    cudnn: Cudnn,
    handle: ctypes.c_void_p,
    convolution: Convolution,
    operands: Operands,
    limit: int,
    deterministic: bool,
    workspace: int | None,
) -> Choice:
    """Choose the fastest algorithm that needs at most `limit` bytes of workspace.

    `operands`: when all are tried, what is written is overwritten. `deterministic`: whether only algorithms that
    always give the same bits are taken. `workspace`: address of `limit` bytes: every algorithm is tried there. None:
    cuDNN's heuristic (v7) is asked.
    SchemaError if no algorithm is within the limit; ProfilingError if cuDNN fails.
    """
    results, count = (Performance * MOST_RESULTS)(), ctypes.c_int()
    out = (MOST_RESULTS, ctypes.byref(count), results)
    first, second, result = (descriptor.pointer for descriptor in operands.descriptors)
    described, pass_name = operands.convolution.pointer, DIRECTIONS[convolution.direction]
    if workspace is None:
        name = f"cudnnGetConvolution{pass_name}Algorithm_v7"
        cudnn.call(name, handle, first, second, described, result, *out)
    else:
        first_address, second_address, target = operands.addresses
        pairs = (first, first_address, second, second_address, described, result, target)
        cudnn.call(f"cudnnFindConvolution{pass_name}AlgorithmEx", handle, *pairs, *out, workspace, limit)
    for offer in results[: count.value]:
        if offer.status == 0 and offer.memory <= limit and (offer.deterministic or not deterministic):
            how, time_ms = ("heuristic", None) if workspace is None else ("autotune", float(offer.time_ms))
            return Choice(convolution, how, offer.algorithm, int(offer.memory), offer.math, time_ms)
    words = [
        f"{dict(enumerate(ALGORITHMS[convolution.direction])).get(offer.algorithm, offer.algorithm)} "
        + (cudnn.status(offer.status) if offer.status else f"{offer.memory / 2**20:.1f} MiB")
        for offer in results[: count.value]
    ]
    raise SchemaError(
        f"cuDNN has no algorithm for {convolution.name} ({convolution.direction}, {convolution.dtype}) within "
        f"{limit / 2**20:g} MiB of workspace: {', '.join(words) or 'it offers none'}. {_HINT}"
    )


def algorithms_json(choices: Iterable[Choice]) -> str | None:
    """JSON for the column `conv_algorithms`: shape -> pass -> algorithm; None if nothing was chosen.

    Where one shape was chosen for more than once (as when a limit changed), the last choice counts.
    """
    names: dict[str, dict[str, str]] = {}
    for choice in choices:
        names.setdefault(choice.convolution.name, {})[choice.convolution.direction] = choice.name
    return json.dumps(names, sort_keys=True) if names else None


def _sizes(numbers: Iterable[int]) -> str:
    return "x".join(map(str, numbers))
