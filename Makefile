# Two commands on a fresh machine with nothing but Python 3.10 or newer:
#   make demo   sets up what is missing and runs the quickstart study
#   make test   sets up what is missing and runs all checks
# The environment is made once; it is made again only when what it depends on has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.setup-done
TESTS ?= tests

# Tests start many processes, each of which would compile all it imports anew.
unexport PYTHONDONTWRITEBYTECODE

# Three test processes on two cores, as tests of real nodes wait; a second thread in each would only wait for its turn.
test test-slow: export OMP_NUM_THREADS := 1

.PHONY: demo test lint test-slow test-gpu test-kernels test-network mutants docs examples bench bench-check dist sbom clean

demo: $(READY)
	$(BIN)/walktalk run quickstart --out out/quickstart --resume

test: lint
	$(BIN)/pytest -n 3 --dist worksteal -m "not slow and not gpu and not network and not kernels" $(TESTS)

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks reproduction examples docs/site
	$(BIN)/ruff format --check --quiet src tests benchmarks reproduction examples docs/site
	$(BIN)/python tools/docstrings.py src/walktalk
	$(BIN)/python tools/words.py src/walktalk
	$(BIN)/mypy

test-slow: $(READY)
	$(BIN)/pytest -n 2 -m "slow" $(TESTS)

test-gpu: $(READY)
	$(BIN)/pytest -m "gpu" $(TESTS)

# What can be told of the GPU's code without one: kernels by Triton's interpreter beside torch, everything around them on
# a GPU that is none, and kernels by Triton's compiler. Without Triton kernels are skipped (CONTRIBUTING.md: which one to get).
FUSED := tests/learning/test_fused.py
ROWS := sgd_in_one_pass combinations_of_rows parts_of_rows a_part_of_rows rows_are_spread
test-kernels: export OMP_NUM_THREADS := 1
test-kernels: $(READY)
	TRITON_INTERPRET=1 $(BIN)/pytest -rs -m "not gpu" $(FUSED) tests/learning/test_attending.py
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -rs -m gpu -p tests.support.pretended_gpu -k "not compiled and not 130" \
	  tests/learning/test_pretended_gpu.py tests/learning/test_on_a_gpu.py tests/runtimes/test_on_a_gpu.py \
	  tests/learning/test_trainer.py tests/learning/test_adapters.py
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -rs -m gpu -p tests.support.pretended_gpu \
	  -k "$(subst $() , or ,$(ROWS))" $(FUSED)
	$(BIN)/pytest -rs -m kernels tests/learning/test_compiled_kernels.py

# A mutation run of one room: make mutants ROOM=ledger [MOST=200: so many, drawn] [AGAIN=1: anew, not on where it was]
MUTMUT := build/mutants-env/bin/mutmut
mutants: $(READY) $(MUTMUT)
	$(BIN)/python tools/mutants.py $(ROOM) --mutmut $(CURDIR)/$(MUTMUT) $(if $(MOST),--most $(MOST)) $(if $(AGAIN),--again)

# mutmut has an environment of its own, which sees the libraries of ours.
SITE := -c "import sysconfig; print(sysconfig.get_path('purelib'))"
$(MUTMUT): $(READY)
	$(BIN)/python -m venv build/mutants-env
	build/mutants-env/bin/pip install --quiet 'mutmut==3.8.*'
	$(BIN)/python $(SITE) > $$(build/mutants-env/bin/python $(SITE))/project.pth

test-network: $(READY)
	$(BIN)/pytest -m "network" $(TESTS)

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(READY)
	$(BIN)/python -m walktalk.studies.spec.reference > docs/spec.md
	$(BIN)/python -m walktalk.studies.algorithms > docs/algorithms.md
	$(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

# What the scripts print, as docs and tests have it; look at the difference before you keep it.
# Where a script fails, what is there stays.
examples: $(READY)
	for one in examples/*.py; do said=$$(cd /tmp && $(CURDIR)/$(BIN)/python $(CURDIR)/$$one) \
	  && printf '%s\n' "$$said" > examples/output/$$(basename $$one .py).txt; done

bench: $(READY)
	$(BIN)/walktalk bench simulator

# Ratios of CPU seconds, this commit's and the one's before it by turns: 1 if one has fallen by more than 5 %.
BEFORE ?= HEAD~1
bench-check: export OMP_NUM_THREADS := 1
bench-check: $(READY)
	$(BIN)/python benchmarks/ratios.py --against $(BEFORE)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "error: Python 3.10 or newer is needed; name one with: make PYTHON=python3.11"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[dev,peers]'
	touch $@

# What is released, in dist/: wheel and sources.
dist: $(READY)
	rm -rf dist
	$(BIN)/python -m pip install --disable-pip-version-check --quiet build twine
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

# An SBOM (CycloneDX) of all that `pip install 'walktalk[peers]'` brings: its environment has nothing else in it.
sbom: $(READY)
	rm -rf build/sbom && $(PYTHON) -m venv build/sbom && $(PYTHON) -m venv build/sbom-tool
	build/sbom-tool/bin/python -m pip install --disable-pip-version-check --quiet cyclonedx-bom
	build/sbom/bin/python -m pip install --disable-pip-version-check --quiet -c constraints.txt '.[peers]'
	build/sbom/bin/python -m pip uninstall --disable-pip-version-check --quiet --yes pip
	build/sbom-tool/bin/cyclonedx-py environment build/sbom --pyproject pyproject.toml --mc-type library \
	  --output-reproducible --of JSON -o build/walktalk.cdx.json

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build site dist
