"""What stands beside a launcher's name in a fleet file."""

from __future__ import annotations

import pytest

from bot.domain.errors import ConfigError
from bot.settings import parse_fleet

FILE = """\
hosts:
  box: {}
defaults: {host: box, launch: sglang serve --model-path /m}
servers:
  gpu{0..1}:
    port: 30000+n
    launcher: %s
"""


def servers(launcher: str, more: str = ""):
    text = FILE % launcher + more
    found = parse_fleet(
        text.encode(), "f.yaml", transports={}, engines=("sglang",), launchers=("process", "systemd", "docker")
    )
    return found.servers


@pytest.mark.parametrize(
    ("written", "name", "settings"),
    [
        ("process", "process", ()),
        ("{process: }", "process", ()),
        ("systemd", "systemd", ()),
        ("{systemd: 'sglang@{port}'}", "systemd", (("unit", "sglang@30001"),)),
        ("{systemd: {manager: user}}", "systemd", (("manager", "user"),)),
        ("{docker: lmsysorg/sglang:v0.5}", "docker", (("image", "lmsysorg/sglang:v0.5"),)),
        (
            "{docker: {image: i, args: \"--gpus all -v '/m/{name}:/m' --log-opt tag={{.Name}}\", command: podman}}",
            "docker",
            (
                ("image", "i"),
                ("args", '["--gpus", "all", "-v", "/m/gpu1:/m", "--log-opt", "tag={{.Name}}"]'),
                ("command", "podman"),
            ),
        ),
    ],
)
def test_a_launcher_is_a_name_or_a_name_with_settings(written, name, settings):
    one = servers(written)[1]
    assert (one.launcher, one.launcher_settings) == (name, settings)


@pytest.mark.parametrize(
    ("launcher", "log"),
    [
        ("systemd", "journal:upbot-gpu1.service"),
        ("{systemd: 'sglang@{port}'}", "journal:sglang@30001.service"),
        ("{systemd: {unit: 's@{n}.service', manager: user}}", "user-journal:s@1.service"),
    ],
)
def test_the_journal_is_that_of_the_servers_unit(launcher, log):
    assert servers(launcher, "    log: journal\n")[1].log == log


@pytest.mark.parametrize(
    ("launcher", "more", "said"),
    [
        ("dokcer", "", "f.yaml:7: servers.gpu{0..1}.launcher: there is no launcher 'dokcer'; the nearest is docker"),
        ("docker", "", "f.yaml:7: servers.gpu{0..1}.launcher.image: is missing"),
        ("{docker: {imgae: x}}", "", "f.yaml:7: servers.gpu{0..1}.launcher.docker.imgae: is no key here; the nearest is image"),
        ("{docker: [a]}", "", "f.yaml:7: servers.gpu{0..1}.launcher.docker: must be a value or a mapping, not a list"),
        ("{systemd: 'x@{prot}'}", "", "f.yaml:7: servers.gpu{0..1}.launcher.systemd: there is no {prot}; the nearest is port"),
        ("{systemd: {manager: root}}", "", "f.yaml:7: servers.gpu{0..1}.launcher.systemd.manager: must be system or user, not 'root'"),
        ("{process: x}", "", "f.yaml:7: servers.gpu{0..1}.launcher.process: the launcher process has no settings"),
        ("[docker]", "", "f.yaml:7: servers.gpu{0..1}.launcher: must be a launcher's name, or its name with its settings, not a list"),
        ("{systemd: sglang}", "", "f.yaml:7: servers.gpu{0..1}.launcher: the unit sglang.service of box (for gpu1) belongs to gpu0"),
        ("process", "    log: journal\n", "f.yaml:8: servers.gpu{0..1}.log: only the launcher systemd has a journal"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(launcher, more, said):
    with pytest.raises(ConfigError) as caught:
        servers(launcher, more)
    assert str(caught.value) == said
