# The proxy in an image: nothing in it but Python, the package and what it needs; nothing that compiles.
#
#     docker build -t concur-proxy .
#     docker run --rm -p 8080:8080 concur-proxy serve --backend http://engine:8000
#
# BASE: any image with Python 3.11 or newer that has Debian's or Ubuntu's packages. Pin it by digest where builds must be
# the same for ever: --build-arg BASE=python:3.13.9-slim-bookworm@sha256:...
ARG BASE=python:3.13.9-slim-bookworm

FROM ${BASE} AS build
# `slim` has the extras redis and jwt; `full` has otel, k8s and postgres, too, and is about twice as large.
ARG KIND=slim
# The data path is compiled; `no` leaves it as it is, where building has to be fast and serving has not.
ARG COMPILE=require
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends gcc libc6-dev >/dev/null \
    && if [ ! -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ]; then \
         apt-get install -qq -y --no-install-recommends python3-dev >/dev/null; fi
WORKDIR /source
# What is installed is what deploy/requirements names, file by file, and nothing of it is built here: no code of others runs.
COPY deploy/requirements deploy/requirements
RUN python3 -m venv /opt/build \
    && /opt/build/bin/pip install -q --require-hashes --only-binary :all: -r deploy/requirements/build.txt \
    && python3 -m venv --without-pip /opt/concur-proxy \
    && /opt/build/bin/pip --python /opt/concur-proxy/bin/python3 install -q --require-hashes --only-binary :all: \
         -r "deploy/requirements/${KIND}.txt"
COPY pyproject.toml README.md LICENSE ./
COPY deploy/build_hook.py deploy/
COPY concur_proxy concur_proxy
RUN PATH="/opt/build/bin:${PATH}" CONCUR_PROXY_COMPILE=${COMPILE} \
      /opt/build/bin/pip wheel -q --no-deps --no-build-isolation -w /wheels . \
    && /opt/build/bin/pip --python /opt/concur-proxy/bin/python3 install -q --no-deps --no-index /wheels/*.whl \
    && /opt/build/bin/pip --python /opt/concur-proxy/bin/python3 check \
    && find /opt/concur-proxy -name '*.so' -exec strip --strip-unneeded {} + \
    && find /opt/concur-proxy -path '*/pygments/*/__pycache__' -prune -exec rm -r {} +

FROM ${BASE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="concur-proxy" \
      org.opencontainers.image.description="Admission control for fleets of LLM agents in front of vLLM and SGLang" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/concur-proxy /opt/concur-proxy
# In a container loopback is nobody's address. Management stays closed to other machines until it has a token.
ENV PATH="/opt/concur-proxy/bin:${PATH}" \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    CONCUR_SERVER__HOST=0.0.0.0
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080
# Kubernetes does not look at this; the chart has probes of its own. Where clients must show certificates, give another one.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["python3", "-c", "import os, ssl, urllib.request as r; get = os.environ.get; scheme = 'https' if get('CONCUR_SERVER__TLS_CERT_FILE') else 'http'; r.build_opener(r.ProxyHandler({}), r.HTTPSHandler(context=ssl._create_unverified_context())).open(scheme + '://127.0.0.1:' + get('CONCUR_SERVER__PORT', '8080') + '/livez', timeout=2)"]
ENTRYPOINT ["concur-proxy"]
CMD ["serve"]
