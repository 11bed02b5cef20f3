# The command alone: docker build -t epochcast . && docker run --rm epochcast predict resnet50 --gpu T4 --batch-size 64
# Files of yours: docker run --rm --user "$(id -u)" --volume "$PWD:/data" epochcast predict --rows rows.csv --out out.csv
FROM python:3.12-slim AS build
WORKDIR /source
COPY LICENSE README.md pyproject.toml ./
COPY datasets datasets
COPY predictor predictor
COPY proxy_cnns proxy_cnns
COPY api api
COPY epochcast epochcast
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels && useradd --no-create-home --uid 10001 epochcast
USER 10001
WORKDIR /data
ENTRYPOINT ["epochcast"]
CMD ["--help"]
