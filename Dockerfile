# The builder: a virtual environment with the service in it, and its kernels, compiled.
FROM python:3.11.13-slim-bookworm AS build

RUN python -m venv /opt/gcws
ENV PATH=/opt/gcws/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src

# The dependencies change seldom: a layer of their own. EXTRA=cluster adds what a cluster needs.
# Their versions and hashes are fixed: all images of one version have the same Ray.
COPY deploy/requirements.txt ./
COPY deploy/requirements-cluster.txt ./
ARG EXTRA=
RUN pip install -q --require-hashes -r requirements${EXTRA:+-$EXTRA}.txt

COPY pyproject.toml ./
COPY README.md ./
COPY LICENSE ./
COPY gcws_search gcws_search
COPY index index
COPY service service
RUN pip install -q --no-deps .

# Compiled for agreed CPUs, not for the builder's own: index/kernels/cpu.py says which.
# From outside the sources, for the installation. KERNEL_TARGETS names some of those CPUs; without
# it, all that the builder can run.
WORKDIR /
ARG KERNEL_TARGETS=
RUN python -m gcws_search.index.warmup.release install ${KERNEL_TARGETS:+--cpu $KERNEL_TARGETS}


# The image: no compiler, no sources but the installed ones, no root.
FROM python:3.11.13-slim-bookworm

COPY --from=build /opt/gcws /opt/gcws
RUN install -d -o 10001 -g 10001 -m 0750 /data /bases
# A login shell sets a PATH of its own: KubeRay calls ray in one.
RUN install -d /etc/profile.d && echo 'export PATH=/opt/gcws/bin:$PATH' > /etc/profile.d/gcws.sh

ENV PATH=/opt/gcws/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    GCWS_DATA_DIR=/data \
    GCWS_HOST=0.0.0.0 \
    GCWS_PORT=8000

USER 10001:10001
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s \
    CMD ["gcws-search", "health"]
ENTRYPOINT ["gcws-search"]
CMD ["serve"]
