"""deploy/: what images, units and recipes say agrees with the command line and with setup.cfg."""

import configparser
import json
import re
import shlex
from pathlib import Path

import pytest

from engine import cli
from engine.version import __version__
from tests import needs

ROOT = Path(__file__).parents[1]
IMAGES = ["Dockerfile", "Dockerfile.cuda"]
SERVE = cli.parser_of("serve")


def read(name):
    return (ROOT / "deploy" / name).read_text(encoding="utf-8")


def setup():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def lines(text):
    return text.strip().splitlines()


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_serves_as_a_plain_user_on_its_port(image):
    text = read(image)
    entry, command = (
        json.loads(re.search(rf"^{word} (\[.*\])$", text, re.MULTILINE)[1])
        for word in ("ENTRYPOINT", "CMD")
    )
    assert (entry, command[0]) == (["engine"], "serve")
    arguments = SERVE.parse(command[1:])
    assert arguments.host == "0.0.0.0"
    assert re.findall(r"^EXPOSE (\d+)$", text, re.MULTILINE) == [str(arguments.port)]
    assert f"127.0.0.1:{arguments.port}/readyz" in text
    assert re.search(r"^USER \d+$", text, re.MULTILINE)


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_installs_extras_that_exist(image):
    (extras,) = re.findall(r"pip install [^\n]*\[([\w,]+)\]", read(image))
    assert set(extras.split(",")) <= set(setup()["options.extras_require"])


def test_the_health_check_is_answered(tiny_detector):
    from tests.serve.running import load, serving

    checks = {re.search(r'"-c", "(.*)"\]', read(image))[1] for image in IMAGES}
    assert len(checks) == 1
    with load(tiny_detector) as detector, serving(detector) as server:
        exec(checks.pop().replace("8000", str(server.port)), {})


def test_what_builds_the_wheel_reaches_the_build():
    kept = {each.removeprefix("!") for each in lines((ROOT / ".dockerignore").read_text())}
    sources = {"engine", "cfg", "weights", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"}
    assert sources <= kept


def test_the_composed_server_is_confined_and_may_drain():
    services = needs.package("yaml").safe_load(read("compose.yaml"))["services"]
    drain = SERVE.get_default("drain_seconds")
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert (ROOT / service["build"]["dockerfile"]).is_file()
        assert int(service["stop_grace_period"].removesuffix("s")) > drain
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_the_unit_runs_a_command_that_exists_and_lets_it_drain():
    unit = dict(each.split("=", 1) for each in lines(read("engine.service")) if "=" in each)
    program, command, *words = shlex.split(unit["ExecStart"])
    assert (Path(program).name, command) == ("engine", "serve")
    assert SERVE.parse(words).host == "127.0.0.1"
    assert float(unit["TimeoutStopSec"]) > SERVE.get_default("drain_seconds")


def test_the_recipe_has_version_and_requirements_of_setup_cfg():
    recipe = needs.package("yaml").safe_load(read("conda/recipe.yaml"))
    options = setup()["options"]
    wanted = [f"python{options['python_requires']}", *lines(options["install_requires"])]
    assert [each.replace(" ", "") for each in recipe["requirements"]["run"]] == wanted
    assert recipe["context"]["version"] == __version__
    assert recipe["package"]["name"] == setup()["metadata"]["name"]
    (script,) = lines(options.parser["options.entry_points"]["console_scripts"])
    assert recipe["build"]["python"]["entry_points"] == [script]


def test_the_release_keeps_no_secret():
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    jobs = needs.package("yaml").safe_load(text)["jobs"]
    assert "secrets." not in text
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "build"
