"""How much a step keeps where numbers decide it: by a mask, `nonzero`, `unique` or the suppression of boxes.

Tensors have no numbers here, so the numbers of objects in an image are stated. Of a mask of positions most or few are
true, by the comparison that makes it: `labels == 0` and `iou < 0.3` hold for the background, `labels >= 1` and
`iou > 0.7` for objects.
"""

from __future__ import annotations

import operator as comparisons
from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import Any

from predictor.cnns.recorder import tensors_of

BOXES_PER_IMAGE = 8
"""Objects in an image unless a user says otherwise; COCO's training images have 7.3 on average (118,287 images and
860,001 boxes: https://cocodataset.org)."""

_SMALL_THRESHOLD = 0.05
"""Scores and sides of boxes that nearly all reach, as of a network that begins to train; few reach larger ones."""

COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    name: getattr(comparisons, name) for name in ("eq", "ne", "gt", "ge", "lt", "le")
}
_BOTH, _EITHER = {"logical_and", "bitwise_and", "mul", "prod", "all"}, {"logical_or", "bitwise_or"}
_SAME = {
    "view", "_unsafe_view", "reshape", "clone", "_to_copy", "permute", "transpose", "squeeze", "unsqueeze",
}  # fmt: skip
_SAME |= {"detach", "alias", "t", "contiguous", "clamp", "clamp_min", "expand", "select", "slice", "index"}
_SAME |= {"unbind", "split", "gather", "lift_fresh", "bitwise_or_", "abs", "as_strided", "index_select"}
_JOINED = {"sum", "any", "amax", "max", "count_nonzero", "argmax"}

DECIDED = {
    "nonzero", "_unique2", "unique_dim", "unique_consecutive", "masked_select", "nms", "bincount", "repeat_interleave",
}  # fmt: skip
"""Operators whose result has a shape that numbers decide."""


class Kept:
    """Counts of the true elements of masks, and of what is kept by them.

    `boxes`: objects in an image. `made_by`: operator and arguments that made a tensor; None where none did. `exact`:
    true elements of a tensor that follows from constants, such as the boxes of the targets, or the sum of its numbers;
    else None.
    """

    def __init__(
        self,
        torch: Any,
        boxes: int,
        made_by: Callable[[Any], tuple[str, Any] | None],
        exact: Callable[[Any, bool], int | None],
    ) -> None:
        self.boxes = boxes
        self.is_used = False
        self.images: int | None = None  # of the first convolution
        self._made_by, self._long = made_by, torch.long
        self._counts: dict[int, int] = {}
        self._exact = exact

    def count(self, tensor: Any) -> int:
        """Elements of a mask that are true, or of any tensor that are not 0."""
        exact = self._exact(tensor, False)
        n_true = self._counts.get(id(tensor)) if exact is None else exact
        return self._few(tensor) if n_true is None else n_true

    def number(self, tensor: Any) -> int:
        """A whole number that a step reads: how many are counted, as many as there are objects at most, or 1."""
        made = self._made_by(tensor)
        operator, before = (made[0], tensors_of(made[1])) if made else ("", [])
        counts = before and (id(before[0]) in self._counts or not before[0].is_floating_point())
        if operator in ("max", "amax") and before[0].numel() > 1 and counts:
            self.is_used = True  # such as the most boxes that an image has
            return min(self.boxes, int(before[0].numel())) if before[0].ndim == 1 else self.boxes
        if id(tensor) in self._counts:
            return max(1, self._counts[id(tensor)])
        return self.number(before[0]) if before and operator in _SAME else 1

    def compares(self, tensor: Any) -> bool | None:
        """Result of a comparison of a count, such as ``mask.sum() > 1``; None if `tensor` is no such comparison."""
        made = self._made_by(tensor)
        if made is None:
            return None
        operator, args = made
        if operator == "any" and (id(tensor) in self._counts or _is_mask(args[0])):
            self.is_used = True
            return self._counts.get(id(tensor), self.count(args[0])) > 0
        if operator not in COMPARED or tensors_of(args[1]):
            return None
        if id(args[0]) not in self._counts or args[0].numel() > 1:
            return None
        return bool(COMPARED[operator](self.number(args[0]), args[1]))

    def total(self, tensor: Any) -> int:
        """Sum of whole numbers: the true elements that they count, or as many as there are objects."""
        exact, made = self._exact(tensor, True), self._made_by(tensor)
        if exact is None and made is not None and made[0] in _SAME:
            return self.total(made[1][0])
        if exact is None and made is not None and made[0] in ("sum", "count_nonzero"):
            return self.count(made[1][0])
        return self.boxes * self._images_of(tensor) if exact is None else exact

    def note(self, operator: str, args: Any, result: Any) -> None:
        """Note what an operator says of the counts of its results."""
        inputs = tensors_of(args)
        for tensor in tensors_of(result):
            count = self._count(operator, args, inputs, tensor)
            if count is not None:
                self._counts[id(tensor)] = max(0, min(tensor.numel(), count))

    def _count(self, operator: str, args: Any, inputs: list[Any], result: Any) -> int | None:
        if operator in COMPARED:
            return self._compared(operator, args, inputs, result)
        if operator in ("zeros", "zeros_like", "new_zeros", "zero", "isnan", "isinf"):
            return 0
        if operator in ("ones_like", "new_ones", "ones"):
            return int(result.numel())
        if operator in ("full", "full_like", "new_full", "fill") and not inputs[1:]:
            return int(result.numel()) * bool(args[-1] if not isinstance(args[-1], Sequence) else 1)
        counts: list[int | None] = [self._counts.get(id(tensor)) for tensor in inputs]
        if not inputs or counts[0] is None:
            return None
        if operator in ("index_put", "index_fill", "scatter", "_index_put_impl"):
            index = inputs[1] if inputs[1:] else None  # or a mask
            chosen = 0 if index is None else self.count(index) if _is_mask(index) else int(index.numel())
            return int(counts[0]) + chosen
        if operator in ("logical_not", "bitwise_not"):
            return int(result.numel()) - counts[0]
        if operator in ("cat", "stack"):
            return None if None in counts else sum(count or 0 for count in counts)
        if operator in _BOTH:
            return min(count for count in counts if count is not None)
        if operator in _EITHER:
            return sum(count for count in counts if count is not None)
        if operator in _JOINED:
            return counts[0]
        if operator in _SAME:
            share = float(result.numel() / max(1, inputs[0].numel()))
            return ceil(counts[0] * share)
        return None

    def _compared(self, operator: str, args: Any, inputs: list[Any], result: Any) -> int:
        threshold = args[1]
        few, most = self._few(result), int(result.numel())
        if operator in ("ne", "lt", "le"):
            return most
        if operator == "eq":
            return most if not tensors_of(threshold) and threshold == 0 else few
        if tensors_of(threshold):
            return few
        small = inputs[0].is_floating_point() and abs(threshold) <= _SMALL_THRESHOLD
        return most if small else few

    def _few(self, tensor: Any) -> int:
        """As many as there are objects in the images that a tensor belongs to."""
        return min(int(tensor.numel()), self.boxes * self._images_of(tensor))

    def _images_of(self, tensor: Any) -> int:
        """Images that a tensor belongs to: its first dimension, or the tensors that it was joined of."""
        if self.images is None:
            return 1
        for _ in range(16):
            if tensor.ndim > 1 and tensor.shape[0] == self.images:
                return self.images
            made = self._made_by(tensor)
            if made is None:
                return 1
            inputs = tensors_of(made[1])
            if made[0] in ("cat", "stack") and len(inputs) == self.images:
                return self.images
            if not inputs:
                return 1
            tensor = inputs[0]
        return 1

    def indices_for(self, masks: Sequence[Any]) -> list[Any]:
        """Indices of what masks choose, in place of the masks among the indices of a tensor."""
        self.is_used = True
        indices: list[Any] = []
        for mask in masks:
            if mask is not None and _is_mask(mask):
                indices += [mask.new_empty(self.count(mask), dtype=self._long) for _ in range(mask.ndim)]
            else:
                indices.append(mask)
        return indices

    def stand_in(self, operator: str, args: Any) -> Any:
        """Result that stands in for that of an operator of `DECIDED`."""
        tensor = args[0]
        is_exact = operator == "nonzero" and self._exact(tensor, False) is not None  # such as a schedule's
        self.is_used = self.is_used or not is_exact
        if operator == "nonzero":
            return tensor.new_empty((self.count(tensor), tensor.ndim), dtype=self._long)
        if operator == "bincount":  # of the numbers of images, by the least length
            lengths = (value for value in args if isinstance(value, int) and value > 0)
            return tensor.new_empty(max(lengths, default=self.images or 1), dtype=self._long)
        if operator == "repeat_interleave":
            return tensor.new_empty(self.total(tensor), dtype=self._long)
        if operator == "nms":  # most proposals of a network that trains; what follows takes the best
            return tensor.new_empty(tensor.shape[0], dtype=self._long)
        if operator == "masked_select":
            return tensor.new_empty(self.count(args[1]))
        n = min(tensor.numel(), self.images or self.boxes)
        shape = (n, *tensor.shape[1:]) if operator == "unique_dim" else (n,)
        n_positions = prod(tensor.shape) if operator == "_unique2" else len(tensor)
        positions = tensor.new_empty(n_positions, dtype=self._long)
        return tensor.new_empty(shape), positions, tensor.new_empty(n, dtype=self._long)


def has_masks(indices: Sequence[Any]) -> bool:
    """Whether a mask is among the indices of a tensor."""
    return any(index is not None and _is_mask(index) for index in indices)


def _is_mask(tensor: Any) -> bool:
    return str(tensor.dtype) in ("torch.bool", "torch.uint8")
