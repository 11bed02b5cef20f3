"""Presets: what is measured, in which order, and what is left out."""

import hashlib
from collections import Counter
from dataclasses import replace

import pytest
from case_tables import each_row, table

from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.operators.operators import operators_of
from proxy_cnns.configuration import Builder, mode_of
from proxy_cnns.designs import operators_in, spread_order, training_operators
from proxy_cnns.estimates import estimated_seconds
from proxy_cnns.modes import modes_of_gpu
from proxy_cnns.presets import (
    PRESETS,
    configurations,
    in_modes,
    operator_subjects,
    parallel_configurations,
    preset,
)

SAMPLED_MODES = [mode_of(words) for words in PRESETS["quick"]["modes"]]


@pytest.fixture(scope="module")
def presets():
    return {name: preset(name) for name in PRESETS}


@pytest.fixture(scope="module")
def quick(presets):
    """What `quick` measures, and what it leaves out."""
    return configurations(presets["quick"])


def test_presets_are_the_same_on_every_machine_and_change_on_purpose_only(presets):
    """Digests of each preset's configurations, kept and left out, in order."""

    def words(planned):
        return [
            (
                *(x.subject.kind, x.subject.name, x.subject.image_size, x.batch_size),
                *(x.mode.precision, x.mode.memory_format, x.replicas.n_gpus, x.replicas.bucket_mib),
            )
            for x in planned
        ]

    digests = {}
    for name, chosen in presets.items():
        planned, left_out = configurations(chosen)
        if chosen.together:
            planned = parallel_configurations(planned, (1, 8, 4, 2))
        sequence = repr((words(planned), words(left_out)))
        digests[name] = hashlib.sha256(sequence.encode()).hexdigest()[:16]
    assert digests == table(__file__, "digests of presets")


def test_every_preset_has_subjects_batch_sizes_and_modes_each_once(presets):
    """Every subject says in one way what runs."""
    for name, chosen in presets.items():
        assert chosen.name == name
        for values in (chosen.subjects, chosen.batch_sizes, chosen.modes):
            assert values, name
            assert len(set(values)) == len(values), name
        for subject in chosen.subjects:
            assert [subject.table, subject.operator, subject.builder].count(None) == 2, subject


def _modes_of(planned):
    return Counter((config.mode.precision, config.mode.memory_format) for config in planned)


def test_quick_samples_every_mode_and_ends_within_three_minutes(quick):
    planned, _ = quick
    modes = _modes_of(planned)
    assert set(modes) == {(mode.precision, mode.memory_format) for mode in SAMPLED_MODES}
    assert modes["tf32", "nchw"] > 2300
    assert min(modes.values()) > 50
    assert sum(map(estimated_seconds, planned)) < 160


def test_what_another_mode_measures_is_measured_in_tf32_too_unless_it_takes_too_long_there(quick):
    planned, left_out = quick
    everything, tf32 = planned + left_out, Mode(precision="tf32")
    of_tf32 = {(config.subject, config.batch_size) for config in everything if config.mode == tf32}
    assert {(config.subject, config.batch_size) for config in planned} <= of_tf32


def test_modes_or_batch_sizes_that_are_asked_for_are_measured_whole():
    chosen = preset("quick")
    planned, left_out = configurations(chosen, modes=[Mode(precision="amp_bf16")])
    assert len(planned) + len(left_out) > len(chosen.subjects) * (len(chosen.batch_sizes) - 1)
    assert {config.batch_size for config in configurations(chosen, [48])[0]} == {48}


@each_row
def test_the_modes_of_a_preset_are_those_that_the_gpu_here_has(monkeypatch, gpu, precisions):
    monkeypatch.setattr("proxy_cnns.modes.gpu_names", lambda: [gpu])
    assert {mode.precision for mode in modes_of_gpu(SAMPLED_MODES)} == set(precisions)


def test_without_tf32_its_share_of_quick_is_measured_in_fp32():
    modes = [Mode(), Mode(precision="amp_fp16")]
    planned, _ = configurations(in_modes(preset("quick"), modes))
    counted = Counter(config.mode for config in planned)
    assert set(counted) == set(modes)
    assert counted[Mode()] > 2300


def test_whatever_is_left_out_is_measured_at_smaller_batches(presets):
    for name in ("quick", "library"):
        planned, left_out = configurations(presets[name], modes=[Mode(precision="tf32")])
        smallest = {config.subject.name for config in planned if config.batch_size <= 16}
        assert left_out
        assert {config.subject.name for config in left_out} <= smallest


def test_one_cnns_preset_has_its_operators_at_its_usual_or_the_named_size():
    usual, small = preset("cnn:resnet18"), preset("cnn:resnet18@64")
    assert {subject.operator for subject in usual.subjects} == set(operators_of(zoo_cnn("resnet18")))
    assert {subject.operator for subject in small.subjects} == set(operators_of(zoo_cnn("resnet18", 64)))


def test_a_users_file_gives_its_operators_or_itself(tmp_path, torch):
    folder = tmp_path / "a@b"
    folder.mkdir()
    (folder / "mine.py").write_text(
        "def make():\n    from torch import nn\n    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU())\n"
    )
    operators = preset(f"cnn:{folder}/mine.py:make@48").subjects
    assert {subject.operator.type for subject in operators} == {"conv2d", "activation", "loss", "optimizer"}
    zoo, own = preset(f"targets:resnet18@64,{folder}/mine.py:make").subjects
    assert (zoo.name, zoo.image_size) == ("resnet18", 64)
    assert (own.name, own.image_size, own.builder) == ("mine.make", 224, Builder(folder / "mine.py", "make"))


def test_configurations_come_mode_by_mode_and_size_by_size_the_optimizer_step_at_one_size():
    modes = [Mode(precision="tf32"), Mode(precision="fp32")]
    planned, _ = configurations(preset("cnn:lenet5"), batch_sizes=(64, 8), modes=modes)
    order = list(dict.fromkeys((config.mode.precision, config.batch_size) for config in planned))
    assert order == [("tf32", 64), ("tf32", 8), ("fp32", 64), ("fp32", 8)]
    assert [x.batch_size for x in planned if x.subject.operator.type == "optimizer"] == [64, 64]


def test_changes_of_layout_are_views_in_pytorch_and_copies_in_chainer():
    """A channel shuffle is a copy in both."""

    def permutes(cnn, framework):
        planned, _ = configurations(preset(f"cnn:{cnn}"), [16], [Mode(framework=framework)])
        return any(config.subject.operator.type == "permute" for config in planned)

    assert not permutes("convnext_tiny", "pytorch")
    assert permutes("convnext_tiny", "chainer")
    assert permutes("shufflenet_v2_x1_0", "pytorch")


def test_operators_behind_a_group_norm_are_measured_as_the_mode_runs_them():
    operators = operators_of(zoo_cnn("resnet18"))
    convolution = next(own for own in operators if own.type == "conv2d" and own.input_gradient)
    behind = replace(convolution, wide_input=True, wide_in_nchw=True)
    chosen = replace(preset("cnn:lenet5"), subjects=operator_subjects([behind]), blocks=())
    half = Mode(precision="amp_bf16", memory_format="channels_last")
    kept, _ = configurations(chosen, [4], [Mode(precision="tf32"), half])
    measured = [(config.subject.operator.wide_input, config.subject.operator.wide_in_nchw) for config in kept]
    assert measured == [(False, False), (True, False)]


@each_row
def test_operators_are_written_as_a_type_with_marks_and_shapes(line, name):
    """Parameters stand behind `w`."""
    assert [operator.name for operator in operators_in([line])] == [name]


def test_an_early_end_of_trainings_leaves_shapes_of_every_list():
    parts = [(operators, len(modes), len(sizes)) for modes, sizes, operators in training_operators()]
    lists = [tuple(operators) for operators, *lengths in parts if lengths == [1, 1]]
    first = lists[: len(set(lists))]
    assert set(first) == set(lists)
    assert len(lists) > 3 * len(first)


def test_a_reordered_list_has_the_same_items_and_every_beginning_reaches_each_tenth_of_it():
    order = spread_order(range(1000))
    assert sorted(order) == list(range(1000))
    for beginning in (20, 50, 200):
        assert len({position // 100 for position in order[:beginning]}) == 10
