"""The law of Chainer: PyTorch's iterations by ratios, what it says of itself, and what it leaves alone."""

from dataclasses import replace

import numpy as np
import pytest
from ratios_fit import CHAINER, chainer_pairs

from predictor.answers.answer import predict
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.proxies import proxy_table
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import SchemaError
from predictor.measurements.hosts import HostMeasurement, HostTime
from predictor.models.chainer import SINGLE, pytorch_mode, windowed_ratio, windowed_share, windowed_size
from predictor.models.forecast import Anchor, Reason
from predictor.models.named import Methods
from predictor.models.ratios import ratios_of
from predictor.models.served import Model

H200, A100, V100 = map(find_gpu, ("NVIDIA H200", "NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-16GB"))
SIZES = [32, 128]
SHIPPED = ratios_of("chainer")


def asked(model, cnn="resnet50", gpu=H200, precision="fp32", framework="chainer", **more):
    mode = Mode(framework, precision, capture=more.pop("capture", "eager"))
    return model.forecast(zoo_cnn(cnn), gpu, mode, SIZES, **more)


@pytest.fixture(scope="module")
def model():
    """The shipped model without methods that are judged better for some CNNs."""
    return replace(Model.load(), methods=Methods())


@pytest.fixture(scope="module")
def pairs(model):
    return chainer_pairs(model)


@pytest.mark.slow
def test_the_shipped_ratios_are_what_the_fit_gives(pairs, same_ratios):
    same_ratios(CHAINER.shipped(pairs), SHIPPED)


@pytest.mark.slow
def test_cnns_of_families_held_out_are_within_15_percent_of_their_gpu_time_and_nine_in_ten_inside(pairs):
    laws = CHAINER.held_out(pairs)
    cnns = [pair for pair in pairs if pair.group != "proxies" and np.isfinite(pair.gpu_ms)]
    wrong = np.array([pair.log_error(laws[pair.group]) for pair in cnns])
    assert np.mean(np.abs(np.expm1(wrong))) < 0.15
    assert np.mean(np.abs(wrong) < SHIPPED.spread) > 0.85


def test_tensor_cores_help_pytorch_alone(model):
    full, tensor = (asked(model, precision=precision).gpu_time_ms for precision in ("fp32", "tf32"))
    np.testing.assert_array_equal(full, tensor)
    half = asked(model, precision="amp_fp16").gpu_time_ms
    np.testing.assert_allclose(half, SHIPPED["half"] * full)


@pytest.mark.parametrize("gpu", [H200, A100])
def test_its_classes_add_up_to_the_gpus_time(gpu, model):
    chainer = asked(model, gpu=gpu)
    pytorch = asked(model, gpu=gpu, framework="pytorch")
    left = pytorch.gpu_time_ms - sum(pytorch.class_ms.values())
    np.testing.assert_allclose(sum(chainer.class_ms.values()) + SHIPPED["rest"] * left, chainer.gpu_time_ms)
    batch_norm_ms = SHIPPED["rest"] * pytorch.class_ms["batch_norm"]
    np.testing.assert_allclose(chainer.class_ms["batch_norm"], batch_norm_ms)


def test_before_ampere_convolutions_are_those_of_pytorch_and_from_it_on_fp32s(model):
    precisions = [pytorch_mode(gpu, Mode("chainer", "amp_fp16")).precision for gpu in (A100, V100)]
    assert precisions == ["fp32", "amp_fp16"]
    chainer, pytorch = (
        asked(model, gpu=V100, precision="amp_fp16", framework=framework)
        for framework in ("chainer", "pytorch")
    )
    assert (chainer.gpu_time_ms / pytorch.gpu_time_ms < SHIPPED["rest"]).all()
    np.testing.assert_allclose(chainer.class_ms["conv_forward"], pytorch.class_ms["conv_forward"])


def test_convolutions_with_windows_count_by_their_flops_and_take_longer_the_larger_they_are():
    assert windowed_share(zoo_cnn("vgg16")) == 1.0
    assert 0.4 < windowed_share(zoo_cnn("resnet50")) < 0.7
    small, large = (windowed_size(zoo_cnn(cnn)) for cnn in ("squeezenet1_1", "vgg16"))
    sizes = np.array([16.0, 64.0])
    less, more = (windowed_ratio(size, sizes, SHIPPED) for size in (small, large))
    assert (less < more).all()
    assert less[0] < less[1]
    assert windowed_size(zoo_cnn("mobilenet_v2"))[0] < 0  # its stem of 3 and 32 channels


def test_it_says_where_it_comes_from_and_is_widest_where_nothing_was_measured(model):
    def reasons(gpu, **more):
        return [str(reason) for reason in asked(model, gpu=gpu, **more).extrapolates[0]]

    def width(gpu):
        answer = asked(model, gpu=gpu)
        return answer.gpu_high_ms / answer.gpu_low_ms

    carried = "framework: Chainer is carried over from PyTorch by ratios measured on an H100 and an H200"
    groups = "operator: no convolution with groups of several channels was measured with Chainer"
    assert reasons(H200) == [carried]
    assert "gpu: Chainer's ratios to PyTorch were not measured on NVIDIA A100-SXM4-40GB" in reasons(A100)
    assert groups in reasons(H200, cnn="resnext50_32x4d")
    assert groups not in reasons(H200, cnn="mobilenet_v2")
    assert (width(A100) > width(H200)).all()


def test_a_run_by_chainer_is_met_and_narrows_the_interval(model):
    plain = asked(model)
    measured = 1.2 * float(plain.iteration_time_ms[1])
    anchored = asked(model, anchors=[Anchor("NVIDIA H200", 128, measured)])
    assert anchored.iteration_time_ms[1] == pytest.approx(measured, rel=0.02)
    assert anchored.high_ms[1] / anchored.low_ms[1] < plain.high_ms[1] / plain.low_ms[1]


def test_the_host_counts_as_pytorch_or_chainer_measured_it(model):
    def host_ms(framework, ms):
        times = (HostTime(framework, "gpu", "fp32", "nchw", "resnet18", 32, ms),)
        return asked(model, host=HostMeasurement("mine", times)).host_time_ms[0]

    assert (asked(model, capture="static_graph").host_time_ms == 0).all()
    assert host_ms("pytorch", 12.0) > host_ms("pytorch", 6.0)
    assert host_ms("chainer", SHIPPED["host"] * 6.0) == pytest.approx(host_ms("pytorch", 6.0))


def test_a_single_convolution_is_wider_than_cnns(model):
    proxy = model.forecast(proxy_table("16_128_128"), H200, Mode("chainer", "fp32"), SIZES)
    single = Reason("shape", "the error of a single convolution does not average out", SINGLE)
    assert (single in proxy.extrapolates[0], single in asked(model).extrapolates[0]) == (True, False)


def test_no_cudnn_and_its_workspace_take_and_spare_the_gpu_s_time():
    def ask(**options):
        return predict("resnet50", "NVIDIA H100 80GB HBM3", 64, precision="fp32", **options)[0]

    usual, without = ask(framework="chainer"), ask(framework="chainer", no_cudnn=True)
    more = ask(framework="chainer", workspace_mib=512.0)
    assert more.gpu_time_ms < usual.gpu_time_ms < without.gpu_time_ms
    assert without.high_ms / without.low_ms > 3 * usual.high_ms / usual.low_ms
    assert "cudnn" in [reason.kind for reason in without.extrapolates]
    with pytest.raises(SchemaError, match="no_cudnn is Chainer's"):
        ask(no_cudnn=True)
    with pytest.raises(SchemaError, match="nothing to choose for autotune"):
        ask(framework="chainer", no_cudnn=True, autotune=True)
