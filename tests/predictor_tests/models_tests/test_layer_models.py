"""Layer models in files, and the served model that answers from them."""

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import ArtifactError, OutOfRangeError, SchemaError
from predictor.models.forecast import Anchor
from predictor.models.layer_times.files import LayerModels
from predictor.models.layer_times.law import SummingLaw
from predictor.models.layer_times.model import LayerModel
from predictor.models.layer_times.times import DeviceMode
from predictor.models.served import Model
from predictor.operators.operators import operators_of

SIZES = (16, 64, 256)
MODE = DeviceMode("NVIDIA H200", "pytorch", "tf32")
TF32 = Mode(precision="tf32", float32_matmul_precision="high")
H200 = find_gpu("H200")
RESNET = zoo_cnn("resnet18")
ELSEWHERE = Anchor("NVIDIA A100-SXM4-40GB", 64, 30.0)


@pytest.fixture(scope="module")
def layer_model(made_up_gpu):
    rows = made_up_gpu.operator_rows(operators_of(RESNET), SIZES, host="a desk")
    law = SummingLaw(1.2, operator_ms=0.001, spread=0.04, spread_near=0.09, trained_on="9 iterations")
    return LayerModel(made_up_gpu.library_of(MODE, rows), law)


@pytest.fixture(scope="module")
def model(layer_model):
    return replace(Model.load(), layers=LayerModels().with_more([layer_model]))


def as_file(arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def unpacked(content):
    return LayerModel.unpacked(content, Path("own.npz"), {}.get)


def test_a_file_has_the_same_bytes_each_time_and_gives_the_same_times(layer_model):
    content = layer_model.packed()
    assert layer_model.packed() == content
    loaded = unpacked(content)
    assert (loaded.law, loaded.library.host, loaded.library.mode) == (layer_model.law, "a desk", MODE)
    operators = [*operators_of(zoo_cnn("vgg11_bn"))]
    batches = np.array([8.0, 64.0])
    expected = layer_model.library.times(operators, batches)
    times = loaded.library.times(operators, batches)
    np.testing.assert_allclose(times.gpu_ms, expected.gpu_ms, rtol=2e-4)
    np.testing.assert_array_equal(times.sureness, expected.sureness)


def test_a_shipped_file_is_read_and_written_number_for_number():
    layers = Model.load().layers
    model = layers.measured(DeviceMode("NVIDIA H100 80GB HBM3", "pytorch", "tf32"))
    again = LayerModel.unpacked(model.packed(), Path("own.npz"), layers.measured)
    assert tuple(again.library.operators) == tuple(model.library.operators)
    written, read = model.to_arrays(), again.to_arrays()
    assert written.keys() == read.keys()
    for name, values in written.items():
        np.testing.assert_array_equal(read[name], values)


def test_a_damaged_file_is_refused():
    for content in (b"", b"no archive", as_file({"about": np.array("[]")})):
        with pytest.raises(ArtifactError, match="damaged operator library"):
            unpacked(content)


def test_a_file_that_cannot_be_right_is_refused(layer_model):
    stored = dict(np.load(io.BytesIO(layer_model.packed())))
    laws = [{"law": law} for law in ({"operator_ms": float("nan")}, {"nonsense": 1.0})]
    damaged = [{"log_ms": np.zeros((1, 3))}, {"host_ms": np.ones(1)}, {"operators": np.ones((1, 9))}, *laws]
    damaged += [{"operators": np.array([object()])}]  # a pickle is not read
    for change in ({"format_version": 99}, *damaged):
        words = "format version 99" if "format_version" in change else "damaged"
        about = json.loads(str(stored["about"]))
        text = json.dumps({name: change.get(name, value) for name, value in about.items()})
        changed = {name: change.get(name, values) for name, values in stored.items()}
        with pytest.raises(ArtifactError, match=words):
            unpacked(as_file(changed | {"about": np.array(text)}))


def test_a_model_saves_its_libraries_beside_itself_and_finds_them_again(model, tmp_path):
    model.save(tmp_path / "mine.json")
    (path,) = (tmp_path / "mine_operators").iterdir()
    assert path.name == "nvidia_h200-pytorch-tf32-nchw.npz"
    models = Model.load(tmp_path / "mine.json"), model
    loaded, expected = (served.forecast(RESNET, H200, TF32, [64]) for served in models)
    assert loaded.method == "layer-times"
    assert loaded.iteration_time_ms == pytest.approx(expected.iteration_time_ms, rel=1e-4)


def test_a_model_with_libraries_is_not_written_where_no_folder_can_lie_beside_it(model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SchemaError, match=r"folder beside its file, and .*pipe is no file.*model\.json"):
        model.save(tmp_path / "pipe")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_another_gpu_or_mode_borrows_weights_another_framework_or_a_cpu_none(layer_model):
    models = LayerModels().with_more([layer_model])
    for changed in ({"gpu": "Tesla T4"}, {"precision": "amp_bf16"}):
        law = models.nearest_law(MODE._replace(**changed))
        assert (law.weight, law.operator_ms) == (layer_model.law.weight, layer_model.law.operator_ms)
        assert law.spread > layer_model.law.spread
        assert law.spread_near > layer_model.law.spread_near
        assert layer_model.library.mode.gpu in law.trained_on
    for changed in ({"framework": "chainer"}, {"gpu": "cpu:a desk"}):
        assert models.nearest_law(MODE._replace(**changed)) is None


def test_weights_are_borrowed_from_the_mode_most_alike(layer_model, tmp_path):
    library = replace(layer_model.library, mode=MODE._replace(precision="amp_bf16"))
    in_bf16 = LayerModel(library, SummingLaw(2.0, trained_on="8 iterations"))
    digests = LayerModels().with_more([layer_model, in_bf16]).save(tmp_path / "model.json")
    models = LayerModels.beside(tmp_path / "model.json", digests)
    borrower = MODE._replace(gpu="Tesla T4", precision="amp_bf16")
    assert models.nearest_law(borrower).weight == 2.0
    assert models.nearest_law(MODE) == layer_model.law


def test_auto_prefers_measured_layers_and_says_so(model):
    answer = model.forecast(RESNET, H200, TF32, SIZES)
    assert answer.method == "layer-times"
    assert answer.host == "a desk"
    assert "operators measured" in answer.trained_on
    assert answer.extrapolates == ((), (), ())
    assert (answer.low_ms < answer.iteration_time_ms).all()


def test_the_gpu_time_is_the_weighted_sum_and_all_of_a_captured_iteration(model, made_up_gpu):
    captured = model.forecast(RESNET, H200, Mode(precision="tf32", capture="graph"), SIZES)
    np.testing.assert_allclose(captured.iteration_time_ms, captured.gpu_time_ms)
    weighted = 1.2 * made_up_gpu.target_ms(RESNET, SIZES, {})
    answer = model.forecast(RESNET, H200, TF32, SIZES)
    operators_ms = 0.001 * sum(operators_of(RESNET).values())
    np.testing.assert_allclose(answer.gpu_time_ms, weighted + operators_ms, rtol=1e-6)
    np.testing.assert_allclose(sum(answer.class_ms.values()), weighted, rtol=1e-6)


@pytest.mark.parametrize(
    ("mode", "anchors", "options", "method"),
    [
        (Mode(), (), {}, "roofline"),
        (Mode(precision="tf32", memory_format="channels_last"), (), {}, "roofline"),
        (TF32, (), {"method": "roofline"}, "roofline"),
        (TF32, (ELSEWHERE,), {}, "layer-times"),
        (TF32, (ELSEWHERE,), {"method": "anchored"}, "anchored"),
    ],
)
def test_layers_answer_in_their_mode_unless_another_is_named(model, mode, anchors, options, method):
    assert model.forecast(RESNET, H200, mode, [64], anchors, **options).method == method


def test_a_run_leaves_at_least_the_roughness_between_batch_sizes(layer_model):
    def half_width(roughness):
        rough = replace(layer_model, law=replace(layer_model.law, roughness=roughness))
        model = replace(Model.load(), layers=LayerModels().with_more([rough]))
        met = Anchor("NVIDIA H200", 64, float(model.forecast(RESNET, H200, TF32, [64]).iteration_time_ms[0]))
        answer = model.forecast(RESNET, H200, TF32, SIZES, [met])
        return float(np.log(answer.high_ms[2] / answer.iteration_time_ms[2]))

    assert half_width(0.2) > 1.64 * 0.2 > 2 * half_width(0.01)


@pytest.mark.parametrize("factor", [1.02, 1.4])
@pytest.mark.parametrize("gpu", ["H200", "T4"], ids=["by layers", "by specifications"])
def test_an_answer_with_an_anchor_does_not_depend_on_the_other_batch_sizes_asked(model, gpu, factor):
    mode, gpu = TF32 if gpu == "H200" else Mode(), find_gpu(gpu)
    sizes, plain = [1, 16, 64, 128], model.forecast(RESNET, gpu, mode, [64])
    anchor = Anchor(gpu.name, 64, factor * float(plain.iteration_time_ms[0]))
    together = model.forecast(RESNET, gpu, mode, sizes, [anchor])
    for position, size in enumerate(sizes):
        alone = model.forecast(RESNET, gpu, mode, [size], [anchor])
        for name in ("iteration_time_ms", "low_ms", "high_ms", "gpu_low_ms", "gpu_high_ms"):
            assert getattr(together, name)[position] == pytest.approx(getattr(alone, name)[0], rel=1e-12)
        assert together.extrapolates[position] == alone.extrapolates[0]


def test_what_the_library_does_not_know_is_named_and_widens_the_interval(model):
    usual = model.forecast(RESNET, H200, TF32, [64])
    strange = model.forecast(zoo_cnn("convnext_tiny"), H200, TF32, [64], method="layer-times")
    assert any(str(reason).startswith("operator: layer_norm") for reason in strange.extrapolates[0])
    assert strange.high_ms[0] / strange.low_ms[0] > usual.high_ms[0] / usual.low_ms[0]


@pytest.mark.parametrize("cnn", ["convnext_tiny", "mobilenet_v2"])
def test_a_cnn_of_which_next_to_nothing_was_measured_is_answered_from_specifications(model, cnn):
    answer = model.forecast(zoo_cnn(cnn), H200, TF32, [64])
    plain = model.forecast(zoo_cnn(cnn), H200, TF32, [64], method="roofline")
    assert answer.method == "roofline"
    assert answer.iteration_time_ms.tolist() == plain.iteration_time_ms.tolist()
    assert any(reason.kind == "layers" for reason in answer.extrapolates[0])
    by_layers = model.forecast(zoo_cnn(cnn), H200, TF32, [64], method="layer-times")
    assert by_layers.method == "layer-times"


@pytest.mark.parametrize("gpu", ["H200", "T4"], ids=["by layers", "by specifications"])
def test_what_an_anchor_says_of_an_iteration_it_says_of_its_parts(model, gpu):
    mode = TF32 if gpu == "H200" else Mode()
    before = model.forecast(RESNET, find_gpu(gpu), mode, [64])
    faster = Anchor(find_gpu(gpu).name, 64, 0.5 * float(before.iteration_time_ms[0]))
    after = model.forecast(RESNET, find_gpu(gpu), mode, [64], [faster])
    ratio = after.iteration_time_ms / before.iteration_time_ms
    np.testing.assert_allclose(after.gpu_time_ms / before.gpu_time_ms, ratio)
    np.testing.assert_allclose(after.host_time_ms / before.host_time_ms, ratio)
    np.testing.assert_allclose(sum(after.class_ms.values()) / sum(before.class_ms.values()), ratio)


def test_a_batch_size_beyond_the_measured_ones_and_another_optimizer_are_named(model):
    within, beyond = model.forecast(RESNET, H200, TF32, [64, 1024]).extrapolates
    assert (within, [reason.kind for reason in beyond]) == ((), ["batch"])
    lamb = model.forecast(RESNET, H200, replace(TF32, optimizer="lamb"), [64])
    assert lamb.extrapolates[0][0].kind == "optimizer"


def test_an_unknown_host_widens_an_iteration_that_waits_for_it_alone(model, layer_model, tmp_path):
    model.save(tmp_path / "shipped.json")
    shipped, own_host = Model.load(tmp_path / "shipped.json"), layer_model.library.host

    def width(model, batch_size, mode=TF32, host=None):
        answer = model.forecast(RESNET, H200, mode, [batch_size], host=host)
        return np.log(answer.high_ms / answer.low_ms)[0]

    assert width(shipped, 1) > 1.1 * width(shipped, 1, host=own_host)
    assert width(model, 1) == pytest.approx(width(shipped, 1, host=own_host), rel=1e-3)
    assert width(shipped, 512) == pytest.approx(width(model, 512), rel=0.01)
    graph = replace(TF32, capture="graph")
    assert width(shipped, 1, graph) == pytest.approx(width(model, 1, graph), rel=1e-3)


def test_without_host_times_an_eager_iteration_is_refused(layer_model):
    blind = replace(layer_model.library, host_ms=np.full(len(layer_model.library), np.nan))
    served = replace(Model.load(), layers=LayerModels().with_more([replace(layer_model, library=blind)]))
    with pytest.raises(OutOfRangeError, match="the host's time to launch"):
        served.forecast(RESNET, H200, TF32, [64])


def test_a_type_that_was_not_measured_is_as_efficient_as_others_of_its_class(made_up_gpu):
    pool = next(operator for operator in operators_of(RESNET) if operator.type == "max_pool")
    pools = [replace(pool, type="avg_pool", in_channels=n, out_channels=n) for n in range(32, 64)]
    slow, usual = (made_up_gpu.operator_rows(operators, SIZES) for operators in (pools, operators_of(RESNET)))
    slow = [row | {"gpu_time_ms": 20.0 * row["gpu_time_ms"]} for row in slow]
    library = made_up_gpu.library_of(MODE, slow + [row for row in usual if row["cnn"] != pool.name])
    sizes = np.array(SIZES, dtype=float)
    unmeasured = replace(pools[16], type="max_pool")
    ratio = library.times([unmeasured], sizes).gpu_ms / library.times([pools[16]], sizes).gpu_ms
    assert (np.abs(np.log(ratio)) < np.log(2.0)).all()


def test_a_host_that_is_not_named_is_the_usual_one_but_beside_measurements_of_ones_own(model, tmp_path):
    for mode in (
        TF32,
        Mode("pytorch", "amp_fp16", "channels_last"),
    ):  # the latter was measured on one machine
        assert Model.load().forecast(RESNET, H200, mode, [2]).host == "a usual machine of Hopper GPUs"
    model.save(tmp_path / "mine.json")
    assert Model.load(tmp_path / "mine.json").forecast(RESNET, H200, TF32, [2]).host == "a desk"
