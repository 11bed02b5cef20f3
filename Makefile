# Every target does the set-up it needs; `make predict` and `make test` are all that a newcomer types.
PYTHON ?= python3
TORCH ?= torch==2.13.0
TORCHVISION ?= torchvision==0.28.0
# Extras that tests run.
TESTED := api,client,fleet,gpu,mcp,offers,onnx,plots,postgresql
VENV := .venv
BIN := $(VENV)/bin
# The PyTorch comparisons run on this Python alone; the core's tests run on 3.11 to 3.13.
HAS_TORCH := $(shell $(PYTHON) -c 'import sys; print(int(sys.version_info[:2] == (3, 11)))')

# Prints what PyTorch with CUDA takes, where pip would install that: on Linux, if its indexes have no CPU build of this version.
SAY_SIZE_OF_CUDA = case "$$(uname) $(TORCH)" in Linux*cpu*) ;; Linux*) \
  $(BIN)/python -m pip show --quiet torch 2>/dev/null || \
  $(BIN)/python -m pip index versions torch 2>/dev/null | grep -qF '$(patsubst torch==%,%,$(TORCH))+cpu' || \
  echo "Installing PyTorch with CUDA, 5.4 GB; a CPU build is enough: make setup PIP_EXTRA_INDEX_URL=<index with $(TORCH)+cpu>";; esac

.PHONY: predict setup check test lint bench figures model notebooks docs containers installed release clean apt study

# One CNN on three current GPUs, without any measurement of yours: which to rent within US$ 150 and two days.
DEMO := compare resnet50 --data-set imagenet --epochs 90 --gpu L4 --gpu "A100 80GB PCIe" --gpu "H100 SXM" \
  --budget 150 --deadline 2d

predict: $(VENV)/.core
	@$(BIN)/epochcast $(DEMO)

# The founding study on this machine, from nothing to a service that answers by it: ten minutes on a laptop's processor.
STUDY := build/study
DEVICE ?= cpu
study: $(VENV)/.study
	mkdir -p $(STUDY)
	$(BIN)/epochcast profile --framework chainer --device $(DEVICE) --preset founding --batch-size 4,16,64 --time-limit 3min --out $(STUDY)/proxies.csv
	$(BIN)/epochcast profile --framework chainer --device $(DEVICE) --preset targets:lenet5@28,vgg_cifar@32 --batch-size 4,8,16,32 --longest 20s --time-limit 4min --out $(STUDY)/cnns.csv
	$(BIN)/epochcast fit $(STUDY)/proxies.csv $(STUDY)/cnns.csv --method proxy-times --method gpu-specs --out $(STUDY)/model.json
	$(BIN)/epochcast predict vgg_cifar@32 --gpu "$$(tail -n 1 $(STUDY)/cnns.csv | cut -d , -f 5)" --batch-size 24 --framework chainer --model $(STUDY)/model.json --method proxy-times
	$(BIN)/epochcast serve --model $(STUDY)/model.json

$(VENV)/.study: pyproject.toml $(VENV)/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[api]' 'setuptools>=70.1,<82' wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation chainer==7.8.1
	@touch $@

setup: $(VENV)/.dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

# Chainer's setup.py needs pkg_resources, gone from setuptools 82, so it is installed in two steps.
# PyTorch and torchvision are installed together, so that pip refuses versions that are no pair.
$(VENV)/.dev: pyproject.toml $(VENV)/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1' # which knows groups
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(TESTED)]' --group dev
ifeq ($(HAS_TORCH),1)
	@$(SAY_SIZE_OF_CUDA)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH) $(TORCHVISION)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group callbacks
endif
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'setuptools>=70.1,<82' wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation chainer==7.8.1
	@touch $@

# Installs the Debian packages that tests need when it may, else says what to type; other systems bring their own.
apt:
	@if ! command -v dpkg >/dev/null; then echo "No Debian here: apt.txt names what tests need."; exit 0; fi; \
	missing=$$(grep -v '^#' apt.txt | while read -r p; do dpkg -s "$$p" >/dev/null 2>&1 || echo "$$p"; done); \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq $$missing >/dev/null; \
	  else echo "Missing Debian packages; type: sudo apt-get install -y" $$missing; exit 1; fi; \
	fi

# Without the bytecode that some environments forbid, each of a thousand processes compiles the product and its tests anew.
test check: export PYTHONDONTWRITEBYTECODE :=

test: apt $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

REDOCLY := build/redocly/node_modules/.bin/redocly

$(REDOCLY): $(VENV)/.dev
	PATH="$(CURDIR)/$(BIN):$$PATH" npm install --silent --no-fund --no-audit --prefix build/redocly @redocly/cli@2.77.0
	@touch $@

# What is worth to run before each commit: no service, browser, framework or notebook, and no long test.
check: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not framework and not slow" tests/predictor_tests tests/integrity_tests

lint: $(VENV)/.dev $(REDOCLY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python .ci/lines.py
	$(BIN)/mypy
	$(BIN)/mypy tests/epochcast_tests/typed_calls.py
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile
	EPOCHCAST_STORE= $(BIN)/python -c 'import json; from api.main import create_app; print(json.dumps(create_app().openapi()))' > build/openapi.json
	PATH="$(CURDIR)/$(BIN):$$PATH" REDOCLY_TELEMETRY=off $(REDOCLY) lint --max-problems 20 build/openapi.json

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/service.py

# Every judged figure beside its goal and its committed value: hours of one core, kept in build/figures.
# FIGURES="--figure same-chip --figure chips" asks for some of them.
figures: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/figures.py --jobs 2 $(FIGURES)

# Refits the shipped default on the published measurements (docs/decisions/, datasets/README.md).
# It says first whether the tables are the released ones, and at the end how far the new numbers lie from the old. One thread, so that the last
# digit does not depend on the number of cores.
model: export OMP_NUM_THREADS := 1
model: $(VENV)/.dev
	@test -n "$$EPOCHCAST_PUBLISHED_DATA" || { echo "Set EPOCHCAST_PUBLISHED_DATA to the folder of published measurements (datasets/README.md)."; exit 1; }
	$(BIN)/epochcast data list --to "$$EPOCHCAST_PUBLISHED_DATA"
	rm -rf build/models_before && mkdir -p build && cp -R datasets/models build/models_before
	$(BIN)/epochcast evaluate --jobs 2 --no-plots --out build/accuracy
	$(BIN)/epochcast fit --published "$$EPOCHCAST_PUBLISHED_DATA" --accuracy build/accuracy/summary.csv --out datasets/models/default.json
	$(BIN)/python benchmarks/founding.py --mode tf32 --out build/founding.csv
	$(BIN)/epochcast fit --methods-only --published "$$EPOCHCAST_PUBLISHED_DATA" --accuracy build/accuracy/summary.csv --accuracy build/founding.csv --out datasets/models/default.json
	$(BIN)/python benchmarks/figures.py --card
	$(BIN)/python benchmarks/fit_ratios.py --out datasets/models/ratios.json
	$(BIN)/python benchmarks/refit_differences.py build/models_before datasets/models

# Runs the notebooks, which keep no outputs, and writes what they show to build/notebooks, for the site.
notebooks: $(VENV)/.dev
	$(BIN)/python notebooks/render.py

# Builds the documentation site into build/site, without any network; its first page is build/site/index.html.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Read build/site/index.html."

# Builds the service's image and asks it, with Docker: for changes of Dockerfile and compose.yaml.
containers:
	.ci/containers

# Installs the checkout's wheel, with `api`, in a fresh environment outside the checkout, and asks it what a newcomer asks.
installed: apt
	.ci/installed $(PYTHON)

# Builds sdist and wheel into dist/, and asks the first questions of them in clean environments of every supported Python here.
release:
	.ci/release

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
