# SPDX-License-Identifier: GPL-2.0
"""`make kunit`: the driver's KUnit tests, against a device played by a fake, in User Mode Linux.

The kernel source is unpacked into the cache once, our files are laid over it, and the kernel's own
tools/testing/kunit/kunit.py builds and runs it. Only what changed is laid over again, so that a
second run compiles one file. The clock is virtual: nobody waits out the driver's timeouts.

Status 0: all tests passed, and the log has no warning of the kernel. 1: some did not. 2: it could
not be run.
"""

import fcntl
import os
import re
import shutil
import sys
import time
from pathlib import Path

import setup
from setup import SetupError

OUT = setup.OUT / "kunit"
TESTS = "drivers/virtio/tests"
DRIVER = "drivers/virtio/virtio_balloon.c"
# The clock jumps when all are idle.
KERNEL_ARGS = ["time-travel=inf-cpu", "kunit.stats_enabled=0"]
# Kernels to boot: what it is told besides, and which tests are of interest there.
BOOTS = [((), None), (("init_on_free=1",), "virtio_balloon_odd.odd_poison*")]

ALL = "virtio_balloon*"

KTAP = re.compile(r"^\s*(KTAP version|1\.\.\d+|(not )?ok \d+|#)")
RESULT = re.compile(r"^( *)(not )?ok \d+ ")
# What the kernel says when something is wrong that no test asked about.
SPLAT = re.compile(r"WARNING: |BUG: |KASAN: |INFO: task .* blocked|possible recursive locking|"
                   r"sleeping function called|Kernel panic|UBSAN: ")


def tree():
    """The kernel source that our files are laid over: nobody else's, as it changes."""
    packed = Path(f"/usr/src/{setup.SOURCE_PACKAGE}.tar.xz")
    if not packed.exists():
        raise SetupError(f"{packed} is not there (package {setup.SOURCE_PACKAGE})")

    def unpack(new):
        setup.long_run("Unpacking the kernel source (once, a minute)",
                       ["tar", "-xJf", packed, "-C", new, "--strip-components=1"],
                       setup.CACHE / "unpack.log")

    state = packed.stat()
    name = setup.digest("kunit", state.st_size, int(state.st_mtime))
    return setup.cached(setup.CACHE / "source" / f"kunit-{name}", unpack)


def lay(text, place):
    """Write a file, unless it is there already: make goes by the time it was changed."""
    data = text.encode()
    if not place.exists() or place.read_bytes() != data:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def original(source, name):
    """A file of the kernel as it was before anything was laid over it."""
    kept = source / "before-kunit" / name
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, kept)
    return kept.read_text()


def without_comment(text):
    return "\n".join(line for line in text.splitlines() if not line.startswith("#")).strip() + "\n"


def kconfig(source):
    """The kernel's drivers/virtio/Kconfig, with our entries in place of its own one."""
    name = "drivers/virtio/Kconfig"
    ours = without_comment((setup.ROOT / name).read_text())
    text, found = re.subn(r"^config VIRTIO_BALLOON\n.*?(?=^\S)", lambda _: ours + "\n",
                          original(source, name), flags=re.M | re.S)
    if found != 1:
        raise SetupError(f"{name} of this kernel has {found} entries for the balloon, not one")
    return text


def makefile(source):
    name = "drivers/virtio/Makefile"
    ours = without_comment((setup.ROOT / name).read_text())
    text, found = re.subn(r"^obj-\$\(CONFIG_VIRTIO_BALLOON\).*\n", lambda _: ours,
                          original(source, name), flags=re.M)
    if found != 1:
        raise SetupError(f"{name} of this kernel has {found} lines for the balloon, not one")
    return text


def overlay(source, driver):
    """Our files in the kernel's places; another driver, if one is to be tested."""
    files = [*(setup.ROOT / "include").glob("**/*.h"), *(setup.ROOT / "drivers/virtio").glob("*.h"),
             *(setup.ROOT / TESTS).glob("*.[ch]")]
    for file in files:
        lay(file.read_text(), source / file.relative_to(setup.ROOT))
    lay(driver.read_text(), source / DRIVER)
    lay(kconfig(source), source / "drivers/virtio/Kconfig")
    lay(makefile(source), source / "drivers/virtio/Makefile")


def kunit(source, build, command, *args):
    return [sys.executable, "-B", source / "tools/testing/kunit/kunit.py", command,
            f"--build_dir={build}", *args]


def build_kernel(source, build):
    build.mkdir(parents=True, exist_ok=True)
    warm = (build / "linux").exists()
    setup.long_run("Building the tests" if warm else
                   "Building a User Mode Linux with the tests (once, some minutes)",
                   kunit(source, build, "build", f"--jobs={os.cpu_count()}",
                         f"--kunitconfig={setup.ROOT / TESTS}"),
                   setup.CACHE / "kunit-build.log")


def boot(source, build, which, more, seconds):
    """The kernel's whole log, and whether kunit.py is content with it."""
    args = [f"--kernel_args={arg}" for arg in (*KERNEL_ARGS, *more)]
    said, log = setup.CACHE / "kunit-run.log", build / "test.log"
    log.unlink(missing_ok=True)
    try:
        setup.long_run(" ".join(["Running the tests", *more]),
                       kunit(source, build, "exec", f"--timeout={seconds}", *args, which), said)
        content = True
    except SetupError:
        content = False
    if not log.exists():
        raise SetupError(f"the tests did not run; see {said}")
    return log.read_text(errors="replace"), content


def run_kernels(source, build, which, seconds):
    """The same of all boots together."""
    logs, content = [], True
    for more, interest in BOOTS:
        if interest and which != ALL and "poison" not in which:
            continue
        log, good = boot(source, build, interest or which, more, seconds)
        logs.append(log)
        content &= good
    return "\n".join(logs), content


def ktap(log):
    return [line for line in log.splitlines() if KTAP.match(line)]


def splats(log):
    return [line for line in log.splitlines() if SPLAT.search(line)]


def count(lines):
    """(passed, failed, skipped) of the innermost tests: a case, or each of its parameters."""
    totals, inside = {"pass": 0, "fail": 0, "skip": 0}, 0
    for line in lines:
        found = RESULT.match(line)
        if not found:
            continue
        depth = len(found[1])
        if depth == 0 or (depth == 4 and inside):
            inside = 0
            continue
        inside = inside + 1 if depth == 8 else 0
        totals["fail" if found[2] else "skip" if "# SKIP" in line else "pass"] += 1
    return totals.values()


def run(driver, which, seconds=240):
    """The kernel's log with the tests of that driver, and whether kunit.py is content with it."""
    source = tree()
    build = setup.CACHE / "kunit" / setup.digest(str(source), setup.compiler())
    with open(source / ".kunit-lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        overlay(source, driver)
        build_kernel(source, build)
        return run_kernels(source, build, which, seconds)


def parse_arguments():
    parser = setup.parser("kunit.py", __doc__)
    parser.add_argument("tests", nargs="?", default=os.environ.get("TESTS") or ALL,
                        help="only these: a pattern SUITE.CASE (TESTS=, %(default)s)")
    parser.add_argument("--module", default=os.environ.get("MODULE") or str(setup.DRIVER),
                        metavar="FILE.c", help="test another driver (MODULE=)")
    return parser.parse_args()


def main():
    args = parse_arguments()
    driver = Path(args.module)
    if driver.suffix != ".c" or not driver.is_file():
        raise SetupError(f'MODULE="{args.module}" must be a driver\'s source file (.c)')
    setup.ensure("kunit")
    setup.own(OUT)
    begun = time.monotonic()
    log, content = run(driver, args.tests)
    (OUT / "kernel.log").write_text(log)
    lines, bad = ktap(log), splats(log)
    (OUT / "results.ktap").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    for line in bad:
        print(f"# the kernel says: {line.strip()}")
    passed, failed, skipped = count(lines)
    print(f"# {passed} passed, {failed} failed, {skipped} skipped, {len(bad)} warnings of the "
          f"kernel, {time.monotonic() - begun:.0f} s; its log: "
          f"{(OUT / 'kernel.log').relative_to(setup.ROOT)}")
    return 0 if content and passed and not failed and not bad else 1


if __name__ == "__main__":
    setup.guarded(main)
