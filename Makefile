# make bench    measure the kernels beside cuBLAS (without a GPU: what can be known without one)
# make test     check them, on the GPU if there is one
#
# Both set everything up first: a virtual environment in .venv with pinned packages. VENV= uses the Python at hand.

PYTHON ?= python3
VENV ?= .venv
ARCH ?=
SUITE ?=
QUICK ?=
RUNS ?= 1

ifeq ($(VENV),)
  RUN := $(PYTHON)
  READY :=
else
  RUN := $(VENV)/bin/python
  READY := $(VENV)/ready
endif

# The tests run in a process a core where pytest-xdist is installed.
SHARED = $$($(RUN) -c "import xdist" 2> /dev/null && echo "-n auto --dist loadgroup")

export PYTHONDONTWRITEBYTECODE ?= 1

.PHONY: help setup bench test test-all check mlir mlir-opt clean

help:  ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1@\2/' | column -t -s@
	@echo "  ARCH=sm_80,sm_90a   which architectures to test      QUICK=1   bench in about a minute"
	@echo "  SUITE=main          which suite to bench             RUNS=3    bench so often, keeping three"
	@echo "  VENV=               use the Python at hand, install nothing"

setup: $(READY)  ## the virtual environment, which the others make too

bench: $(READY)  ## time the kernels beside cuBLAS; without a GPU, show what can be known without one
	@$(RUN) -m lowlevel bench $(if $(QUICK),--quick) $(if $(SUITE),--suite $(SUITE)) --runs $(RUNS)

test: $(READY)  ## the tests, three to six minutes on two cores
	@$(RUN) -m pytest $(SHARED) $(if $(ARCH),--arch $(ARCH))

test-all: $(READY)  ## the full product of shapes, configurations and architectures
	@$(RUN) -m pytest $(SHARED) --full $(if $(ARCH),--arch $(ARCH))

check: $(READY)  ## style: ruff's checks and format
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .

mlir: $(READY)  ## lower the MLIR kernels and write the PTX beside them (needs mlir-opt 22.1.8: make mlir-opt)
	@$(RUN) tools/lower_mlir.py

mlir-opt: $(READY)  ## add mlir-opt 22.1.8 to the virtual environment, 174 MB
	@$(RUN) -m pip --disable-pip-version-check install --quiet --editable '.[mlir]'

clean:  ## remove the virtual environments and what tests and builds leave behind
	rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Made anew when the packages asked for change. An interrupted set-up leaves no `ready` and starts again.
$(VENV)/ready: pyproject.toml tools/setup_venv.py
	@$(PYTHON) tools/setup_venv.py $(VENV)
