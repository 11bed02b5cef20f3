"""What flows between two rows of a layer table, and the sizes that windows leave of it.

Called by `predictor.zoo.builder` and the families; calls nothing of ours but `layers`.
"""

from dataclasses import dataclass, replace

__all__ = ["FeatureMap", "Pair", "ceil_window_size", "pair", "window_size"]

Pair = int | tuple[int, int]
"""One number for both dimensions, or (height, width)."""


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """What one row writes and others read; `index` is that row, or IMAGE for the CNN's input. Per image."""

    index: int
    channels: int
    height: int
    width: int

    def part(self, channels: int) -> "FeatureMap":
        """Return some of its channels, as a view of the same row."""
        return replace(self, channels=channels)


def pair(value: Pair) -> tuple[int, int]:
    """Return (height, width) of a number or pair."""
    return (value, value) if isinstance(value, int) else value


def window_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """Output size of a convolution or pooling; below 1 where the window does not fit."""
    return (size + 2 * padding - kernel) // stride + 1


def ceil_window_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """Output size of a pooling that rounds up; its last window begins inside the input or left padding."""
    out = (size + 2 * padding - kernel + stride - 1) // stride + 1
    return out - 1 if (out - 1) * stride >= size + padding else out
