# One image for every process of the suite: `ductor serve trigger`, `ductor worker`, `ductor migrate`. It holds what runs and nothing that builds:
# no compiler, no pip, no embedded Postgres. It runs as any numeric user on a read-only root file system; /tmp is the one path that may be written.
#
#   docker build --tag ductor:0.1.0 .
#
# A release build names the base by digest: --build-arg PYTHON_IMAGE=python:3.11.14-slim-bookworm@sha256:…
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python -m venv /opt/ductor \
    && python -m venv /opt/tools \
    && /opt/tools/bin/pip install hatchling==1.27.0
# Dependencies before our code: they change less often. Wheels only, each with its hash: nothing is compiled, and nothing comes in that was not named.
COPY requirements.lock ./
RUN /opt/ductor/bin/pip install --require-hashes --only-binary :all: --requirement requirements.lock
COPY pyproject.toml README.md ./
COPY gen ./gen
COPY services ./services
RUN /opt/tools/bin/hatchling build --target wheel --directory /wheels \
    && /opt/ductor/bin/pip install --no-deps --no-index /wheels/*.whl \
    && /opt/ductor/bin/pip check \
    && /opt/ductor/bin/pip uninstall --yes setuptools pip \
    && /opt/ductor/bin/python -m compileall -q -j 0 /opt/ductor/lib

FROM ${PYTHON_IMAGE} AS run
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Ductor" \
      org.opencontainers.image.description="A durable DAG workflow engine over one Postgres, spoken to in gRPC" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN python -m pip uninstall --yes --root-user-action=ignore setuptools wheel pip
COPY --from=build /opt/ductor /opt/ductor
# Bytecode is compiled above: a read-only file system takes none. A numeric user is what `runAsNonRoot` can check; it needs no entry in /etc/passwd.
ENV PATH=/opt/ductor/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
# gRPC; REST, Connect and /metrics; the probes' health service, where DUCTOR_HEALTH_ADDRESS=:9091 turns it on
EXPOSE 9090 8080 9091
STOPSIGNAL SIGTERM
# For engines that have no probes of their own (Kubernetes ignores it). It asks whether a restart would help, not whether Postgres is there (KB-02).
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-IS", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8080, timeout=2); c.request('GET', '/livez'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["ductor"]
CMD ["serve"]
