"""Bad input: one line on stderr that says what would be right, exit code 2, and never a traceback."""

import pytest

PREDICT = ("predict", "resnet18", "--gpu", "T4")
CHECK = ("check", "resnet50", "-g", "T4", "-b", 64)
FIT_MEMORY = ("fit-memory", "resnet50", "-g", "L4", "-b", 256, "--data-set", "imagenet", "--memory-gib", 8)
DIFF = ("diff", "vgg16", "vgg16_bn", "-g", "T4")
ANCHOR = ("--anchor-gpu", "T4", "--anchor-batch-size", 64, "--anchor-iteration-time-ms", 560)
FLEET = ("--out", "x.csv", "--scheduler", "tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("predict",), "CNN is missing. Try: epochcast predict resnet50"),
        (("predict", "resnet18", "-b", 8), "--gpu is missing"),
        ((*PREDICT, "-b", 0), "--batch-size 0 lies outside 1..65,536"),
        ((*PREDICT, "--batch-size=-1"), "--batch-size -1 lies outside 1..65,536"),
        ((*PREDICT, "-b", "many"), "--batch-size 'many' is not a whole number"),
        ((*PREDICT, "-b", 8, "--samples", "1.000"), "--samples '1.000' may mean two things"),
        (("predict", "resnet51", "-g", "T4", "-b", 8), "no CNN is called 'resnet51'. Nearest: 'resnet50'"),
        (("predict", "resnet18", "-g", "H2OO", "-b", 8), "no GPU is called 'H2OO'. Nearest: "),
        (("predict", "resnet18", "-g", "V100", "-b", 8), "'V100' fits several GPUs. Say which: "),
        (("predict", "alexnet", "-g", "T4", "-b", 8, "--image-size", 8), "image_size 8 is below 63"),
        ((*PREDICT, "-b", 8, "--precision", "amp_bf16"), "has no amp_bf16. It has: fp32, fp16, amp_fp16"),
        ((*PREDICT, "-b", 8, "--precision", "fp33"), "precision 'fp33' is not known. Nearest: 'fp32'"),
        ((*PREDICT, "-b", 8, "--dataset", "imagnet"), "Nearest: 'imagenet'"),
        ((*PREDICT, "-b", 8, "--anchor-gpu", "T4"), "the anchor lacks --anchor-batch-size"),
        ((*PREDICT, "-b", 8, "--offers", "none.csv"), "there is no price file none.csv"),
        ((*PREDICT, "-b", 8, "--model", "none.json"), "none.json"),
        (("predict", "none.csv", "-g", "T4", "-b", 8), "none.csv"),
        ((*PREDICT, "--epochs", "ninety"), "--epochs is an option of `compare`"),
        (("explain", "resnet18", "--gpu", "T4", "--all-offers"), "--all-offers is an option of `compare`"),
        (("predict", "--rows", "rows.csv"), "--rows needs --out"),
        ((*PREDICT, "--device", "cuda"), "--device answers many rows at once"),
        (("predict", "--rows", "none.csv", "--out", "out.csv"), "none.csv cannot be read: No such file"),
        (("compare", "resnet18", "-b", 8), "needs the samples of an epoch"),
        (("compare", "resnet18"), "needs the samples of an epoch"),
        (
            ("compare", "resnet18", "-b", 8, "--samples", 9, "--rank-by", "luck"),
            "--rank-by 'luck' is not known",
        ),
        (("gpu", "show", "H2OO"), "no GPU is called 'H2OO'"),
        (("gpu", "list", "--generation", "hoper"), "no generation is called 'hoper'. Nearest: 'hopper'"),
        (("cnn", "show", "resnet51"), "no CNN is called 'resnet51'"),
        (("cnn", "show", "resnet18", "-b", 0), "--batch-size 0 lies outside"),
        (("data", "import", "profit", "."), "there is no importer 'profit'. Nearest: 'profet'"),
        (("data", "show", "none.csv"), "none.csv"),
        (("fit", "mine.csv"), "--out is missing"),
        (("fit", "--out", "model.json"), "fit needs measurements, a folder"),
        (("predikt",), "no command is called 'predikt'. Nearest: 'predict', "),
        (("gpu", "lst"), "no command is called 'lst'. Nearest: 'list'. `epochcast gpu --help` shows all."),
        ((*PREDICT, "--gpuu", "T4"), "no option is called '--gpuu'. Nearest: '--gpu', "),
        (("--versions",), "no option is called '--versions'. Nearest: '--version', "),
        ((*PREDICT, "-b"), "-b needs a value. `epochcast predict --help` shows which."),
        ((*PREDICT, "--json=3"), "--json takes no value"),
        (
            (*PREDICT, "--format", "jsn"),
            "--format 'jsn' is not known. Nearest: 'json', 'csv'; known: table, json",
        ),
        (
            ("serve", "--port", "0"),
            "--port '0' is not a whole number from 1 to 65,535. `epochcast serve --help`",
        ),
        (("serve", "--port", "x"), "--port 'x' is not a whole number from 1 to 65,535"),
        (("offer", "own", "--years", "x"), "--years 'x' is not a number from 0.01"),
        (("gpu", "show"), "NAME is missing. `epochcast gpu show --help` shows what it is."),
        ((*PREDICT, "-b", 8, "--data-set", ""), "--data-set is empty. Pass a value, or leave it out."),
        ((*PREDICT, "-b", 8, "--price", "1e308"), "--price '1e308' is too large"),
        ((*PREDICT, "-b", 8, "--workers", 2, "--loader", "none"), "and --workers is given, too"),
        (
            ("check", "resnet18", "-g", "T4", "-b", 8, "--iteration-time-ms", "1e-30"),
            "is too small: at least 1e-06",
        ),
        (("fit", "mine.csv", "--out", "none/model.json"), "none/model.json: No such file or directory"),
        ((*PREDICT, "-b", "4,8,"), "--batch-size '4,8,' has a comma with nothing beside it"),
        ((*PREDICT, "-b", 8, "--plot", "x.png"), "no epoch times to draw. Ask with --samples or --data-set"),
        (("profile", "input", "--workers", "x"), "--workers 'x' is not a whole number"),
        (("profile", "input", "--out", "none/input.json"), "none/input.json: No such file or directory"),
        (("host", "now"), "'now' is more than `epochcast host` takes"),
        (CHECK, "Give one: --images-per-s"),
        ((*CHECK, "--images-per-s", -3), "--images-per-s '-3'"),
        ((*CHECK, "--epoch-time-s", 9), "--epoch-time-s needs the samples"),
        ((*CHECK, "--images-per-s", 9, "--log", "x.log"), "a log and a speed are given"),
        ((*CHECK, "--images-per-s", 9, "--format", "csv"), "--format csv"),
        ((*CHECK, "--images-per-s", 9, "--waiting-share", 2), "--waiting-share 2"),
        ((*FIT_MEMORY, "--allow", "optimiser"), "Nearest: 'optimizer'"),
        ((*FIT_MEMORY, "--code", "--json"), "--format json does not go here"),
        ((*FIT_MEMORY, "--memory-gib", 0.5), "--batch-size 256 needs"),
        (("diff", "a..b..c", "x.py:make", "-g", "T4", "-b", 64), "no two revisions"),
        (("diff", "nosuch..HEAD", "x.py:make", "-g", "T4", "-b", 64), "nosuch"),
        ((*DIFF, "-b", 64, "--fail-over", "much"), "--fail-over 'much'"),
        ((*DIFF, "-b", 64, "--format", "csv"), "--format csv"),
        ((*DIFF, "-b", 64, "--fail-over", -1), "--fail-over '-1'"),
        (DIFF, "--batch-size is missing"),
        (("profile", "--gpus", "0,1", *FLEET), "--gpus 0,1 names GPUs of this machine"),
        (("profile", "--device", "cuda:1", *FLEET), "--device cuda:1 names GPUs of this machine"),
        (("profile", "--preset", "ddp", *FLEET), "measures the GPUs of one machine together"),
        ((*PREDICT, *FLEET), "--scheduler answers many rows at once"),
        (("predict", "resnet50", "-g", "T4", "-b", 64, "--json", "--format", "csv"), "--format csv is given"),
        (
            (*PREDICT, "-b", 64, *ANCHOR, "--anchor-samples", 100),
            "--anchor-samples belongs to --anchor-epoch-time-s",
        ),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, epochcast):
    run = epochcast(*arguments)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("Error: ")
    assert message in run.err
    assert run.err.count("\n") == 1


@pytest.mark.parametrize("more", [("predict",), ("compare", "--samples", 9), ("explain", "--format", "csv")])
def test_a_gpu_without_the_precision_is_left_out_in_a_line(more, epochcast):
    command, *options = more
    gpus = ("-g", "T4", "-g", "H200", "-b", 8, "--precision", "amp_bf16")
    for _ in range(2):
        run = epochcast(command, "resnet18", *gpus, *options)
        assert (run.code, "T4" in run.out, "H200" in run.out) == (0, False, True)
        assert run.err == "Tesla T4 is left out in amp_bf16: the GPU has fp32, fp16, amp_fp16.\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("gpu,cnn,image_size,batch_size,precision\nT4,resnet50,224,32,fp32\n", "iteration_time_ms"),
        (
            "gpu,cnn,image_size,batch_size,precision,iteration_time_ms\nT4,resnet50,224,32,fp32,0\n",
            "iteration_time_ms",
        ),
        (
            "gpu,cnn,image_size,batch_size,precision,iteration_time_ms\nT4,resnet50,224,32,fp32,nan\n",
            "iteration_time_ms",
        ),
        (
            "format_version,gpu,cnn,image_size,batch_size,precision,iteration_time_ms\n"
            "99,T4,resnet50,224,32,fp32,1\n",
            "format version '99'",
        ),
    ],
    ids=["empty", "missing column", "time of 0", "time of NaN", "another format version"],
)
@pytest.mark.parametrize("command", [("data", "show"), ("evaluate",)], ids=" ".join)
def test_a_bad_measurement_table_is_refused(command, text, message, epochcast, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    run = epochcast(*command, path)
    assert run.code == 2
    assert message in run.err
    assert run.err.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_named(epochcast, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("cnn,image_size,gpu,batch_size,precision\nresnet18,224,T4,32,fp32\n")
    run = epochcast("predict", "--rows", rows, "--out", tmp_path / "none" / "out.csv")
    assert (run.code, "cannot be written" in run.err) == (2, True)
