# Two stages: the first builds the environment from the lock file, the second holds only that and a user of its own.
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements.lock ./
RUN python -m venv /opt/upbot \
 && /opt/upbot/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock \
 && python -m venv /opt/builder && /opt/builder/bin/pip install --no-cache-dir --disable-pip-version-check hatchling
COPY pyproject.toml README.md LICENSE ./
COPY bot bot
COPY handlers handlers
RUN /opt/builder/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/upbot/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps /wheels/upbot-*.whl

FROM python:3.13-slim
RUN apt-get update && apt-get install -y --no-install-recommends openssh-client && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 10001 upbot && install -d -o upbot -g upbot /var/lib/upbot /etc/upbot
COPY --from=build /opt/upbot /opt/upbot
ENV PATH=/opt/upbot/bin:$PATH UPBOT_FLEET=/etc/upbot/fleet.yaml UPBOT_STATE=/var/lib/upbot
USER upbot
VOLUME /var/lib/upbot
STOPSIGNAL SIGTERM
ENTRYPOINT ["upbot"]
CMD ["run", "--json-logs"]
