# SPDX-License-Identifier: GPL-2.0
"""`make check`: runs the tests, those of the source here and the others in real guests.

A test that runs in a guest is a program there, and its result is what it prints over the guest's
own channel: a plan, a line for each thing tried, and an exit code. The kernel log of that time must
be clean. Tests with the same kind of guest share one, one after the other; a guest in which a test
failed is not used again.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import arch as architectures
import hostside
import kernels
import ktap
import setup
import shell
import tests
import vm
from ktap import Outcome
from setup import SetupError, say
from static_checks import Failed, Skipped

OUT = setup.OUT / "check"
# A task that waits so long for the driver shows in the log; else it would be after two minutes. The
# other is a little more than the kernel's 10 s: on a busy machine an emulated CPU may stand still.
WATCHDOGS = "sysctl.kernel.hung_task_timeout_secs=40 watchdog_thresh=20"
DISK = "disk.img"
STEP_SECONDS = 480          # the programs bound each of their tests themselves, by 4 minutes
BOOT_WORTH = 6              # a boot takes about so many seconds of testing
KEEP_SECONDS = 3600
MAX_JOBS = 16


# --- what was asked for -----------------------------------------------------------------------

def parse_arguments():
    default = os.environ.get
    parser = setup.parser("check.py", __doc__)
    parser.add_argument("--tests", default=default("TESTS") or "", metavar="NAMES",
                        help="only these, separated by spaces (TESTS=)")
    parser.add_argument("--list", action="store_true", default=setup.flag("LIST"),
                        help="list the tests and run none (LIST=1)")
    parser.add_argument("--all", action="store_true", default=setup.flag("ALL"),
                        help="the longer ones too (ALL=1)")
    parser.add_argument("--keep", action="store_true", default=setup.flag("KEEP"),
                        help="stop at the first failure in a guest and keep that running (KEEP=1)")
    parser.add_argument("--jobs", default=default("JOBS") or "2", metavar="N",
                        help="guests at a time (JOBS=, %(default)s)")
    parser.add_argument("--module", default=default("MODULE") or "", metavar="FILE",
                        help="test another driver: a .ko, a .c to build, or the word stock (MODULE=)")
    parser.add_argument("--kernel", default=default("KERNEL") or "", metavar="NAME",
                        help="guests run a kernel built from source: "
                             + ", ".join(kernels.VARIANTS) + " (KERNEL=)")
    parser.add_argument("--arch", default=default("ARCH") or "", metavar="NAME",
                        help="guests of another architecture, with a kernel built from source: "
                             + ", ".join(architectures.FOREIGN) + " (ARCH=)")
    vm.add_qemu(parser)
    return parser.parse_args()


def check_arguments(args):
    if not re.fullmatch("[0-9]+", args.jobs) or not 1 <= int(args.jobs) <= MAX_JOBS:
        raise SetupError(f'JOBS="{args.jobs}" must be a number from 1 to {MAX_JOBS}')
    args.jobs = int(args.jobs)
    if args.module and args.module != "stock":
        if not args.module.endswith((".ko", ".c")) or not Path(args.module).is_file():
            raise SetupError(f'MODULE="{args.module}" must be a module (.ko) or a driver (.c) '
                             "that exists, or the word stock")
        args.module = str(Path(args.module).resolve())
    if args.kernel and args.kernel not in kernels.VARIANTS:
        raise SetupError(f'KERNEL="{args.kernel}" must be one of '
                         + ", ".join(kernels.VARIANTS))
    args.arch = check_arch(args)
    return tests.choose(args.tests.replace(",", " ").split(), args.all, args.arch)


def check_arch(args):
    if args.arch in ("", architectures.HOST.name):
        return architectures.HOST
    if args.arch not in architectures.FOREIGN:
        raise SetupError(f'ARCH="{args.arch}" must be one of ' + ", ".join(architectures.FOREIGN))
    if args.kernel:
        raise SetupError("KERNEL= and ARCH= do not go together: each names a kernel")
    return architectures.FOREIGN[args.arch]


def forget_make():
    """What our own `make` was given is not for those that build kernels and programs."""
    for name in ("ARCH", "CROSS_COMPILE", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS"):
        os.environ.pop(name, None)


def print_list(chosen):
    for test in chosen:
        where = "in a guest" if test.parts else "here"
        print(f'{test.name:20} {where:10}  {test.about}' + (" (ALL=1)" if test.slow else ""))


# --- what guests are made of ------------------------------------------------------------------

def build_programs(arch):
    """{name: path} of the test programs, by their own Makefile."""
    found, why = setup.source()
    if found is None:
        raise Skipped(f"the test programs need the kernel's test harness: {why}")
    harness = found / "tools/testing/selftests"
    sources = sorted((setup.HERE / "guest").glob("*.[ch]"))
    headers = [harness / "kselftest_harness.h", harness / "kselftest.h",
               setup.ROOT / "include/uapi/linux/virtio_balloon.h"]
    key = setup.digest(setup.HERE / "Makefile", setup.compiler(arch.cross), *sources, *headers)

    def build(new):
        setup.long_run("Building the test programs",
                       ["make", "-C", setup.HERE, f"-j{os.cpu_count()}", f"OUTPUT={new}",
                        f"KSFT_HARNESS_DIR={harness}", *arch.make_args()],
                       setup.CACHE / "programs.log")

    built = setup.cached(setup.CACHE / "build" / f"programs-{key}", build)
    return {path.name: path for path in built.iterdir() if path.suffix != ".o"}


def build_kernel(name, arch):
    if not name and arch == architectures.HOST:
        return setup.kernel()
    setup.ensure("kernel", more=arch.packages)
    return kernels.built(name) if name else kernels.foreign(arch)


def build_module(which, kernel):
    if which == "historic":
        return setup.module(setup.historic_source(), kdir=kernel.headers, arch=kernel.arch)
    if which == "stock":
        return setup.stock_module(kernel)
    if which.endswith(".ko"):
        return Path(which)
    return setup.module(which or None, kdir=kernel.headers, arch=kernel.arch)


class Kit:
    """The parts of every guest, and how to put one together."""

    def __init__(self, args):
        self.arch = args.arch
        self.kernels = {"": build_kernel(args.kernel, self.arch)}
        self.qemu = args.qemu
        self.keep = args.keep
        self.programs = build_programs(self.arch)
        self.which_module = args.module
        self.lock = threading.Lock()
        self.made = {}          # boot name -> how many, protected by lock

    def kernel(self, name):
        with self.lock:         # two guests at a time, but not two builds
            if name not in self.kernels:
                self.kernels[name] = build_kernel(name, self.arch)
            return self.kernels[name]

    def guest(self, boot):
        kernel = self.kernel(boot.kernel)
        files = {f"mod/{name}.ko": setup.test_module(name, kernel.headers, kernel.arch)
                 for name in boot.test_modules}
        with self.lock:
            number = self.made[boot.name] = self.made.get(boot.name, 0) + 1
        outdir = OUT / "guests" / f"{boot.name}-{number}"
        outdir.mkdir(parents=True)
        bus = boot.bus or self.arch.bus
        extra = shell.terminal_args() if self.keep and bus == "pci" else []
        return vm.Guest(outdir, mem_mib=boot.mem_mib, balloon=boot.balloon, load=False,
                        append=f"{WATCHDOGS} {boot.append}", machine=boot.machine,
                        accel=boot.accel, bus=bus, kernel=kernel, files=files,
                        module=build_module(boot.module or self.which_module, kernel),
                        modules=boot.modules,
                        drives=make_disk(boot, outdir / DISK), programs=self.programs,
                        qemu=self.qemu, extra=[*boot.extra, *extra], tty="hvc0" if extra else None)


def make_disk(boot, path):
    """[the guest's disk, as vm.py wants it]; empty, and its blocks are not there before use."""
    if not boot.disk_mib:
        return []
    kind = "raw" if boot.disk_format == "ext4" else boot.disk_format
    subprocess.run(["qemu-img", "create", "-q", "-f", kind, path, f"{boot.disk_mib}M"], check=True)
    if boot.disk_format == "ext4":
        subprocess.run(["mke2fs", "-q", "-t", "ext4", path], check=True)
    return [(path, f"format={kind}")]


class Session:
    """A guest, and how much of its kernel log has been looked at."""

    def __init__(self, kit, boot):
        self.boot = boot
        self.guest = kit.guest(boot)
        self.seen = 0
        self.steps = []         # what failed in it, if it is kept

    def start(self):
        self.guest.start()
        hostside.TestRequests.attach(self.guest)
        boot = self.new_log()
        for line in bad_lines(boot, ()):
            say(f"note: while {self.guest.outdir.name} booted, without the driver: {line}")

    def step(self, step, log):
        if step == tests.RESET:
            self.guest.reset()
            return Outcome()
        if isinstance(step, tests.MustFail):
            return self.step(step.program, log).inverted(step.because, step.why)
        if isinstance(step, tests.ThroughPowerOff):
            code, text = self._through_power_off(step.program)
        else:
            code, text = self.guest.sh(f"/bin/{step}", timeout=STEP_SECONDS)
        log.write(f"# {step}\n{text}\n# exit code {code}\n")
        return ktap.read_program(text, code)

    def _through_power_off(self, program):
        resume = ("insmod /mod/virtio_blk.ko; "
                  "cat /sys/class/block/vda/dev >/sys/power/resume")
        found = self.guest.sh_through_power_off(f"/bin/{program}", resume, STEP_SECONDS)
        hostside.TestRequests.attach(self.guest)
        return found

    def new_log(self):
        """The kernel log since the last time, but for what a reset's boots say before they are up.

        Until then the driver is not there; an emulated CPU that stands still is not its fault.
        """
        text = self.guest.console()
        new, self.seen = text[self.seen:], len(text)
        first, *boots = vm.FIRST_LINE.split(new)
        return first + "".join(boot.partition("READY")[2] for boot in boots)

    def close(self):
        self.guest.stop()
        (self.guest.outdir / DISK).unlink(missing_ok=True)


def bad_lines(log, allow):
    return [f"kernel log: {line}" for line in log.splitlines()
            if vm.BAD_LINES.search(line) and not any(re.search(fine, line) for fine in allow)]


# --- running ----------------------------------------------------------------------------------

class Progress:
    """Tells what came of each test, and meanwhile, what is going on."""

    def __init__(self, total):
        self.total = total
        self.start = time.monotonic()
        self.lock = threading.Lock()
        self.running = {}       # (test, part) -> since when; this and the rest protected by lock
        self.outcomes = {}
        self.told = 0
        self.tty = sys.stderr.isatty()

    def begin(self, item):
        with self.lock:
            self.running[item] = time.monotonic()

    def rest(self, item):
        with self.lock:
            del self.running[item]

    def end(self, name, outcome):
        with self.lock:
            self.outcomes[name] = outcome
            self.clear()
            print(*ktap.lines(len(self.outcomes), name, outcome), sep="\n", flush=True)

    def clear(self):
        if self.tty:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def show(self):
        """Called often: one moving line on a terminal, else a line in 15 s."""
        with self.lock:
            now = time.monotonic()
            busy = ", ".join(f"{test.name} {now - since:.0f} s"
                             for (test, _), since in self.running.items())
            line = f"[{now - self.start:4.0f} s] {len(self.outcomes)}/{self.total} done; {busy}"
            if self.tty:
                self.clear()
                print(line[:shutil.get_terminal_size().columns - 1], end="", file=sys.stderr,
                      flush=True)
            elif now - self.start >= self.told + 15:
                self.told = now - self.start
                say("# " + line)

    def count(self, state):
        return sum(outcome.state == state for outcome in self.outcomes.values())


class Work:
    """What is still to be done, handed out so that guests are shared and no job is idle."""

    def __init__(self, chosen):
        self.lock = threading.Lock()
        self.todo = [(test, part) for test in chosen for part in test.parts or (None,)]
        self.left = {test.name: len(test.parts) or 1 for test in chosen}
        self.found = {}         # name -> outcomes so far; all protected by lock
        self.dead_boots = {}    # boot name -> why it does not come up
        self.stop = threading.Event()
        self.cut_short = False  # stopped from outside: what jobs find from then on means nothing

    def take(self, boot):
        """The next (test, part): in the guest at hand if it can be, else where most is to do."""
        with self.lock:
            if self.stop.is_set() or not self.todo:
                return None
            here = [item for item in self.todo if item[1] and item[1].boot == boot]
            item = here[0] if here else max(self.todo, key=self._weight)
            self.todo.remove(item)
            return item

    def _weight(self, item):
        """Seconds of work of the same kind: what takes longest is begun first."""
        if not item[1]:
            return item[0].seconds
        return BOOT_WORTH + sum(test.seconds for test, part in self.todo
                                if part and part.boot == item[1].boot)

    def finish(self, test, outcome):
        """Returns the whole outcome once all parts of a test are done."""
        with self.lock:
            whole = self.found.setdefault(test.name, Outcome())
            whole.add(outcome)
            self.left[test.name] -= 1
            return None if self.left[test.name] else whole


class Job(threading.Thread):
    """Runs tests one after the other, in one guest at a time."""

    def __init__(self, work, kit, progress):
        super().__init__()
        self.work, self.kit, self.progress = work, kit, progress
        self.session = None
        self.kept = None
        self.seen = threading.Event()   # the kept guest may end
        self.start()

    def run(self):
        try:
            while item := self.work.take(self.session and self.session.boot):
                self.progress.begin(item)
                outcome = self._one(*item)
                self.progress.rest(item)
                whole = self.work.finish(item[0], outcome)
                if whole and not self.work.cut_short:
                    self.progress.end(item[0].name, whole)
        finally:
            self._leave_guest()
        if self.kept:           # QEMU ends with the thread that has started it
            self.seen.wait()

    def _one(self, test, part):
        start = time.monotonic()
        outcome = Outcome()
        try:
            outcome = self._in_guest(test, part) if part else run_check(test)
        except Exception:       # a fault of the runner's own is a failure, not the end of the run
            outcome.fail(*traceback.format_exc().splitlines())
        outcome.seconds = time.monotonic() - start
        return outcome

    def _in_guest(self, test, part):
        if isinstance(self.kit, Skipped):
            return Outcome(ktap.SKIP, str(self.kit))
        if isinstance(self.kit, SetupError):
            return Outcome().fail(*str(self.kit).splitlines())
        try:
            self._enter_guest(part.boot)
        except (vm.GuestError, SetupError) as error:
            self.work.dead_boots[part.boot.name] = str(error)
            self._leave_guest()
            return Outcome().fail(*str(error).splitlines())
        outcome = self._steps(test, part)
        if outcome.state == ktap.FAIL:
            self._keep_or_leave(part, outcome)
        return outcome

    def _enter_guest(self, boot):
        if self.session and self.session.boot != boot:
            self._leave_guest()
        if boot.name in self.work.dead_boots:
            raise vm.GuestError(f"not tried again: {self.work.dead_boots[boot.name]}")
        if not self.session:
            self.session = Session(self.kit, boot)
            self.session.start()

    def _steps(self, test, part):
        folder = OUT / test.name
        folder.mkdir(parents=True, exist_ok=True)
        outcome = Outcome()
        label = f" ({part.boot.name})" if len(test.parts) > 1 else ""
        with open(folder / f"{part.boot.name}.ktap", "w", encoding="utf-8") as log:
            try:
                for step in part.steps:
                    outcome.add(self.session.step(step, log), label)
            except vm.GuestError as error:
                log.write(f"{error}\n")
                outcome.fail(*str(error).splitlines())
        kernel_log = self.session.new_log()
        (folder / f"{part.boot.name}.console.log").write_text(kernel_log)
        bad = bad_lines(kernel_log, test.allow)
        return outcome.fail(*bad) if bad else outcome

    def _keep_or_leave(self, part, outcome):
        outcome.details.append(f"guest: {self.session.guest.outdir.relative_to(setup.ROOT)}")
        alive = self.session.guest.process and self.session.guest.process.poll() is None
        if self.kit.keep and alive and not self.work.stop.is_set():
            self.session.steps = [step for step in part.steps if isinstance(step, str)
                                  and step != tests.RESET]
            self.kept, self.session = self.session, None
            self.work.stop.set()
        else:
            self._leave_guest()

    def _leave_guest(self):
        if self.session:
            self.session.close()
        self.session = None


def run_check(test):
    folder = OUT / test.name
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome()
    try:
        outcome.reason = test.check()
    except Skipped as skipped:
        outcome.state, outcome.reason = ktap.SKIP, str(skipped)
    except Failed as failed:
        outcome.fail(*failed.lines)
    log = "\n".join([outcome.state, outcome.reason, *outcome.details])
    (folder / "log").write_text(log.strip() + "\n")
    return outcome


def run_all(chosen, args, kit):
    progress = Progress(len(chosen))
    work = Work(chosen)
    print(f"KTAP version 1\n1..{len(chosen)}", flush=True)
    jobs = [Job(work, kit, progress) for _ in range(min(args.jobs, len(work.todo)))]
    try:
        while any(job.is_alive() and not job.kept for job in jobs):
            progress.show()
            time.sleep(0.2)
        progress.clear()
        look_at_kept(jobs)
    except BaseException:
        work.cut_short = True
        raise
    finally:
        work.stop.set()
        end_guests(jobs)
    return progress


def end_guests(jobs):
    """Whatever a job is doing in its guest ends with the guest."""
    while any(job.is_alive() for job in jobs):
        for job in jobs:
            for session in (job.session, job.kept):
                if session:
                    with contextlib.suppress(Exception):
                        session.close()
            job.seen.set()
            job.join(0.3)


def look_at_kept(jobs):
    """KEEP=1: a person at the terminal gets the guest's shell; else it stays for a while."""
    for job in jobs:
        if not job.kept:
            continue
        guest = job.kept.guest
        say(f"""
The guest is kept; the test has tidied up there. Its log: {guest.outdir.relative_to(setup.ROOT)}
In it: dmesg    insmod /mod/virtio_balloon.ko    grep balloon_ /proc/vmstat    and again, as long
as this command runs: {"    ".join(job.kept.steps)}""")
        if sys.stdin.isatty():
            say("This is its shell; leave with `exit` or Ctrl-].\n")
            with shell.raw_terminal():
                shell.Terminal(guest).talk()
        else:
            say(f"Its shell: {guest.outdir}/tty.sock, a unix socket. Ctrl-C here ends it, "
                f"and {KEEP_SECONDS // 60} minutes do.")
            time.sleep(KEEP_SECONDS)


# --- the end ----------------------------------------------------------------------------------

def summary(chosen, progress, arch):
    """The last lines; returns the exit code."""
    failed = [name for name, outcome in progress.outcomes.items() if outcome.state == ktap.FAIL]
    left = len(chosen) - len(progress.outcomes)
    print(f"# {time.monotonic() - progress.start:.0f} s; logs: {OUT.relative_to(setup.ROOT)}/TEST/")
    if failed:
        which = "" if arch == architectures.HOST else f"ARCH={arch.name} "
        print(f'# failed: {" ".join(failed)}\n# again, and keep the guest: '
              f'make check {which}KEEP=1 TESTS="{" ".join(failed)}"')
    if left:
        print(f"# {left} not run")
    print(f"{progress.count(ktap.PASS)} passed, {progress.count(ktap.FAIL)} failed, "
          f"{progress.count(ktap.SKIP)} skipped", flush=True)
    return 1 if failed or left else 0


def prepare(chosen, args):
    """The kit for guests; None if no test needs one; why, if it cannot be had."""
    args.qemu = vm.prepare("check", args.qemu, args.arch.packages)
    if not any(test.parts for test in chosen):
        return None
    try:
        return Kit(args)
    except (SetupError, Skipped) as error:
        return error


def main():
    args = parse_arguments()
    forget_make()
    chosen = check_arguments(args)
    if args.list:
        print_list(chosen if args.tests else tests.choose([], True, args.arch))
        return 0
    setup.own(OUT)
    kit = prepare(chosen, args)
    return summary(chosen, run_all(chosen, args, kit), args.arch)


if __name__ == "__main__":
    setup.guarded(main)
