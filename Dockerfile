# The builder: a virtual environment with the service in it, and its kernels, compiled.
FROM python:3.11.13-slim-bookworm AS build

RUN python -m venv /opt/gcws
ENV PATH=/opt/gcws/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src

# The dependencies change seldom: a layer of their own. EXTRA=cluster adds what a cluster needs.
COPY pyproject.toml ./
ARG EXTRA=
RUN python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
    print(*project['dependencies'], *(project['optional-dependencies']['$EXTRA'] if '$EXTRA' else []), sep='\n')" \
    > requirements.txt
RUN pip install -q -r requirements.txt

COPY README.md ./
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
RUN install -d -o 10001 -g 10001 -m 0750 /data

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
