# SPDX-License-Identifier: GPL-2.0
"""`make pressure`: guests that are short of memory, with this driver and the kernel's own.

Each scenario is what users of balloons have reported. It is played in a guest with the kernel's own
driver, then in one with ours, one guest at a time. What is said of an unballooned guest comes from
the same guest, in turn with the runs that have a balloon: the driver is not loaded, and the host
has none of the memory yet, as in a guest that was ballooned. Exits 1 if our driver lets something
be killed, or misses another count; times are told, not judged: a machine may be busy.
"""

import csv
import difflib
import json
import os
import random
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import bench
import setup
import vm
from setup import SetupError, say

OUT = setup.OUT / "pressure"
OURS, STOCK = "ours", "stock"

MEM = 1024                  # MiB of the guest
EDGE = 124                  # a target that cannot be met: the kernel's watermarks are above it
IMPOSSIBLE = 16             # much more so
TIGHT = 220                 # one that can
NEED = 700                  # of the program
HEAP = 800                  # of one that maps all it may ever use
LOCKED = MEM * 7 // 10
BESIDE = 100                # of another one beside those
STEP = 336                  # from an impossible target to one that can be met

PROCESSES, JOBS = 200, 4
DISK = 64                   # MiB, as guest/forkload.c has it

STILL_SECONDS = 5           # the balloon has come to its rest when it has not moved for so long
SETTLE_SECONDS = 60
PROGRAM_SECONDS = 300       # an unballooned guest needs 5
LATE = -1                   # as an exit code: it needed more
BACK_SECONDS = 60           # the rest after an OOM is 10 s
SAMPLE_MS = 100
PAUSE = 2                   # seconds before and after, in the picture
STOCK_ROUNDS = 5            # in mid-inflate: they take long, and it is only told how they end
JUMPS = 3                   # from an impossible target


@dataclass
class Options:
    runs: int               # of which the median is taken
    rounds: int             # at random moments
    seconds: int            # at an impossible target
    qemu: str | None


@dataclass
class Case:
    """One scenario with one driver: what was seen."""
    scenario: str
    driver: str
    runs: list = field(default_factory=list)        # of the program: what it said
    bare: list = field(default_factory=list)        # the same without a balloon
    seen: dict = field(default_factory=dict)        # name: number
    problems: list = field(default_factory=list)

    def median(self, name, runs=None):
        """None if there was a run that did not end well: there is nothing to compare then."""
        runs = self.runs if runs is None else runs
        if not runs or any(run[name] is None for run in runs):
            return None
        return statistics.median(run[name] for run in runs)

    def against_bare(self, name="seconds"):
        mine, bare = self.median(name), self.median(name, self.bare)
        return mine / bare if mine and bare else None


# --- a guest under pressure ---------------------------------------------------------------------

def driver_lines(guest):
    return len(re.findall(r"virtio_balloon virtio[0-9]+: ", guest.console()))


class Meter:
    """What a stretch of time costs, added to the case."""

    def __init__(self, guest, case):
        self.guest, self.case = guest, case

    def _look(self):
        # In this order: even this may be too much for the guest
        cheap = {"cpu_s": self.guest.cpu_seconds(), "log_lines": driver_lines(self.guest)}
        found = bench.counters(self.guest)
        return cheap | {"kills": found["oom_kill"], "inflated": found["balloon_inflate"],
                        "deflated": found["balloon_deflate"],
                        "refaults": found["workingset_refault_file"],
                        "stalls": sum(number for name, number in found.items()
                                      if name.startswith("allocstall_"))}

    def __enter__(self):
        self.before = self._look()
        return self

    def __exit__(self, kind, *_):
        if kind:
            return
        for name, value in self._look().items():
            self.case.seen[name] = self.case.seen.get(name, 0) + value - self.before[name]


def settle(guest, target):
    """Set a target and wait until the balloon stands still, there or not; MiB the guest keeps."""
    guest.set_target_bytes(target * vm.MIB)
    start = since = time.monotonic()
    level = guest.actual_bytes()
    while (now := time.monotonic()) < min(since + STILL_SECONDS, start + SETTLE_SECONDS):
        actual = guest.actual_bytes()
        if abs(actual - level) > vm.MIB:
            level, since = actual, now
        time.sleep(0.05)
    return guest.actual_bytes() // vm.MIB


def balloon(guest, target=EDGE):
    """A driver that knows of nothing before, its balloon as large as it gets."""
    unload(guest)
    guest.load()
    return settle(guest, target)


def discard(guest):
    """No balloon, but the host has to give the guest's memory anew: the program's, not the rest."""
    balloon(guest, TIGHT)
    guest.set_target_bytes(MEM * vm.MIB)
    bench.wait_for_target(guest, MEM, SETTLE_SECONDS)
    unload(guest)


def unload(guest):
    code, text = guest.sh("test ! -d /sys/module/virtio_balloon || rmmod virtio_balloon")
    if code:
        raise vm.GuestError(f"rmmod failed: {text}")
    guest.set_target_bytes(MEM * vm.MIB)


def said(text):
    """{name: number} of a program's words."""
    pairs = (word.split("=") for word in text.split() if "=" in word)
    return {name: float(value) for name, value in pairs if re.fullmatch("[0-9.]+", value)}


def program(guest, command):
    """What a program says of itself; its times are None if it was killed or took too long."""
    try:
        code, text = guest.sh(command, timeout=PROGRAM_SECONDS)
    except vm.GuestTimeout:
        return {"seconds": None, "worst_ns": None, "code": LATE}
    found = {"seconds": None, "worst_ns": None} | (said(text) if code == 0 else {})
    return found | {"code": code}


def quietly(what, seconds):
    """Let time pass and touch nothing."""
    say(f"    {what}, {seconds} s ...")
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 15))
        if left > 20:
            say(f"    {left - 15:4.0f} s left")


def tell(case, what, found):
    seconds = f"{found['seconds']:.1f} s" if found["seconds"] else f"ended with {found['code']}"
    worst = f", worst MiB {found['worst_ns'] / 1e6:.0f} ms" if found["worst_ns"] else ""
    say(f"    {case.scenario}, {case.driver}: {what}: {seconds}{worst}")


# --- the scenarios ------------------------------------------------------------------------------

def compare(guest, case, command, runs, in_a_row):
    """A program without a balloon and with one that is as large as it gets, taking turns."""
    for number in range(in_a_row):
        if number < runs:
            discard(guest)
            case.bare.append(program(guest, command))
            tell(case, f"run {number + 1} of {in_a_row}, no balloon", case.bare[-1])
        with Meter(guest, case):
            case.seen["level_mib"] = balloon(guest)
            case.runs.append(program(guest, command))
        tell(case, f"run {number + 1} of {in_a_row}, {case.seen['level_mib']} MiB left",
             case.runs[-1])


class Watch(bench.Sampler):
    """The guest's memory over time, for the picture."""

    def __init__(self, guest):
        super().__init__(guest, SAMPLE_MS)
        self.rows = []

    def add(self, seen):
        kept = self.guest.actual_bytes() / vm.MIB
        self.rows.append((time.monotonic(), MEM - kept, seen["AnonPages"] / 1024,
                          seen["MemFree"] / 1024, seen["oom_kill"]))


def film(guest, name):
    """One more run, watched; its rows and when the program had all it wanted, into a file."""
    with Watch(guest) as watch:
        time.sleep(PAUSE)
        start = time.monotonic()
        found = program(guest, f"memtouch {NEED} {PAUSE}")
        time.sleep(PAUSE)
    if watch.error:
        raise watch.error
    with open(OUT / f"u1-{name}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["time_s", "balloon_mib", "program_mib", "free_mib", "oom_kills", "full_s"])
        for when, *row in watch.rows:
            writer.writerow([f"{when - start:.3f}", *(f"{cell:.1f}" for cell in row),
                             found["seconds"] or "nan"])


def play_u1(guest, case, options):
    case.seen["fresh_s"] = program(guest, f"memtouch {NEED}")["seconds"]
    twice = 2 if case.driver == OURS else 1
    compare(guest, case, f"memtouch {NEED}", options.runs, options.runs * twice)
    if case.driver == OURS:
        discard(guest)
        film(guest, "unballooned")
    balloon(guest)
    film(guest, case.driver)


def play_heap(guest, case, options):
    compare(guest, case, f"memtouch -t 4 -r {HEAP}", options.runs, options.runs)


def play_huge(guest, case, options):
    compare(guest, case, f"memtouch -h {NEED}", options.runs, options.runs)


def play_u6(guest, case, options):
    moments = random.Random(6)          # the same for both drivers
    rounds = options.rounds if case.driver == OURS else min(options.rounds, STOCK_ROUNDS)
    for number in range(rounds):
        level = moments.randint(TIGHT, MEM - 1)
        unload(guest)
        with Meter(guest, case):
            guest.load()
            guest.set_target_bytes(EDGE * vm.MIB)
            end = time.monotonic() + SETTLE_SECONDS
            while guest.actual_bytes() > level * vm.MIB and time.monotonic() < end:
                time.sleep(0.005)
            case.runs.append(program(guest, f"memtouch {NEED}"))
        tell(case, f"round {number + 1} of {rounds}, begun at {level} MiB", case.runs[-1])


def cpu_of(guest, what, seconds):
    """CPU time that QEMU takes while nobody looks."""
    before = guest.cpu_seconds()
    quietly(what, seconds)
    return guest.cpu_seconds() - before


def jump(guest, target):
    """Seconds to a target; None if it is not reached."""
    guest.set_target_bytes(target * vm.MIB)
    return bench.wait_for_target(guest, target, SETTLE_SECONDS)


def play_u7(guest, case, options):
    guest.load()
    time.sleep(STILL_SECONDS)
    case.seen["idle_cpu_s"] = cpu_of(guest, f"{case.driver}: idle", options.seconds)
    with Meter(guest, case):
        case.seen["level_mib"] = settle(guest, IMPOSSIBLE)
        where = f"{case.driver}: {case.seen['level_mib']} MiB left, {IMPOSSIBLE} wanted"
        case.seen["stuck_cpu_s"] = cpu_of(guest, where, options.seconds)
    for _ in range(JUMPS):
        level = settle(guest, IMPOSSIBLE)
        stuck = jump(guest, level + STEP)
        jump(guest, level + 16)
        time.sleep(STILL_SECONDS)
        rest = jump(guest, level + 16 + STEP)
        case.runs.append({"seconds": stuck, "rest": rest})
        say(f"    {case.driver}: {STEP} MiB back: {show(stuck)} s, from rest {show(rest)} s")


def play_u8(guest, case, options):
    del options
    holder = guest.lines(f"memtouch -l {LOCKED} 3600", timeout=bench.ALL_DAY, port=2)
    if "mib=" not in next(holder, ""):
        raise vm.GuestError(f"{LOCKED} MiB could not be locked")
    with Meter(guest, case):
        case.seen["level_mib"] = balloon(guest)
        case.runs.append(program(guest, f"memtouch {BESIDE}"))
        tell(case, f"{LOCKED} MiB locked, {BESIDE} more", case.runs[-1])
    holder.close()


def play_rest(guest, case, options):
    del options
    with Meter(guest, case):
        balloon(guest, TIGHT)
        case.runs.append(program(guest, f"memtouch {NEED}"))
        tell(case, f"{TIGHT} MiB left", case.runs[-1])
        back = case.seen["back_s"] = bench.wait_for_target(guest, TIGHT, BACK_SECONDS)
    when = f"{back:.0f} s after the program's end" if back else f"not within {BACK_SECONDS} s"
    say(f"    {case.driver}: back at {TIGHT} MiB: {when}")


def play_fork(guest, case, options):
    # Open all the time: the last to close a block device drops its page cache.
    guest.sh("sleep 36000 </dev/vda >/dev/null 2>&1 &")
    guest.sh(f"forkload 20 {JOBS} /dev/vda")
    compare(guest, case, f"forkload {PROCESSES} {JOBS} /dev/vda", options.runs, options.runs)


# --- what is wanted of them ---------------------------------------------------------------------

@dataclass
class Figure:
    """One line of the table. A count that our driver misses is a failure."""
    scenario: str
    what: str
    ours: str
    stock: str
    wanted: str
    met: bool
    count: bool = False


def show(value, form="{:.2f}"):
    return "-" if value is None else form.format(value)


def at_most(value, limit):
    return value is not None and limit is not None and value <= limit


def kills(name, ours, stock):
    """Nothing is killed, and every program ends well, and in time."""
    def bad(case):
        lost = sum(run.get("code", 0) != 0 for run in case.runs)
        late = sum(run.get("code", 0) == LATE for run in case.runs)
        return max(int(case.seen.get("kills", 0)), lost), late

    def words(case):
        lost, late = bad(case)
        return f"{lost} of {len(case.runs)}" + (f", {late} late" if late else "")

    whole = bool(ours.runs) and "kills" in ours.seen
    return Figure(name, "kills, or not done in time", words(ours), words(stock), "0",
                  whole and bad(ours)[0] == 0, count=True)


def slowdown(name, ours, stock, limit):
    mine, theirs = ours.against_bare(), stock.against_bare()
    return [Figure(name, "time, unballooned = 1", show(mine), show(theirs), f"<= {limit}",
                   at_most(mine, limit)),
            Figure(name, "seconds, median", show(ours.median("seconds")),
                   show(stock.median("seconds")), "", True)]


def worst_mib(name, ours, stock, part):
    mine, theirs = ours.median("worst_ns"), stock.median("worst_ns")
    limit = theirs and theirs * part
    return Figure(name, "worst MiB, ms", show(mine and mine / 1e6, "{:.0f}"),
                  show(theirs and theirs / 1e6, "{:.0f}"),
                  f"<= {show(limit and limit / 1e6, '{:.0f}')}",
                  at_most(mine, limit) or (mine is not None and theirs is None))


def judge_u1(name, ours, stock, _):
    """Against a guest that has just booted and one that has run for a while: neither has a balloon,
    and the host has to give both the memory. The limit is from a measurement of the former kind."""
    fresh = [case.seen["fresh_s"] for case in (ours, stock) if case.seen.get("fresh_s")]

    def against_fresh(case):
        mine = case.median("seconds")
        return mine / statistics.median(fresh) if mine and fresh else None

    return [kills(name, ours, stock),
            Figure(name, "time, unballooned, just booted = 1", show(against_fresh(ours)),
                   show(against_fresh(stock)), "<= 1.15", at_most(against_fresh(ours), 1.15)),
            Figure(name, "time, unballooned, later = 1", show(ours.against_bare()),
                   show(stock.against_bare()), "", True),
            Figure(name, "seconds, median", show(ours.median("seconds")),
                   show(stock.median("seconds")), "", True),
            worst_mib(name, ours, stock, 1 / 3)]


def judge_no_slower(name, ours, stock, _):
    mine, theirs = ours.median("seconds"), stock.median("seconds")
    return [kills(name, ours, stock),
            Figure(name, "seconds, median", show(mine), show(theirs), "<= stock",
                   at_most(mine, theirs) or (mine is not None and theirs is None)),
            worst_mib(name, ours, stock, 1)]


def judge_kills(name, ours, stock, _):
    return [kills(name, ours, stock)]


def judge_u7(name, ours, stock, options):
    def cpu(case):
        idle, stuck = case.seen.get("idle_cpu_s"), case.seen.get("stuck_cpu_s")
        return stuck / idle if idle and stuck is not None else None

    def lines(case):
        return case.seen.get("log_lines")

    stuck, rest = ours.median("seconds"), ours.median("rest")
    missed = sum(run["seconds"] is None for run in ours.runs)
    return [Figure(name, f"CPU time in {options.seconds} s, idle = 1", show(cpu(ours)),
                   show(cpu(stock)), "<= 1.4", at_most(cpu(ours), 1.4)),
            Figure(name, "log lines", show(lines(ours), "{}"), show(lines(stock), "{}"), "<= 2",
                   at_most(lines(ours), 2), count=True),
            Figure(name, "possible targets missed", str(missed),
                   str(sum(run["seconds"] is None for run in stock.runs)), "0",
                   len(ours.runs) == JUMPS and not missed, count=True),
            Figure(name, f"{STEP} MiB back, s", show(stuck), show(stock.median("seconds")),
                   f"as from rest: {show(rest)}", at_most(stuck, rest and rest * 1.25 + 0.1))]


def judge_rest(name, ours, stock, _):
    mine = ours.seen.get("back_s")
    return [kills(name, ours, stock),
            Figure(name, "target reached again, s", show(mine, "{:.0f}"),
                   show(stock.seen.get("back_s"), "{:.0f}"), "by itself", mine is not None,
                   count=True)]


def judge_fork(name, ours, stock, _):
    return [kills(name, ours, stock), *slowdown(name, ours, stock, 1.3)]


@dataclass(frozen=True)
class Scenario:
    about: str
    play: Callable
    judge: Callable


SCENARIOS = {
    "u1": Scenario(f"a program touches {NEED} MiB", play_u1, judge_u1),
    "heap": Scenario(f"{HEAP} MiB mapped at once, touched all over by 4 threads", play_heap,
                     judge_no_slower),
    "huge": Scenario(f"{NEED} MiB with MADV_HUGEPAGE", play_huge, judge_no_slower),
    "u6": Scenario("the program starts while the balloon inflates", play_u6, judge_kills),
    "u7": Scenario("a target that cannot be met", play_u7, judge_u7),
    "u8": Scenario(f"inflated with {LOCKED} MiB locked", play_u8, judge_kills),
    "rest": Scenario("the program exits, and the balloon comes back", play_rest, judge_rest),
    "fork": Scenario(f"{PROCESSES} short processes, {JOBS} at a time", play_fork, judge_fork),
}


# --- one guest after the other ------------------------------------------------------------------

def empty_disk():
    """Zeros: what is read matters to nobody."""
    path = OUT / "disk.img"
    with open(path, "wb") as file:
        file.truncate(DISK * vm.MIB)
    return path


def measure(name, driver, module, options):
    case = Case(name, driver)
    say(f"{name}, {driver}: {SCENARIOS[name].about}; booting a guest of {MEM} MiB ...")
    guest = vm.Guest(OUT / f"{name}-{driver}", mem_mib=MEM, module=module, load=False,
                     balloon="deflate-on-oom=on", programs=["memtouch", "sample", "forkload"],
                     qemu=options.qemu,
                     drives=[(empty_disk(), "format=raw,readonly=on")])
    try:
        with guest:
            SCENARIOS[name].play(guest, case, options)
            case.problems += guest.problems()
    except vm.GuestError as error:
        case.problems += str(error).splitlines()
    for line in case.problems[:3]:
        say(f"    {name}, {driver}: {line}")
    return case


# --- what came of it ----------------------------------------------------------------------------

def table(figures):
    head = Figure("scenario", "figure", OURS, STOCK, "wanted", True)
    lines = []
    for row in [head, *figures]:
        verdict = "" if row is head or not row.wanted else "met" if row.met else "MISSED"
        lines.append(f"{row.scenario:9}{row.what:36}{row.ours:>9}{row.stock:>15}   "
                     f"{row.wanted:22}{verdict}".rstrip())
    return "\n".join(lines)


def cost(cases):
    """What the stretches under pressure cost; stalls are allocations that reclaimed themselves."""
    lines = [f"{'under pressure':18}{'QEMU CPU s':>12}{'log lines':>11}{'inflated':>10}"
             f"{'deflated':>10}{'cache refaults':>16}{'stalls':>9}",
             f"{'':18}{'':12}{'':11}{'MiB':>10}{'MiB':>10}{'MiB':>16}"]
    for case in cases:
        seen = {name: case.seen.get(name, 0) for name in ("cpu_s", "log_lines", "inflated",
                                                          "deflated", "refaults", "stalls")}
        lines.append(f"{case.scenario + ', ' + case.driver:18}{seen['cpu_s']:12.1f}"
                     f"{seen['log_lines']:11}{seen['inflated'] // 256:10}"
                     f"{seen['deflated'] // 256:10}{seen['refaults'] // 256:16}"
                     f"{seen['stalls']:9}")
    return "\n".join(lines)


def save(cases, figures):
    (OUT / "pressure.json").write_text(
        json.dumps({"cases": [vars(case) for case in cases],
                    "figures": [vars(figure) for figure in figures]}, indent=1) + "\n",
        encoding="utf-8")
    with open(OUT / "pressure.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(vars(figures[0]))
        writer.writerows(vars(figure).values() for figure in figures)


def faults(cases, figures):
    """Where our driver misses a count, or left something in the kernel log."""
    found = [f"{row.scenario}: {row.what}: {row.ours}, wanted {row.wanted}"
             for row in figures if row.count and not row.met]
    for case in cases:
        if case.driver == OURS:
            found += [f"{case.scenario}: {line}" for line in case.problems[:3]]
    return found


def draw(where):
    """The picture; returns what was wrong with it."""
    files = [OUT / f"u1-{kind}.csv" for kind in ("unballooned", STOCK, OURS)]
    if not all(file.exists() for file in files):
        return ["u1: no picture, for a guest did not get so far"]
    try:
        bench.draw("pressure.gp", *files, OUT / "pressure.png", MEM, NEED)
    except vm.GuestError as error:
        return [str(error)]
    print(f"The picture: {where}/pressure.png")
    return []


def choose(text):
    """The scenarios that were named; all if none was."""
    names = text.replace(",", " ").split()
    for name in names:
        if name not in SCENARIOS:
            close = difflib.get_close_matches(name, SCENARIOS, 3)
            raise SetupError(f'there is no scenario "{name}"'
                             + (f': did you mean {" or ".join(close)}?' if close else ";")
                             + f" SCENARIOS= takes {' '.join(SCENARIOS)}")
    return [name for name in SCENARIOS if name in names or not names]


def parse_arguments():
    default = os.environ.get
    parser = setup.parser("pressure.py", __doc__)
    parser.add_argument("--scenarios", default=default("SCENARIOS") or "", metavar="NAMES",
                        help=f"only these of {' '.join(SCENARIOS)} (SCENARIOS=)")
    parser.add_argument("--runs", default=default("RUNS") or "5",
                        help="of each program; the median counts (RUNS=, %(default)s)")
    parser.add_argument("--rounds", default=default("ROUNDS") or "20",
                        help="how often a program starts in mid-inflate (ROUNDS=, %(default)s)")
    vm.add_qemu(parser)
    parser.add_argument("--seconds", default=default("SECONDS") or "60",
                        help="how long at an impossible target (SECONDS=, %(default)s)")
    return parser.parse_args()


def main():
    args = parse_arguments()
    names = choose(args.scenarios)
    options = Options(
        bench.whole_number("RUNS", args.runs, 1, 99, "runs", "the median counts"),
        bench.whole_number("ROUNDS", args.rounds, 1, 999, "rounds", "in mid-inflate"),
        bench.whole_number("SECONDS", args.seconds, 5, 3600, "s", "at an impossible target"),
        vm.prepare("pressure", args.qemu))
    setup.own(OUT)
    modules = {STOCK: setup.stock_module(), OURS: setup.module()}
    start = time.monotonic()
    cases, figures = [], []
    for name in names:
        both = [measure(name, driver, module, options) for driver, module in modules.items()]
        cases += both
        figures += SCENARIOS[name].judge(name, both[1], both[0], options)
        save(cases, figures)
    (OUT / "disk.img").unlink(missing_ok=True)
    text = table(figures) + "\n\n" + cost(cases)
    (OUT / "summary.txt").write_text(text + "\n", encoding="utf-8")
    where = OUT.relative_to(setup.ROOT)
    print(f"\n{text}\n\n{time.monotonic() - start:.0f} s. The figures: {where}/pressure.json, "
          "pressure.csv")
    bad = faults(cases, figures) + (draw(where) if "u1" in names else [])
    for line in bad:
        print(f"FAIL {line}")
    return 1 if bad else 0


if __name__ == "__main__":
    setup.guarded(main)
