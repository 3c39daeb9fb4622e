"""The grounds, made once for all tests that use them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.launchers import booted, grounds, podman
from tests.launchers.grounds import Ground


@pytest.fixture(scope="session")
def process_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with grounds.on_process(tmp_path_factory.mktemp("process")) as ground:
        yield ground


@pytest.fixture(scope="session")
def systemd_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    if (why := booted.missing()) is not None:
        pytest.skip(why)
    with grounds.on_systemd(tmp_path_factory.mktemp("systemd")) as ground:
        yield ground


@pytest.fixture(scope="session")
def docker_ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    if (why := podman.missing()) is not None:
        pytest.skip(why)
    with grounds.on_docker(tmp_path_factory.mktemp("docker")) as ground:
        yield ground
