"""A watched training: predicted beside actual, what is left, why they differ, and a measurement that anchors."""

import itertools

import pytest
from case_tables import each_row

import epochcast
from epochcast.torch_device import FirstBatch
from epochcast.watching import Watch
from predictor.errors import SchemaError


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def lines():
    return []


@pytest.fixture
def train(clock, lines):
    """Train ResNet-18 on a T4 with iterations and waits of these seconds; gives the watch."""

    def run(n=40, iteration_s=0.25, wait_s=0.0, **more):
        options = {"gpu": "T4", "n_batches": n, "report_after": 20, **more}
        model = options.pop("model", "resnet18")
        first_batch = options.pop("seen", FirstBatch(64, 3, 224, 224))
        watching = Watch(model, tell=lines.append, clock=clock, **options)
        watching.first_batch = first_batch
        for _ in range(n):
            watching.waits()
            clock.now_s += wait_s
            watching.starts()
            clock.now_s += iteration_s
            watching.ends()
        watching.ends_epoch()
        return watching

    return run


def predicted_ms():
    return epochcast.predict("resnet18", "T4", 64)["iteration_time_ms"][0]


def test_the_actual_time_is_told_beside_the_predicted_after_iterations_and_at_the_epoch_s_end(train, lines):
    watched = train().watched
    assert watched.iteration_time_ms == pytest.approx(250.0)
    assert watched.predicted_ms == pytest.approx(predicted_ms())
    assert lines[0].startswith("epochcast: 250 ms an iteration on T4, predicted ")
    assert len(lines) == 2
    train(iteration_s=predicted_ms() / 1000.0)
    assert " x the prediction" not in lines[-1]
    train(iteration_s=predicted_ms() / 500.0)
    assert "2.0 x the prediction" in lines[-1]
    assert train(iteration_s=0.1, wait_s=0.1).watched.waiting_share == pytest.approx(0.5)
    assert "50 % of it waits for the loader" in lines[-1]


def test_time_and_cost_that_are_left_follow_from_the_epochs_and_the_cheapest_offer(train, lines):
    watched = train(n=40, iteration_s=0.36, epochs=11, usd_per_hour=10.0).watched
    assert watched.left_s == pytest.approx(400 * 0.36)
    assert watched.left_usd == pytest.approx(0.4)
    assert "2.40 min and US$ 0.400 left" in lines[-1]
    assert train(epochs=2).watched.left_usd > 0
    assert train(epochs=2, gpu="TITAN V").watched.left_usd is None  # nobody rents it out
    watching = train(n=40)
    watching.waits()
    watching.starts()
    watching.ends()
    watching.ends_epoch()
    assert watching.watched.left_s is None
    assert "left" not in lines[-1]


def test_a_measurement_anchors_the_next_prediction_and_says_how_it_ran_where_that_is_known(train, tmp_path):
    out = tmp_path / "mine.csv"
    train(iteration_s=0.5, out=out)
    [row] = epochcast.predict("resnet18", "T4", 64, measurements=out).to_dict("records")
    assert row["method"] == "anchored"
    assert row["iteration_time_ms"] == pytest.approx(500.0, rel=0.02)
    assert epochcast.load_measurements(out)[["capture", "n_gpus", "autotune"]].isna().all(axis=None)


def test_trainings_are_kept_beside_each_other_by_cnn_and_mode_with_how_they_ran(train, tmp_path):
    out = tmp_path / "mine.csv"
    for model, iteration_s in (("resnet18", 0.5), ("resnet34", 0.7), ("resnet18", 0.4)):
        train(iteration_s=iteration_s, model=model, out=out)
    table = epochcast.load_measurements(out)
    assert dict(zip(table["cnn"], table["iteration_time_ms"].round(), strict=True)) == {
        "resnet18": 400.0,
        "resnet34": 700.0,
    }
    ran = {"capture": "compile", "n_gpus": 2, "autotune": True, "optimizer": "adam"}
    train(iteration_s=0.5, out=tmp_path / "ran.csv", options=ran)
    table = epochcast.load_measurements(tmp_path / "ran.csv")
    assert {name: table[name][0] for name in ran} == ran
    out = tmp_path / "modes.csv"
    for options in ({"capture": "compile"}, {"capture": "eager"}, {"n_gpus": 2}, {"capture": "eager"}):
        train(iteration_s=0.5, out=out, options=options)
    assert len(epochcast.load_measurements(out)) == 3


def test_trainings_over_several_machines_and_those_that_wait_for_their_loader_are_not_kept(train, tmp_path):
    out, ran = tmp_path / "mine.csv", {"n_gpus": 2, "nodes": 2, "link": "ethernet_25g"}
    watched = train(iteration_s=0.5, out=out, options=ran).watched
    assert watched.predicted_ms
    assert not out.exists()
    out = tmp_path / "mine.csv"
    train(iteration_s=0.1, wait_s=0.1, out=out)
    assert not out.exists()


@pytest.fixture
def small(train):
    """Train a small CNN, whose iterations a host decides, on an H100."""

    def run(out, **more):
        options = {"gpu": "H100 SXM", "options": {"precision": "tf32"}} | more
        return train(model="mobilenet_v3_small", seen=FirstBatch(8, 3, 64, 64), out=out, **options)

    return run


@pytest.mark.parametrize("slowness", [0.8, 1.0, 1.6])
def test_an_iteration_that_the_host_decides_tells_its_speed(small, tmp_path, slowness):
    out, question = tmp_path / "mine.csv", ("mobilenet_v3_small", "H100 SXM", 8)
    usual_ms = epochcast.predict(*question, image_size=64)["iteration_time_ms"][0]
    small(out, iteration_s=slowness * usual_ms / 1000)
    [answer] = epochcast.predict(*question, image_size=64, host=str(out)).to_dict("records")
    assert answer["iteration_time_ms"] == pytest.approx(slowness * usual_ms, rel=0.03)
    hosts = str(out), None
    resnet, usual_resnet = (epochcast.predict("resnet18", "H100 SXM", 4, host=host) for host in hosts)
    assert resnet["host_time_ms"][0] == pytest.approx(slowness * usual_resnet["host_time_ms"][0], rel=0.05)


@each_row
def test_other_iterations_tell_no_hosts_speed_and_the_way_is_said(train, tmp_path, model, n_gpus, capture):
    out, ran = tmp_path / "mine.csv", {"n_gpus": n_gpus, "capture": capture}
    train(model=model, gpu="H100 SXM", iteration_s=0.05, out=out, options=ran)
    with pytest.raises(SchemaError, match=r"does not tell how fast its host is.*epochcast host --out host"):
        epochcast.predict("resnet18", "H100 SXM", 4, host=str(out))


@each_row
def test_what_cannot_be_predicted_is_told_and_training_goes_on(train, change, why):
    watched = train(**change).watched
    assert watched.predicted_ms is None
    assert why in watched.not_predicted
    assert watched.iteration_time_ms == pytest.approx(250.0)


def test_a_loader_is_passed_through_in_every_epoch_and_an_option_that_makes_no_sense_is_refused(capsys):
    with pytest.raises(SchemaError, match="no option is called 'hosts'"):
        epochcast.watch([], hosts="x")
    loader = epochcast.watch(range(12), report_after=1000)
    assert [list(loader), len(loader)] == [list(range(12)), 12]
    assert list(loader) == list(range(12))
    assert capsys.readouterr().out.count("epochcast:") == 2
    loader = epochcast.watch(range(100), report_after=1000)
    assert list(itertools.islice(loader, 3)) == [0, 1, 2]
    assert len(list(loader)) == 100


def test_a_run_is_forecast_on_other_gpus_from_its_own_time(train, lines):
    gpus = ["A10G", "H100 SXM"]
    slow = train(iteration_s=2 * predicted_ms() / 1000.0, on=gpus).watched
    anchor = {"gpu": "T4", "batch_size": 64, "iteration_time_ms": slow.iteration_time_ms}
    rows = epochcast.predict("resnet18", gpus, 64, anchors=[anchor]).to_dict("records")
    expected = [(row["gpu"], pytest.approx(row["iteration_time_ms"]), row["method"]) for row in rows]
    assert [(forecast.gpu, forecast.iteration_time_ms, forecast.method) for forecast in slow.on] == expected
    anchored, _ = slow.on
    assert anchored.method == "anchored"
    usual_ms = epochcast.predict("resnet18", "A10G", 64)["iteration_time_ms"][0]
    assert anchored.iteration_time_ms > 1.2 * usual_ms
    assert f"; on {anchored.gpu} " in lines[0]


@each_row
def test_what_is_not_forecast_elsewhere_is_said_with_the_way_round(train, lines, change, why):
    [forecast] = train(**{"on": ["H100 SXM"], **change}).watched.on
    assert forecast.iteration_time_ms is None
    assert why in forecast.why_not
    assert "not forecast: " in lines[-1]
