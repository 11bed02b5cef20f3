"""Backward beside forward: passes add up to the answer, frozen and recomputed parts say what they save and cost."""

import numpy as np
import pytest

from predictor.answers.answer import predict
from predictor.answers.explain import explain, explanation_rows
from predictor.answers.question import Question
from predictor.cnns.torch_step import record

PARTS = ("forward", "recomputed", "backward_input", "backward_weight", "update", "other")


@pytest.fixture(scope="module")
def recorded(torch, torchvision_models):
    """ResNet-50 trained whole, with a frozen stem, and with two stages that are computed again."""
    from torch.utils.checkpoint import checkpoint

    def step_of(change=lambda _: None):
        module, images = torchvision_models.resnet50(), torch.zeros(8, 3, 64, 64)
        change(module)
        trained = [p for p in module.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(trained, 0.1, 0.9)

        def step():
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(module(images), torch.zeros(8, dtype=torch.long))
            loss.backward()
            optimizer.step()

        return record(step)

    def freeze(module):
        for module_part in (module.conv1, module.bn1, module.layer1):
            module_part.requires_grad_(False)

    def recompute(module):
        for module_part in (module.layer1, module.layer2):
            inner = module_part.forward
            module_part.forward = lambda maps, inner=inner: checkpoint(inner, maps, use_reentrant=False)

    return {"whole": step_of(), "frozen": step_of(freeze), "recomputed": step_of(recompute)}


def explained(cnn, gpu="H200", **options):
    [explanation], _ = explain(Question.of(cnn, gpu, [64], options))
    return explanation


def total(explanation, *passes):
    return sum(sum(ms[0] for ms in explanation.pass_ms.get(pass_, {}).values()) for pass_ in passes)


@pytest.mark.parametrize("gpu", ["H200", "T4"])  # by measured layers, by specifications
@pytest.mark.parametrize("step", ["whole", "frozen", "recomputed"])
def test_passes_add_up_to_the_answer_and_to_each_class(recorded, step, gpu):
    explanation = explained(recorded[step], gpu)
    assert total(explanation, *PARTS) == pytest.approx(explanation.gpu_time_ms[0])
    assert explanation.gpu_time_ms[0] == pytest.approx(predict(recorded[step], gpu, 64)[0].gpu_time_ms)
    for name, ms in explanation.classes.items():
        passes = sum(by_class.get(name, [0])[0] for by_class in explanation.pass_ms.values())
        assert passes == pytest.approx(ms[0])
    [row] = explanation_rows(explanation)
    assert row["forward_pass_ms"] == pytest.approx(total(explanation, "forward"))


@pytest.mark.parametrize("gpu", ["H200", "T4"])
def test_frozen_and_recomputed_parts_change_time_and_memory_by_their_passes(recorded, gpu):
    trained, frozen, again = (explained(recorded[step], gpu) for step in ("whole", "frozen", "recomputed"))
    assert trained.parts == ()
    for name, changed in (("frozen", frozen), ("recomputed", again)):
        [effect] = changed.parts
        assert (effect.part, effect.saves_gib[0] > 0) == (name, True)
        plain_ms = changed.iteration_time_ms[0] + effect.saves_ms[0]
        assert plain_ms == pytest.approx(trained.iteration_time_ms[0])
    assert total(frozen, "forward") == pytest.approx(total(trained, "forward"), rel=0.05)
    backward = ("backward_input", "backward_weight")
    assert total(frozen, *backward) < 0.8 * total(trained, *backward)
    longer_ms = again.gpu_time_ms[0] - trained.gpu_time_ms[0]
    assert total(again, "recomputed") == pytest.approx(longer_ms, rel=0.35)


def test_what_parts_save_is_corrected_by_an_anchor_like_the_answer(recorded):
    plain = explained(recorded["frozen"])
    anchor = {"gpu": "H200", "batch_size": 64, "iteration_time_ms": 2 * plain.iteration_time_ms[0]}
    [anchored] = explained(recorded["frozen"], anchors=[anchor]).parts
    assert anchored.saves_ms[0] == pytest.approx(2 * plain.parts[0].saves_ms[0], rel=0.1)


def test_a_cnn_by_name_has_passes_and_no_parts():
    explanation = explained("resnet18")
    assert set(explanation.pass_ms) == set(PARTS) - {"recomputed"}
    assert explanation.parts == ()
    assert np.isclose(total(explanation, *PARTS), explanation.gpu_time_ms[0])
