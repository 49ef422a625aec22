# Needs Python >= 3.10 and make, nothing else. Another interpreter: make test PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e
PYTEST_OPTIONS ?= -n 2
DEMO_OPTIONS ?=

.PHONY: demo test lint bench coverage random compat mutations clean

# Trains one GPT per constraint on the source text of the Python standard library, then shows what they learned.
demo: $(VENV)/.train
	$(BIN)/python examples/train_gpt.py --constraint shc --out runs/demo-shc $(DEMO_OPTIONS)
	$(BIN)/python examples/train_gpt.py --constraint mhc --out runs/demo-mhc $(DEMO_OPTIONS)
	$(BIN)/python examples/compare_runs.py runs/demo-shc runs/demo-mhc

# timm imports torchvision, whose PyPI build for Linux does not load beside a torch for CPU and would then break
# transformers too: both stay out of the environment, and the tests that need them run once more, with them in sight.
test: lint $(VENV)/.timm
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_OPTIONS)
	OMP_NUM_THREADS=1 PYTHONPATH=$(VENV)/timm $(BIN)/python -m pytest tests/wrapping -k timm

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

coverage: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_OPTIONS) --cov --cov-report=term-missing

# Ten thousand sites of every kind, drawn from a seed, forward and backward; what breaks a promise is printed.
random: $(VENV)/.test
	$(BIN)/python tests/random_configurations.py --count 10000 --seed 1

# Plants classic faults in copies of the tree and checks that the tests notice each of them; writes docs/testing.md.
mutations: $(VENV)/.test
	$(BIN)/python tools/mutations.py --write

bench: $(VENV)/.bench
	$(BIN)/python -m pytest tests/benchmarks --benchmark-json=$(VENV)/benchmarks.json -W default
	$(BIN)/python tests/benchmarks/report.py $(VENV)/benchmarks.json

# Other interpreters and builds of torch, as far as this machine has them; gigabytes where torch comes with CUDA.
compat: $(VENV)/.created
	$(BIN)/python tools/compatibility.py

clean:
	rm -rf $(VENV) build dist

# An empty file per extra says that it is installed, so that a second run starts at once.
$(VENV)/.train $(VENV)/.test $(VENV)/.bench: $(VENV)/.%: pyproject.toml constraints.txt $(VENV)/.created
	$(INSTALL) '.[$*]'
	@touch $@

$(VENV)/.timm: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps --upgrade --target $(VENV)/timm timm torchvision
	@touch $@

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { echo "hyperconn needs Python >= 3.10, and there is no $(PYTHON): try make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "hyperconn needs Python >= 3.10, $(PYTHON) is $$($(PYTHON) --version 2>&1): try make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@
