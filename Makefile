# demo test test-flower ctest bench bench-quick bench-compare docs lint clean; each makes the .venv that it needs.
# Prerequisites: gcc make python3 with venv and headers.

VENV = .venv
BIN = $(VENV)/bin
PYTHON = python3
ifeq ($(origin CC),default)
CC = gcc
endif

BUILD_REQUIRES = "setuptools>=77" "cython>=3.1" # as in pyproject.toml
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check

CORE = $(wildcard csrc/*.c)
CORE_HEADERS = $(wildcard csrc/*.h csrc/*.inc csrc/tests/*.h)
CTESTS = $(wildcard csrc/tests/test_*.c)
DOORS = $(wildcard fedcore/_kernels/*.pyx fedcore/_kernels/*.pxd)
KERNELS = $(basename $(notdir $(wildcard fedcore/_kernels/*.pyx)))
TYPED = $(wildcard fedcore/federation fedcore/*/protocol.py)

.PHONY: demo test test-flower ctest ctest-c ctest-python bench bench-quick bench-compare docs lint clean
.DELETE_ON_ERROR:
.SECONDARY: # keep objects

demo: $(VENV)/.built
	mkdir -p build
	$(BIN)/fedcore demo --report build/demo.html

# make test ARGS="tests/kernels -k uniform"
test: $(VENV)/.built
	$(BIN)/python -m pytest $(ARGS)

# A real SuperLink and its SuperNodes on this machine, all ended again.
test-flower: $(VENV)/.flower $(VENV)/.built
	$(BIN)/python -m pytest tests/loopback $(ARGS)

bench: $(VENV)/.built
	$(BIN)/python -m pytest bench --benchmark-autosave $(ARGS)

bench-quick: $(VENV)/.built
	$(BIN)/python -m pytest bench --benchmark-min-rounds=1 --benchmark-max-time=0.1 $(ARGS)

# The rivals side by side, ratios with their spread; a few minutes on an idle machine.
bench-compare: $(VENV)/.built
	$(BIN)/python bench/compare_mtl_svm.py $(ARGS)
	$(BIN)/python bench/rounds_mtl_svm.py

# The site, in build/docs/index.html; a warning is an error.
docs: $(VENV)/.docs $(VENV)/.built
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs

# --- environment and build ---

# No isolation: a later rebuild of the kernels uses the same setuptools and Cython.
$(VENV)/.installed: pyproject.toml setup.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) $(BUILD_REQUIRES)
	$(PIP_INSTALL) --no-build-isolation --editable ".[test]"
	touch $@

$(VENV)/.built: $(VENV)/.installed $(CORE) $(CORE_HEADERS) $(DOORS)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

$(VENV)/.flower: $(VENV)/.installed
	$(PIP_INSTALL) --no-build-isolation --editable ".[flower]"
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(PIP_INSTALL) --no-build-isolation --editable ".[docs]"
	touch $@

$(VENV)/.lint: $(VENV)/.installed
	$(PIP_INSTALL) --no-build-isolation --editable ".[lint]"
	touch $@

# --- lint ---

lint: $(VENV)/.lint $(VENV)/.built
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run -Werror $(CORE) $(CORE_HEADERS) $(CTESTS)
	$(BIN)/clang-tidy --quiet $(CORE) $(CTESTS) -- -std=c11 -Icsrc
	PATH="$(abspath $(BIN)):$$PATH" cython-lint $(DOORS) # it calls pycodestyle by name
	$(BIN)/python -m mypy.stubtest --mypy-config-file pyproject.toml $(addprefix fedcore._kernels.,$(KERNELS))
	$(if $(TYPED),$(BIN)/mypy $(TYPED))

# --- the kernels under sanitizers: the C tests, then the doors ---

SANITIZE = -fsanitize=address,undefined -fno-sanitize-recover=all
STRICT = -std=c11 -O1 -g -Wall -Wextra -Wconversion -Wshadow -Wpedantic -Werror
ASAN = build/asan
LIBRARY = $(shell $(CC) -print-file-name=$(1).so)
ASAN_ENV = PYTHONPATH=$(ASAN)/lib PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 \
	LD_PRELOAD="$(call LIBRARY,libasan) $(call LIBRARY,libubsan)"

ctest: ctest-c ctest-python

ctest-c: $(CTESTS:csrc/tests/%.c=build/ctest/%)
	@set -e; for program in $^; do echo $$program; $$program; done

build/ctest/%.o: csrc/%.c $(CORE_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(STRICT) $(SANITIZE) -Icsrc -c $< -o $@

build/ctest/test_%: build/ctest/tests/test_%.o $(CORE:csrc/%.c=build/ctest/%.o)
	$(CC) $(SANITIZE) $^ -o $@ -lm

# A copy of the package with kernels of its own; those in place stay as they are.
ctest-python: $(VENV)/.built
	CC="$(CC)" CFLAGS="$(SANITIZE)" FEDCORE_DEBUG=1 $(BIN)/python setup.py --quiet \
		build --build-base $(ASAN) --build-lib $(ASAN)/lib
	$(ASAN_ENV) $(BIN)/python -P -c \
		"import fedcore as f; assert '$(ASAN)' in f.__file__, f.__file__"
	$(ASAN_ENV) $(BIN)/pytest tests/kernels --capture=sys -p no:cacheprovider $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info fedcore/_kernels/*.so .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
