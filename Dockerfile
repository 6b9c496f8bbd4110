# The base is an argument, so that a mirror or a hardened image of one's own can stand in.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
RUN python -m venv /opt/placet
COPY requirements/build.txt requirements/server.txt requirements/
RUN /opt/placet/bin/pip install --require-hashes -r requirements/server.txt \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes -r requirements/build.txt
COPY pyproject.toml LICENSE README.md ./
COPY third_party third_party
COPY clients/python clients/python
COPY generated/python generated/python
COPY server server
RUN /opt/build/bin/hatchling build --target wheel --directory /build/dist \
    && /opt/placet/bin/pip install --no-deps /build/dist/*.whl

FROM ${BASE}
LABEL org.opencontainers.image.title="placet" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 placet \
    && useradd --system --uid 10001 --gid placet --home-dir /var/lib/placet --create-home --shell /usr/sbin/nologin placet
COPY --from=build /opt/placet /opt/placet
ENV PATH=/opt/placet/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /var/lib/placet
USER 10001:10001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["placet", "health"]
ENTRYPOINT ["placet"]
CMD ["serve"]
