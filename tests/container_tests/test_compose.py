"""compose.yaml sets what the service knows, invents no password, and lets nothing more in than it must."""

import re
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
import yaml
from case_tables import each_row
from sqlalchemy.engine import make_url

from api.settings import Settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
OTHERS = {"PGPASSWORD", "FORWARDED_ALLOW_IPS"}  # PostgreSQL's library and uvicorn read them
SERVICES = ["service", "proxy", "database"]
KEEPING = ["service", "database"]


def test_every_variable_is_a_setting_whose_default_holds_and_none_reaches_the_process_that_reads_onnx(
    compose, monkeypatch
):
    environment = compose["services"]["service"]["environment"]
    settings = {f"EPOCHCAST_{field}".upper() for field in Settings.model_fields}
    assert sorted(set(environment) - OTHERS - settings) == []
    for name, value in environment.items():  # as compose fills it in where nothing is set
        monkeypatch.setenv(name, re.sub(r"\$\{\w+:([-?])([^}]*)\}", _default, value))
    assert Settings().log_level == "info"
    from api.onnx_process import _environment

    names = set(compose["services"]["service"]["environment"]) - {"FORWARDED_ALLOW_IPS"}
    for name in names:
        monkeypatch.setenv(name, "secret")
    assert names & set(_environment()) == set()


def _default(match):
    return match[2] if match[1] == "-" else "secret"


def test_the_store_is_the_database_beside_it_awaited_until_it_answers_and_not_run_by_root(compose):
    url = make_url(compose["services"]["service"]["environment"]["EPOCHCAST_STORE"])
    database = compose["services"]["database"]["environment"]
    assert (url.get_backend_name(), url.host, url.password) == ("postgresql", "database", None)
    assert (url.username, url.database) == (database["POSTGRES_USER"], database["POSTGRES_DB"])
    assert compose["services"]["database"]["user"] == "postgres"
    assert "user" not in compose["services"]["service"]  # the image's own
    assert compose["services"]["service"]["depends_on"]["database"]["condition"] == "service_healthy"
    assert compose["services"]["database"]["healthcheck"]["test"][1] == "pg_isready"
    mounts = {name: compose["services"][name]["volumes"][0].split(":") for name in KEEPING}
    assert {volume for volume, _ in mounts.values()} == set(compose["volumes"])
    assert mounts["service"][1] == re.findall(r"^VOLUME (\S+)$", DOCKERFILE, re.MULTILINE)[-1]


@each_row
def test_there_is_no_password_until_somebody_makes_one(compose, service, variable):
    value = compose["services"][service]["environment"][variable]
    assert re.fullmatch(r"\$\{EPOCHCAST_DATABASE_PASSWORD:\?[^}]+\}", value)


def test_the_password_is_kept_out_of_git_and_image_and_the_page_sets_the_variables_that_are_taken():
    assert "/.env" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert "!.env" not in (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "containers.md").read_text(encoding="utf-8")
    taken = set(re.findall(r"\$\{(\w+)", text))
    assert sorted(name for name in taken if f"`{name}`" not in page and f"{name}=" not in page) == []


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_can_do_no_more_than_it_must_and_takes_its_share_of_the_machine(compose, name):
    service = compose["services"][name]
    bounds = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
    assert {key: service[key] for key in bounds} == bounds
    assert "/tmp" in service["tmpfs"]  # noqa: S108
    assert service.get("privileged") is service.get("cap_add") is None
    assert {"cpus", "mem_limit", "pids_limit"} <= set(service)
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}


def test_a_container_is_killed_later_than_it_needs_to_stop(compose):
    from epochcast.commands.serve import server_options

    period = compose["services"]["service"]["stop_grace_period"]
    assert int(period.removesuffix("s")) > server_options()["timeout_graceful_shutdown"]


def test_only_the_proxy_is_believed_and_only_this_machine_reaches_the_service_and_it_the_database(compose):
    believed = compose["services"]["service"]["environment"]["FORWARDED_ALLOW_IPS"]
    assert compose["services"]["proxy"]["networks"]["front"]["ipv4_address"] == believed
    (front,) = compose["networks"]["front"]["ipam"]["config"]
    assert ip_address(believed) in ip_network(front["subnet"])
    (port,) = compose["services"]["service"]["ports"]
    assert port.startswith("127.0.0.1:")
    assert port.rpartition(":")[2] == re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE)[-1]
    assert "ports" not in compose["services"]["database"]
    (inside,) = compose["services"]["database"]["networks"]
    assert compose["networks"][inside]["internal"] is True
    assert inside in compose["services"]["service"]["networks"]


def test_it_is_yaml_without_doubled_keys():
    class Strict(yaml.SafeLoader):
        """Refuses a key twice, of which PyYAML would keep the last."""

    def mapping(loader, node):
        keys = [loader.construct_object(key) for key, _ in node.value]
        assert len(keys) == len(set(keys))
        return loader.construct_mapping(node, deep=True)

    Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    assert yaml.load((ROOT / "compose.yaml").read_text(encoding="utf-8"), Strict)  # noqa: S506 - a SafeLoader
