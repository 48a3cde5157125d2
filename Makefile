# Two commands do all the set-up in a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check install serve bench soak fuzz fuzz-api corpus docs image lock clean

demo: install
	$(BIN)/python -m benchmarks.demo

# Two processes on two cores disturb those tests that bound a time: what fails beside others is run once more, alone.
test: check
	$(BIN)/python -m pytest -n 2 --dist worksteal || $(BIN)/python -m pytest --last-failed --last-failed-no-failures none

check: .venv/.test
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports --no-logo

install: .venv/.service

serve: install
	$(BIN)/trtforge serve

bench: .venv/.test
	$(BIN)/python -m benchmarks

docs: .venv/.test
	$(BIN)/python -m tests.readme

# The steps of the Dockerfile in an empty folder, with packages from the registry; make test does it with those here.
image: .venv/.test
	IMAGE_FROM_REGISTRY=1 $(BIN)/python -m pytest --timeout 1200 tests/deploy/test_image.py

soak: .venv/.test
	$(BIN)/python -m benchmarks.soak && $(BIN)/python -m benchmarks --only uploads --only big_model

fuzz: .venv/.test
	$(BIN)/python -m benchmarks.fuzz

# The ONNX project's own test models; what is answered already is not asked again until the file is removed.
corpus: .venv/.test
	$(BIN)/python -m benchmarks.corpus --results corpus.jsonl

fuzz-api: .venv/.test
	TRTFORGE_FUZZ_EXAMPLES=300 $(BIN)/python -m pytest -q --timeout 3600 tests/system/test_openapi.py

.venv/.service: requirements.lock pyproject.toml client/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "trtforge needs Python 3.11 or newer: make PYTHON=python3.x")'
	$(PYTHON) -m venv .venv
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e client -e .
	touch $@

.venv/.test: .venv/.service requirements-test.lock tests/models.lock .venv/bindings-10 .venv/bindings-11
	$(PIP) --require-hashes -r requirements-test.lock
	$(PIP) --require-hashes --no-deps -r tests/models.lock
	touch $@

# TensorRT's own Python bindings, each in a folder of its own: both are called `tensorrt_bindings`.
.venv/bindings-%: tests/bindings-%.lock .venv/.service
	rm -rf $@
	$(PIP) --require-hashes --no-deps --target $@ -r $<
	touch $@

# Versions and hashes of everything, for every supported Python; no host is named.
UV := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate
lock: .venv/.test
	$(UV) --no-emit-package trtforge --extra build pyproject.toml -o requirements.lock
	$(UV) --no-emit-package trtforge --extra build --extra test -c requirements.lock pyproject.toml -o requirements-test.lock
	$(UV) --no-deps tests/models.in -o tests/models.lock
	$(UV) --no-deps tests/bindings-10.in -o tests/bindings-10.lock
	$(UV) --no-deps tests/bindings-11.in -o tests/bindings-11.lock

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
