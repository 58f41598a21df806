# A machine with Python >= 3.10, make and g++ needs nothing else: `make demo`, `make test`.

PYTHON ?= python3
# How many test processes; each may start a compiler.
JOBS ?= 2
# How many calls are made in each runtime.
CALLS ?= 1000
# With how many seeds the planted faults are looked for.
SEEDS ?= 1
BIN := .venv/bin
CXX_FILES := $(shell find opsmith emulators gallery tests benchmarks examples docs trophies \
  -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null)
# An operator's declaration is called as its folder is.
GALLERY := $(foreach folder,$(wildcard gallery/*/),$(wildcard $(folder)$(notdir $(folder:/=)).py))

# Python compiles a module at its first import, in place of every module when it is installed, which
# takes a minute. Where Python is told to write no bytecode, each process would compile it again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help

.PHONY: help
help:
	@echo "make demo      build the operator bev_pool_v2, and run the checks that find most"
	@echo "make test      lint, types, layers, and the tests that state every promise once"
	@echo "               PART=judge, PART=targets/jax: those of one part, the slow ones too"
	@echo "make test-all  the same, then the slow tests: what continuous integration runs"
	@echo "make lint      the same without tests"
	@echo "make format    let ruff and clang-format rewrite the files"
	@echo "make size      print how many lines each part of opsmith has"
	@echo "make docs      write the documentation's site to build/site, every link checked"
	@echo "make release   build opsmith's wheel with what is compiled once on a machine (GATES=2.10.0)"
	@echo "make clean     remove .venv and all caches of this folder"
	@echo
	@echo "Figures and long runs:"
	@echo "make gallery   run every check of every operator of the gallery"
	@echo "make faults    find every planted fault, beside what others find (SEEDS=10)"
	@echo "make causes    ask whether the first failure names the kind of each planted fault"
	@echo "make exact     prove the gallery, faults and right twins again, without a tolerance"
	@echo "make corpus    run every check of PyTorch's operators and ours: none may fail (SHARE=3/10)"
	@echo "make seeds     run right operators over 40 seeds: no check may fail"
	@echo "make fuzz      call operators with arguments of every kind, in every runtime (CALLS=10000)"
	@echo "make kills     kill builds, exports and checks, and look for what is left (KILLS=100)"
	@echo "make attacks   let kernels attack opsmith judge, in its sandbox and without"
	@echo "make kernelbench judge right and wrong kernels of tasks of KernelBench's level 1"
	@echo "make peers     measure opsmith beside SentryWard, triton-viz, ttsem and others (PEERS=cuda)"
	@echo "make adoption  draft declarations of PyTorch's operators, and check them unedited"
	@echo "make downstream check operators and run programs of others, which git fetches"
	@echo "make mutants   show which mistakes no test sees (PART=signature, operators, targets)"
	@echo "make test-long run what takes long, and every case of the slow tests"
	@echo "make bench     measure what the documentation states"
	@echo "make figures   measure it, write it into the pages, and draw the pictures again"
	@echo
	@echo "What this machine may lack:"
	@echo "make browser   install Chromium, for tests that open a page (Debian, Ubuntu)"
	@echo "make triton    install Triton (640 MB), and run the tests of kernels in it"
	@echo "make ray       install Ray (200 MB), and judge and check on a cluster of three nodes"
	@echo "make wheels    install Zig's compiler, and test wheels for every Linux and for Arm"
	@echo "make arm       call operators from wheels for Arm in QEMU (Debian, Ubuntu; 200 MB)"
	@echo "make nvcc      compile the CUDA kernels with nvcc; no GPU is needed"
	@echo "make npu       compile host code for NPUs against the headers of torch_npu's wheels"
	@echo "make abi       load and check libraries and wheels with other PyTorch versions"
	@echo "make gpu       build, check, sanitise and measure the CUDA kernels (a machine with a GPU)"

# The stamp is newer than what it was made from, so an edit of either file installs again.
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "opsmith needs Python 3.10 or newer; set PYTHON=... (found $$($(PYTHON) --version))" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev,onnx,view,jax,python,tvm-ffi,wheel]'
	@touch $@

.PHONY: demo
demo: .venv/installed
	$(BIN)/opsmith check --quick gallery/bev_pool_v2/bev_pool_v2.py

# With PART, all that stands below one folder of tests/, and no lint.
.PHONY: test
test: $(if $(PART),.venv/installed,lint)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal \
	  $(if $(PART),-m 'not long' tests/$(PART),-m 'not long and not slow')

.PHONY: test-all
test-all: test
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m 'slow and not long'

# The tests look at the built site: nothing fetched, the search, a phone, every page as Markdown.
.PHONY: docs
docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/python -m properdocs --quiet build
	OPSMITH_REQUIRE_SITE=1 $(BIN)/python -m pytest -q tests/docs/test_built.py
	@echo "build/site/index.html"

.PHONY: test-long
test-long: .venv/installed
	$(BIN)/python -m pytest -m long

# Every known way to deceive `opsmith judge`, and right kernels of unusual kinds.
.PHONY: attacks
attacks: .venv/installed
	$(BIN)/python -m pytest -n $(JOBS) -m 'long or slow or not slow' tests/judge/test_attacks.py

# Right kernels of 76 tasks, which `opsmith judge` accepts, and wrong ones of each, which it refuses.
.PHONY: kernelbench
kernelbench: .venv/installed
	$(BIN)/python benchmarks/kernelbench/kernelbench.py --jobs $(JOBS) --verbose

# Every check of every operator of the gallery, in every runtime: what a user would run. Then every
# case of its tests.
.PHONY: gallery
gallery: .venv/installed
	$(BIN)/opsmith check $(GALLERY)
	$(BIN)/opsmith check gallery/bev_pool_v2/in_ascendc.py --check ascendc-on-cpu
	$(BIN)/python -m pytest -n $(JOBS) -m 'long or slow or not slow' tests/gallery

.PHONY: fuzz
fuzz: .venv/installed
	$(BIN)/python tests/fuzz/fuzz_run.py --calls $(CALLS)

.PHONY: seeds
seeds: .venv/installed
	$(BIN)/python tests/checks/seeds.py

# PyTorch's operators, drafted by `opsmith adopt`, beside our own right ones; then the table of
# docs/explanation/corpus.md. What has a result in tests/corpus/results.txt is not run again.
SHARE ?= 1/1
.PHONY: corpus
corpus: .venv/installed
	$(BIN)/python tests/corpus/corpus_run.py draft
	$(BIN)/python tests/corpus/corpus_run.py check --seeds $(SEEDS) --share $(SHARE)
	$(BIN)/python tests/corpus/corpus_run.py table

# Operators and programs of three projects, at pinned commits; nothing of them is kept here.
.PHONY: downstream
downstream: .venv/installed
	$(BIN)/python tests/downstream/run.py

# mutmut writes the mutants; tests/mutants.py runs them, and tests/mutants.txt explains some.
.PHONY: mutants
mutants: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check mutmut==3.8.1
	$(BIN)/python tests/mutants.py $(or $(PART),signature) --children $(JOBS)

.PHONY: faults
faults: .venv/installed
	$(BIN)/python tests/faults/run.py --seeds $(SEEDS)

# The table in docs/explanation/causes.md: what the first failure of each planted fault says. What is
# told in tests/faults/told/told.jsonl is not asked again, unless CAUSES=--again; CAUSES="--groups native
# cuda" asks of some, CAUSES="--share 2/3" of a part.
CAUSES ?=
.PHONY: causes
causes: .venv/installed
	$(BIN)/python tests/faults/causes.py --write $(CAUSES)

# The table in docs/explanation/exact.md; tests/exact_table.py --write writes it. Then ten seeds of
# 126 faults below every tolerance, and of the right twins.
.PHONY: exact
exact: .venv/installed
	$(BIN)/python tests/exact_table.py
	$(BIN)/python -m pytest -q -m 'long or slow' tests/checks/numerics/exact/test_formulas.py

# Each by SIGKILL, SIGTERM and SIGINT in turn; tests/cli/test_kills.py does a few.
KILLS ?= 100
.PHONY: kills
kills: .venv/installed
	$(BIN)/python tests/kills.py $(KILLS)

# Each peer in an environment of its own below build/; then the tables of docs/explanation/why.md.
PEERS ?=
.PHONY: peers
peers: .venv/installed
	$(BIN)/python benchmarks/peers/run.py $(PEERS)

.PHONY: adoption
adoption: .venv/installed
	$(BIN)/python tests/adoption.py

# Triton is 640 MB, so that `make test` does without it; what does not need it is tested there.
.PHONY: triton
triton: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[triton]'
	OPSMITH_REQUIRE_TRITON=1 $(BIN)/python -m pytest tests/in_triton tests/kernels/languages/test_triton.py \
	  tests/docs/test_tutorial_pages.py

# Three nodes on this machine, made by Ray itself; one of them is killed.
.PHONY: ray
ray: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	OPSMITH_REQUIRE_RAY=1 $(BIN)/python -m pytest -m 'slow or not slow' tests/judge/test_on_ray.py \
	  tests/checks/cluster/test_operators_on_ray.py

# Installs nothing and needs no network: the Python is the machine's own, or whatever GPU_PYTHON is.
GPU_PYTHON ?= $(PYTHON)
.PHONY: gpu
gpu:
	$(GPU_PYTHON) benchmarks/gpu/run.py

# Zig's compiler builds wheels for every Linux, and for Arm.
.PHONY: wheels
wheels: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cross]'
	OPSMITH_REQUIRE_ZIG=1 $(BIN)/python -m pytest tests/wheels

# Python and PyTorch for Arm lie in build/arm; nothing of them is installed.
.PHONY: arm
arm: .venv/installed
	command -v qemu-aarch64 || { apt-get update && apt-get install -y --no-install-recommends qemu-user; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cross]'
	$(BIN)/python tests/wheels/arm.py build/arm

# Compiles, so no GPU is needed; PyTorch may be one without CUDA.
.PHONY: nvcc
nvcc: .venv/installed
	$(BIN)/python tests/nvcc.py
	$(BIN)/python -m pytest -m 'long or slow or not slow' -k a_cuda_kernel_compiles tests/kernels/toolchain

# Downloads two wheels of torch_npu (44 MB each) into folders of their own; nothing is installed.
.PHONY: npu
npu: .venv/installed
	$(BIN)/python tests/npu/headers.py

# opsmith's own wheel, with what is otherwise compiled once on a machine: programs, and gates for these
# releases of PyTorch and for the installed one. Its tag says for which Linux it is.
GATES ?= 2.10.0 2.14.1
.PHONY: release
release: .venv/installed
	$(BIN)/python tests/wheels/own_wheel.py $(addprefix --gates ,$(GATES))

# Zig's compiler builds wheels with gates for these versions, beside this machine's.
.PHONY: abi
abi: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cross]'
	$(BIN)/python tests/abi.py --versions 2.10.0 2.14.1 2.15.0

# Without it the tests of a report in a browser are skipped, and say so.
.PHONY: browser
browser: .venv/installed
	command -v chromium || { apt-get update && apt-get install -y --no-install-recommends chromium; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'

.PHONY: lint
lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --num-workers $(JOBS)
	$(BIN)/lint-imports --no-logo
	@echo "clang-format, $(words $(CXX_FILES)) files"
	@$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

.PHONY: format
format: .venv/installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	@$(BIN)/clang-format -i $(CXX_FILES)

# tests/test_size.py holds the sum to a number, which only falls.
.PHONY: size
size:
	@$(PYTHON) tests/test_size.py

.PHONY: bench
bench: .venv/installed
	$(BIN)/python benchmarks/call_overhead.py
	$(BIN)/python benchmarks/tvm_ffi_call.py
	$(BIN)/python benchmarks/validation.py
	$(BIN)/python benchmarks/vectors.py
	$(BIN)/python benchmarks/build_time.py
	$(BIN)/python benchmarks/check_time.py
	$(BIN)/python benchmarks/bev_pool_v2.py
	$(BIN)/python benchmarks/gallery_speed.py
	$(BIN)/python benchmarks/aotinductor.py
	$(BIN)/python benchmarks/in_onnxruntime.py
	$(BIN)/python benchmarks/in_jax.py
	$(BIN)/python benchmarks/python_module.py
	$(BIN)/python benchmarks/tvm_ffi_module.py

# Pictures and figures of one state of the code, so that neither is older than the other. What the
# benchmarks keep in benchmarks/figures.json is written into the pages.
.PHONY: figures
figures: export OPSMITH_KEEP_FIGURES := 1
figures: bench
	$(BIN)/python benchmarks/figures.py --count
	$(BIN)/python docs/site/pictures.py

.PHONY: clean
clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
