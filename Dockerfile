# syntax=docker/dockerfile:1
# Targets: rtx (the default: builds without a GPU), tensorrt-cu12 and tensorrt-cu13 (build on the GPU they are given).
# Everything is in /opt/trtforge, installed by hash from the lock file; no compiler, pip or build tool comes along with it.

ARG PYTHON_IMAGE=python:3.12-slim-bookworm
ARG CUDA12_IMAGE=nvcr.io/nvidia/cuda:12.9.1-base-ubuntu24.04
ARG CUDA13_IMAGE=nvcr.io/nvidia/cuda:13.0.1-base-ubuntu24.04

# ---- Python, and Ubuntu's Python on NVIDIA's bases

FROM ${PYTHON_IMAGE} AS python

FROM ${CUDA12_IMAGE} AS cuda12
# The base pins the release of Ubuntu; its security fixes are wanted.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*

FROM ${CUDA13_IMAGE} AS cuda13
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*

# ---- what is installed, once per flavour

FROM python AS install-rtx
WORKDIR /src
COPY requirements.lock ./
RUN python -m venv /opt/trtforge
RUN /opt/trtforge/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md ./
COPY client ./client
COPY migrations ./migrations
COPY app ./app
RUN /opt/trtforge/bin/pip install --no-cache-dir --no-deps --no-build-isolation ./client .
RUN /opt/trtforge/bin/pip uninstall --yes hatchling setuptools tomlkit trove-classifiers pathspec pluggy pip

FROM cuda12 AS install-cu12
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements.lock ./
RUN python3 -m venv /opt/trtforge
RUN /opt/trtforge/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md ./
COPY client ./client
COPY migrations ./migrations
COPY app ./app
# TensorRT itself is outside the lock: its packages fetch the libraries from NVIDIA's own index.
RUN /opt/trtforge/bin/pip install --no-cache-dir --no-build-isolation --extra-index-url https://pypi.nvidia.com ./client '.[tensorrt-cu12]'
RUN /opt/trtforge/bin/pip uninstall --yes hatchling setuptools tomlkit trove-classifiers pathspec pluggy pip

FROM cuda13 AS install-cu13
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements.lock ./
RUN python3 -m venv /opt/trtforge
RUN /opt/trtforge/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md ./
COPY client ./client
COPY migrations ./migrations
COPY app ./app
RUN /opt/trtforge/bin/pip install --no-cache-dir --no-build-isolation --extra-index-url https://pypi.nvidia.com ./client '.[tensorrt-cu13]'
RUN /opt/trtforge/bin/pip uninstall --yes hatchling setuptools tomlkit trove-classifiers pathspec pluggy pip

# ---- what runs: the same nine lines for every flavour
# It listens for others, so it needs a token: mount a secret and name it in TRTFORGE_ADMIN_TOKEN_FILE.

FROM cuda12 AS tensorrt-cu12
COPY --from=install-cu12 /opt/trtforge /opt/trtforge
RUN install -d -m 0750 -o 10001 -g 10001 /data
ENV TRTFORGE_HOST=0.0.0.0 TRTFORGE_PORT=8080 TRTFORGE_DATA_DIR=/data TRTFORGE_BUILDER=tensorrt HOME=/tmp
USER 10001:10001
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/opt/trtforge/bin/python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:%s/livez' % os.environ['TRTFORGE_PORT'], timeout=4)"]
ENTRYPOINT ["/opt/trtforge/bin/trtforge"]
CMD ["serve"]

FROM cuda13 AS tensorrt-cu13
COPY --from=install-cu13 /opt/trtforge /opt/trtforge
RUN install -d -m 0750 -o 10001 -g 10001 /data
ENV TRTFORGE_HOST=0.0.0.0 TRTFORGE_PORT=8080 TRTFORGE_DATA_DIR=/data TRTFORGE_BUILDER=tensorrt HOME=/tmp
USER 10001:10001
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/opt/trtforge/bin/python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:%s/livez' % os.environ['TRTFORGE_PORT'], timeout=4)"]
ENTRYPOINT ["/opt/trtforge/bin/trtforge"]
CMD ["serve"]

FROM python AS rtx
COPY --from=install-rtx /opt/trtforge /opt/trtforge
RUN install -d -m 0750 -o 10001 -g 10001 /data
ENV TRTFORGE_HOST=0.0.0.0 TRTFORGE_PORT=8080 TRTFORGE_DATA_DIR=/data TRTFORGE_BUILDER=tensorrt_rtx HOME=/tmp
USER 10001:10001
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/opt/trtforge/bin/python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:%s/livez' % os.environ['TRTFORGE_PORT'], timeout=4)"]
ENTRYPOINT ["/opt/trtforge/bin/trtforge"]
CMD ["serve"]
