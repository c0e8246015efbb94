# SPDX-License-Identifier: GPL-2.0
# The commands of this project; `make help` tells about them. Not a kernel Makefile: those are
# beside the files they build.

BALLOON := tools/testing/selftests/balloon
PYTHON := python3 -B

.DEFAULT_GOAL := help
.PHONY: help run check kunit mutants bench page-cache pressure stress series series-check \
	shell target module clean distclean python

help:
	@echo 'make run       show it: a guest gives memory to QEMU and takes it back to save a program'
	@echo '                 MEM=2048     MiB of the guest'
	@echo '                 TARGET=512   MiB the balloon leaves to it'
	@echo '                 leaves the timeline, its picture and the logs in out/run (about 2 minutes)'
	@echo 'make check     the tests (about 8 minutes on 2 CPUs)'
	@echo '                 TESTS="oom-deflate stats"  only these     LIST=1  list them'
	@echo '                 ALL=1   the longer ones too'
	@echo '                 KEEP=1  stop at the first failure in a guest, and keep that for a look'
	@echo '                 JOBS=2  guests at a time'
	@echo '                 MODULE=file.ko, file.c or stock  test another driver'
	@echo '                 KERNEL=debug  in guests of a kernel with KASAN, lockdep and the like, which'
	@echo '                         is built from source first (about 15 minutes)'
	@echo '                 ARCH=arm64-64k  in guests of another architecture or page size, with a'
	@echo '                         kernel that is cross-built first (about 10 minutes): arm64-64k, s390x'
	@echo '                 leaves the logs in out/check'
	@echo 'make kunit     the driver against devices that QEMU cannot play, in User Mode Linux'
	@echo '                 (about 6 minutes, later under 1)'
	@echo '                 TESTS="virtio_balloon_device.oom*"  only these'
	@echo '                 MODULE=file.c  test another driver'
	@echo '                 leaves the log in out/kunit'
	@echo 'make mutants   the driver broken on purpose in many ways: does a test of make kunit notice?'
	@echo '                 TESTS="free-before-tell wrong-queue"  only these     LIST=1  list them'
	@echo '                 (about 15 minutes)'
	@echo 'make bench     how fast memory moves, the kernel'"'"'s driver beside this one (about 30 minutes)'
	@echo '                 QUICK=1  one round of the main rows (3 minutes)     ROUNDS=5'
	@echo '                 ROWS="untouched counts"  only these'
	@echo '                 leaves the picture and the figures in out/bench'
	@echo 'make page-cache  page cache against the balloon: this driver, and one that deflates from a'
	@echo '                 shrinker, as it once was (about 6 minutes)'
	@echo '                 SECONDS=90  how long the reader goes on where the target is not reached'
	@echo '                 leaves the picture and the figures in out/page-cache'
	@echo 'make pressure  guests that are short of memory: this driver beside the kernel'"'"'s own, against'
	@echo '                 an unballooned guest (about 45 minutes)'
	@echo '                 SCENARIOS="u1 fork"  only these of u1 heap huge u6 u7 u8 rest fork'
	@echo '                 RUNS=5      of each program; the median counts'
	@echo '                 ROUNDS=20   how often a program starts in mid-inflate'
	@echo '                 SECONDS=60  how long at a target that cannot be met'
	@echo '                 leaves the picture and the figures in out/pressure'
	@echo 'make stress    all that can happen to a balloon, at random and at once'
	@echo '                 MINUTES=10     SEED=...  a number that was printed, for the same once more'
	@echo '                 leaves what was done, and the guest'"'"'s log, in out/stress'
	@echo 'make series    this repository as a patch series for the kernel, signed off by you: out/series'
	@echo 'make series-check  the series, to git am, checkpatch, sparse and other checkers, and built in'
	@echo '                 many configurations, for several architectures (about 30 minutes)'
	@echo '                 TESTS="checkpatch sparse"  only these     LIST=1  list them'
	@echo 'make shell     a shell in a guest with the module loaded (MEM=2048)'
	@echo 'make target    from another terminal: what the guest of make shell is to keep (MIB=700)'
	@echo 'make module    build out/virtio_balloon.ko for the guest kernel of the other commands, or'
	@echo '                 KDIR=/lib/modules/$$(uname -r)/build  for the kernel built or installed there'
	@echo 'make clean     remove what the commands left in this directory'
	@echo 'make distclean the same, and the downloads and builds in ~/.cache/virtio-balloon'
	@echo
	@echo 'All that boot a guest: QEMU=...   another qemu-system-x86_64'
	@echo '                       KREL=...   another kernel release, as 6.12.9+deb12-amd64'
	@echo 'All of them: YES=1      install missing packages without asking; nor do they ask where the'
	@echo '                        input is no terminal'

# A misspelt variable would change nothing, and nobody would notice.
given = $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
strange = $(filter-out $(TAKES) YES,$(given))
guest := QEMU KREL

python:
	$(if $(strange),$(error make $(firstword $(MAKECMDGOALS)) takes no $(strange:%=%=); it \
		takes $(addsuffix =,$(TAKES) YES)))
	@$(BALLOON)/need-python.sh

run: TAKES := MEM TARGET $(guest)
run: python
	@$(PYTHON) $(BALLOON)/run.py

check: TAKES := TESTS LIST ALL KEEP JOBS MODULE KERNEL ARCH $(guest)
check: python
	@$(PYTHON) $(BALLOON)/check.py

kunit: TAKES := TESTS MODULE
kunit: python
	@$(PYTHON) $(BALLOON)/kunit.py

mutants: TAKES := TESTS LIST
mutants: python
	@$(PYTHON) $(BALLOON)/mutants.py

bench: TAKES := QUICK ROUNDS ROWS $(guest)
bench: python
	@$(PYTHON) $(BALLOON)/speed.py

page-cache: TAKES := SECONDS $(guest)
page-cache: python
	@$(PYTHON) $(BALLOON)/page_cache.py

pressure: TAKES := SCENARIOS RUNS ROUNDS SECONDS $(guest)
pressure: python
	@$(PYTHON) $(BALLOON)/pressure.py

stress: TAKES := MINUTES SEED $(guest)
stress: python
	@$(PYTHON) $(BALLOON)/stress.py

series: TAKES :=
series: python
	@$(PYTHON) $(BALLOON)/series.py

series-check: TAKES := TESTS LIST
series-check: python
	@$(PYTHON) $(BALLOON)/series_check.py

shell: TAKES := MEM $(guest)
shell: python
	@$(PYTHON) $(BALLOON)/shell.py shell

target: TAKES := MIB
target: python
	@$(PYTHON) $(BALLOON)/shell.py target

module: TAKES := KDIR KREL
module: python
	@$(PYTHON) $(BALLOON)/setup.py

clean:
	rm -rf out
	find . -name __pycache__ -prune -exec rm -rf {} +

distclean: clean
	rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/virtio-balloon"
