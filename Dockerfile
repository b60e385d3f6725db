# An image of Seqgate: the gateway, its commands and the console. docs/containers.md says how to run it.
#
#     docker build --tag seqgate .

ARG PYTHON=3.13

FROM python:${PYTHON}-slim-trixie AS build
# The versions do not matter: gcc compiles the core, and strip removes sections that nothing loads.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends binutils gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src src
COPY docs docs
COPY gateway gateway
COPY log log
COPY pid_allocator pid_allocator
COPY seq_validator seq_validator
COPY spark_kafka_compat spark_kafka_compat
RUN python -m venv --without-pip /opt/seqgate && \
    SEQGATE_COMPILE=1 python -m pip --python /opt/seqgate/bin/python install --no-cache-dir --no-compile '.[cluster,codecs,console,otlp,redis,security]'
# Debug information is a third of the wheels' size. The running user can't write bytecode, so that of every module is in the image.
RUN find /opt/seqgate -name '*.so' -type f -exec strip --strip-debug {} + && \
    find /opt/seqgate/lib -path '*/site-packages/*' -type d \( -name test -o -name tests \) -prune -exec rm -r {} + && \
    /opt/seqgate/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/seqgate/lib

FROM python:${PYTHON}-slim-trixie
LABEL org.opencontainers.image.title="Seqgate" \
      org.opencontainers.image.description="A Kafka-compatible gateway for idempotent producers" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 seqgate && \
    useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin seqgate && \
    install --directory --owner 10001 --group 10001 --mode 0700 /var/lib/seqgate
COPY --from=build /opt/seqgate /opt/seqgate
ENV PATH=/opt/seqgate/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    SEQGATE_LOG_DIRS=/var/lib/seqgate \
    SEQGATE_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    SEQGATE_METRICS_LISTENER=0.0.0.0:9644
USER 10001:10001
WORKDIR /var/lib/seqgate
VOLUME /var/lib/seqgate
EXPOSE 9092 9644 8080
STOPSIGNAL SIGTERM
# The port is that of the metrics listener, also where the environment names another one.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m --start-interval=1s \
    CMD ["/opt/seqgate/bin/python", "-c", "import http.client, os; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['SEQGATE_METRICS_LISTENER'].rpartition(':')[2]), timeout=4); c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["/opt/seqgate/bin/seqgate"]
CMD ["serve"]
