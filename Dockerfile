# Two images, docs/containers.md. The service, which is also the command; it has no deep-learning framework:
#   docker build -t epochcast .
#   docker run --rm --read-only -p 127.0.0.1:8000:8000 epochcast
#   docker run --rm epochcast predict resnet50 --gpu T4 --batch-size 64
# The instrument, with CUDA, PyTorch, CuPy and Chainer, for a GPU that you rent:
#   docker build -t epochcast-profile --target profile .
#   docker run --rm --gpus all --user "$(id -u)" -v "$PWD:/data" epochcast-profile profile --preset quick --out mine.csv.gz
# Tag and digest; docs/containers.md says where the digest is from. Another Python: --build-arg PYTHON=3.13-slim
ARG PYTHON=3.12.14-slim-trixie@sha256:f77ac9e44ae96ef2c90b8053ea08c31f8be030f824196b0ae4db6d462c84e51f

FROM python:${PYTHON} AS wheel
WORKDIR /source
COPY LICENSE README.md pyproject.toml hatch_build.py ./
COPY datasets datasets
COPY predictor predictor
COPY proxy_cnns proxy_cnns
COPY api api
COPY epochcast epochcast
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# An environment without pip, made where it will lie, so that the image holds no more than it runs.
FROM python:${PYTHON} AS packages
COPY --from=wheel /wheels /wheels
COPY requirements.lock /wheels/
# Every package at the version and with the hash of the lock file (docs/containers.md), then our own wheel.
# hadolint ignore=DL3013
RUN python -m venv --without-pip /opt/epochcast \
    && set -- /wheels/*.whl \
    && pip --python /opt/epochcast/bin/python install --no-cache-dir --require-hashes -r /wheels/requirements.lock \
    && pip --python /opt/epochcast/bin/python install --no-cache-dir --no-deps "$1"

FROM python:${PYTHON} AS profile
# 13, or 12 for GPUs before Turing and drivers before 580; PyTorch's build for it comes from the index that its
# own page names: --build-arg CUDA=12 --build-arg PIP_EXTRA_INDEX_URL=...
ARG CUDA=13
ARG TORCH=torch==2.13.0
ARG PIP_EXTRA_INDEX_URL=
COPY --from=wheel /wheels /wheels
# PyTorch brings CUDA and cuDNN, and [ctk] what CuPy wants of CUDA besides. Chainer takes two steps (docs/dependencies.md).
RUN set -- /wheels/*.whl \
    && python -m venv /opt/epochcast \
    && /opt/epochcast/bin/pip install --no-cache-dir "$1[client,cuda${CUDA},onnx]" "cupy-cuda${CUDA}x[ctk]" "${TORCH}" 'setuptools>=70.1,<82' 'wheel>=0.45' \
    && /opt/epochcast/bin/pip install --no-cache-dir --no-build-isolation chainer==7.8.1 \
    && rm -r /wheels \
    && useradd --no-create-home --uid 10001 epochcast \
    && install --directory --owner=10001 --group=10001 /data
# What NVIDIA's container runtime is to bring in, and where CuPy may keep the kernels that it compiles.
ENV PATH=/opt/epochcast/bin:$PATH \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    HOME=/tmp \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /data
VOLUME /data
ENTRYPOINT ["epochcast"]
CMD ["profile", "doctor"]

FROM python:${PYTHON} AS service
RUN useradd --no-create-home --uid 10001 epochcast \
    && install --directory --owner=10001 --group=10001 /data
COPY --from=packages /opt/epochcast /opt/epochcast
ENV PATH=/opt/epochcast/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    EPOCHCAST_STORE=sqlite:////data/epochcast.db
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
# Whether the process answers, not whether its database does: restarting it would not help that.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8000, timeout=4); c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["epochcast"]
CMD ["serve", "--host", "0.0.0.0"]
