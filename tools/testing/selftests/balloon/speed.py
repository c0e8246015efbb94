# SPDX-License-Identifier: GPL-2.0
"""`make bench`: how fast memory moves, and at what price; the kernel's driver beside this one.

Every row measures both drivers in turn, round by round, in guests of the same kernel and QEMU, never
two at a time. What counts is the ratio of the medians. Seconds on an emulated machine say little
about another; ratios within one run travel better.
"""

import argparse
import contextlib
import difflib
import json
import os
import platform
import re
import statistics
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import bench
import instructions
import kernels
import setup
import vm
from setup import SetupError, say

OUT = setup.OUT / "bench"
STOCK, OURS, FLOOR = "stock", "ours", "floor"
MEM = 4096                  # MiB, of the guests that move 3 GiB
LARGE = 3072                # MiB that are moved
SMALL_MEM, SMALL = 2048, 1536
TOUCHED = 3400              # MiB that a program has written to and freed
PAGE = 4096
SETTLE_SECONDS = 180
PROGRAMS = ["memtouch", "disturb", "fragment"]
HUGEPAGES = Path("/proc/sys/vm/nr_hugepages")
HUGE_MIB = 2
HUGE_SPARE = 64             # MiB; QEMU wants a few more than the guest has
TRIES = 3                   # of a round that did not count
FUNCTIONS = 12              # the busiest ones of the guest's kernel, of which bench.json tells


class NotHere(Exception):
    """A row that this machine cannot measure: the text says why."""


class RoundLost(Exception):
    """What was measured says nothing; try again."""


# --- rows -----------------------------------------------------------------------------------------

@dataclass
class Figure:
    """One line of the table: the samples of each driver, and what is wanted of their ratio."""
    name: str
    unit: str
    wanted: str = ""
    good: Callable = None       # (stock, ours, floor) -> bool, of medians
    form: str = "{:.2f}"
    more_is_better: bool = False
    samples: dict = field(default_factory=dict)

    def add(self, driver, value):
        self.samples.setdefault(driver, []).append(value)

    def median(self, driver):
        found = self.samples.get(driver)
        return statistics.median(found) if found else None

    @property
    def ratio(self):
        """How many times better than stock; None where there is nothing to divide."""
        stock, ours = self.median(STOCK), self.median(OURS)
        if stock is None or ours is None or not min(stock, ours) > 0:
            return None
        return ours / stock if self.more_is_better else stock / ours

    @property
    def met(self):
        if self.good is None or self.median(OURS) is None or self.median(STOCK) is None:
            return None
        return bool(self.good(self.median(STOCK), self.median(OURS), self.median(FLOOR)))


def times(factor):
    return lambda stock, ours, _: stock >= factor * ours


def no_more(stock, ours, _):
    return ours <= stock


def at_most(limit):
    return lambda _, ours, __: ours <= limit


class Row:
    """What is measured together. `play` measures one driver once and gives {figure: value}."""

    def __init__(self, about, play, *figures, quick=False, once=False):
        self.about, self.play, self.quick, self.once = about, play, quick, once
        self.figures = {figure.name: figure for figure in figures}
        self.skipped = None


# --- a guest --------------------------------------------------------------------------------------

class Bench:
    """What all rows need: the modules, and guests with them."""

    def __init__(self, qemu):
        self.qemu = qemu or "qemu-system-x86_64"
        self.problems = []
        self.functions = {}     # {driver: {what it does: {function: instructions for each page}}}
        self.built = {}

    def module(self, driver, kernel):
        key = driver, kernel.release
        if key not in self.built:
            self.built[key] = (setup.stock_module(kernel) if driver == STOCK
                               else setup.module(kdir=kernel.headers))
        return self.built[key]

    @contextlib.contextmanager
    def guest(self, driver, mem=MEM, kernel=None, load=True, balloon="deflate-on-oom=on", **more):
        kernel = kernel or setup.kernel()
        guest = vm.Guest(OUT / "guest", mem_mib=mem, kernel=kernel, balloon=balloon, load=load,
                         module=self.module(OURS if driver == FLOOR else driver, kernel),
                         programs=PROGRAMS, qemu=self.qemu, **more)
        with guest:
            yield guest
            self.problems += [f"{driver}: {line}" for line in guest.problems()]


def resize(guest, mib):
    """Seconds until the balloon is there. Polled closely: QEMU answers within a millisecond."""
    start = time.monotonic()
    guest.set_target_bytes(mib * vm.MIB)
    while guest.actual_bytes() != mib * vm.MIB:
        if time.monotonic() > start + SETTLE_SECONDS:
            raise vm.GuestError(f"the target of {mib} MiB was not reached in {SETTLE_SECONDS} s")
        time.sleep(0.003)
    return time.monotonic() - start


def touch(guest, mib):
    code, text = guest.sh(f"memtouch {mib}", timeout=SETTLE_SECONDS)
    if code:
        raise vm.GuestError(f"memtouch {mib} failed: {text}")
    return text


class RssWatch(threading.Thread):
    """Notes QEMU's memory every 5 ms: (seconds, MiB)."""

    def __init__(self, guest):
        super().__init__(daemon=True)
        self.guest, self.over = guest, threading.Event()
        self.seen = []

    def run(self):
        while not self.over.is_set():
            self.seen.append((time.monotonic(), self.guest.rss_kib() / 1024))
            time.sleep(0.005)

    def end(self):
        self.over.set()
        self.join()
        return self.seen


# --- what is measured ---------------------------------------------------------------------------

def play_untouched(bench_, driver):
    if driver == FLOOR:
        return floor(bench_, LARGE)
    with bench_.guest(driver) as guest:
        resize(guest, MEM - LARGE)          # what a first time costs both is not the point
        resize(guest, MEM)
        return {"inflate": resize(guest, MEM - LARGE), "deflate": resize(guest, MEM)}


def floor(bench_, mib):
    kernel = setup.kernel()
    module = setup.test_module("floor", kernel.headers)
    with bench_.guest(FLOOR, load=False, files={"mod/floor.ko": module}) as guest:
        guest.sh(f"insmod /mod/floor.ko mib={mib}", timeout=SETTLE_SECONDS)
        at = "/sys/module/floor/parameters/"
        code, text = guest.sh(f"cat {at}inflate_ns {at}deflate_ns")
        found = [int(number) for number in text.split()]
        if code or not all(found):
            raise vm.GuestError(f"the device's own time could not be measured: {text}")
    return {"inflate": found[0] / 1e9, "deflate": found[1] / 1e9}


def play_touched(bench_, driver, reporting):
    """The page_reporting core begins 2 s after memory is freed: a round that it came into first
    does not count."""
    with bench_.guest(driver, balloon="deflate-on-oom=on,free-page-reporting="
                      + ("on" if reporting else "off")) as guest:
        touch(guest, TOUCHED)
        full = guest.rss_kib() / 1024
        if full < TOUCHED:
            raise RoundLost(f"only {full:.0f} MiB of {TOUCHED} were there to be taken")
        watch = RssWatch(guest)
        watch.start()
        start = time.monotonic()
        seconds = resize(guest, MEM - LARGE)
        seen = watch.end()
    gone = [at - start for at, rss in seen if rss <= full - 0.9 * LARGE]
    if not gone:
        raise vm.GuestError(f"{driver}: the host did not get 90 % of {LARGE} MiB back")
    return {"inflate": seconds, "90 % of it gone": gone[0]}


def play_zeroing(bench_, driver, kernel):
    with bench_.guest(driver, SMALL_MEM, kernel, append="init_on_alloc=1") as guest:
        return {"inflate": resize(guest, SMALL_MEM - SMALL), "deflate": resize(guest, SMALL_MEM)}


@contextlib.contextmanager
def huge_pages(mib):
    """So many MiB of the host's huge pages, as long as they are needed."""
    before = HUGEPAGES.read_text() if HUGEPAGES.exists() else None
    if before is None or os.geteuid() != 0:
        raise NotHere("needs huge pages of the host, and root to reserve them")
    wanted = int(before) + mib // HUGE_MIB
    try:
        HUGEPAGES.write_text(str(wanted))
        if int(HUGEPAGES.read_text()) < wanted:
            raise NotHere(f"the host has no {mib} MiB of huge pages to spare")
        yield
    finally:
        HUGEPAGES.write_text(before)


def huge_free():
    text = Path("/proc/meminfo").read_text()
    return int(re.search(r"HugePages_Free:\s+([0-9]+)", text)[1]) * HUGE_MIB


def play_hugetlb(bench_, driver):
    memory = ["-object", f"memory-backend-memfd,id=mem,size={SMALL_MEM}M,hugetlb=on,hugetlbsize=2M",
              "-machine", "memory-backend=mem"]
    with huge_pages(SMALL_MEM + HUGE_SPARE):
        with bench_.guest(driver, SMALL_MEM, extra=memory) as guest:
            touch(guest, SMALL_MEM - 400)
            before = huge_free()
            seconds = resize(guest, SMALL_MEM - SMALL)
            time.sleep(0.2)
            return {"inflate": seconds, "returned": huge_free() - before}


def play_counts(bench_, driver):
    """In a guest of its own: writing a trace takes time."""
    events = ["virtio_queue_notify", "virtio_balloon_set_config"]
    extra = [word for event in events for word in ("-trace", f"enable={event}")]
    with bench_.guest(driver, extra=[*extra, "-D", "trace.log"]) as guest:
        log = guest.outdir / "trace.log"
        before, interrupts = log.stat().st_size, balloon_interrupts(guest)
        resize(guest, MEM - LARGE)
        interrupts = balloon_interrupts(guest) - interrupts
        with open(log, encoding="utf-8", errors="replace") as trace:
            trace.seek(before)
            text = trace.read()
    writes = len(re.findall(r"virtio_balloon_set_config", text))
    device = re.findall(r"virtio_queue_notify vdev (\S+) n 0 ", text)
    # Of the devices with a queue 0 the balloon is by far the busiest, or nothing was moved
    kicks = max((device.count(one) for one in set(device)), default=0)
    gib = LARGE / 1024
    return {"kicks": kicks / gib, "config writes": writes / gib, "interrupts": interrupts / gib}


def balloon_interrupts(guest):
    """Of the balloon's inflate queue; where vectors are shared, of all its queues."""
    code, text = guest.sh("for d in /sys/bus/virtio/drivers/virtio_balloon/virtio*; do "
                          "grep ${d##*/}- /proc/interrupts; done")
    if code:
        return 0
    return sum(int(number) for line in text.splitlines()
               for number in re.findall(r"(?<=\s)[0-9]+(?=\s)", line.partition(":")[2])[:2])


def play_instructions(bench_, driver):
    """One CPU, so that no addition is lost. An idle guest executes next to nothing."""
    if not instructions.available(bench_.qemu):
        raise NotHere("this QEMU has no plugins")
    file = OUT / "instructions"
    extra = instructions.qemu_args(file)
    found = {}
    with bench_.guest(driver, SMALL_MEM, cpus=1, append=instructions.APPEND, extra=extra) as guest:
        symbols = instructions.Symbols(guest)
        for name, mib in (("inflate", SMALL_MEM - SMALL), ("deflate", SMALL_MEM)):
            before = instructions.Counts.read(file)
            resize(guest, mib)
            counts = instructions.Counts.read(file).since(before)
            pages = SMALL * vm.MIB // PAGE
            where = symbols.functions(counts)
            found[name] = counts.total / pages
            found[f"{name}, the driver's own"] = sum(
                number for (_, module), number in where.items()
                if module == instructions.DRIVER) / pages
            bench_.functions.setdefault(driver, {})[name] = {
                f"{function} [{module}]" if module else function: round(number / pages, 2)
                for (function, module), number in list(where.items())[:FUNCTIONS]}
    file.unlink()
    return found


def play_fragmented(bench_, driver):
    with bench_.guest(driver) as guest:
        lines = guest.lines(f"fragment {LARGE}", timeout=SETTLE_SECONDS, port=1)
        if next(lines).strip() != "ready":
            raise vm.GuestError("memory could not be fragmented")
        seconds = resize(guest, MEM - LARGE // 3)
        lines.close()
    return {"inflate": seconds}


def play_retouch(bench_, driver):
    """Memory that has been in the balloon: how fast it is used again, and in what pages."""
    with bench_.guest(driver) as guest:
        touch(guest, TOUCHED)
        resize(guest, MEM - LARGE)
        resize(guest, MEM)
        lines = guest.lines("memtouch -h 2048 2", timeout=SETTLE_SECONDS, port=1)
        seconds = re.search(r"seconds=([0-9.]+)", next(lines))
        inside = guest.sh("grep AnonHugePages /proc/meminfo")[1]
        outside = Path(f"/proc/{guest.process.pid}/smaps_rollup").read_text()
        found = [int(re.search(r"AnonHugePages:\s+([0-9]+)", text)[1]) // 1024
                 for text in (inside, outside)]
        for _ in lines:
            pass
    return {"2 GiB used again": float(seconds[1]), "guest's huge pages": found[0],
            "host's huge pages": found[1]}


def disturbed(guest, what):
    """What `disturb` saw while what() went on."""
    found = []
    reader = threading.Thread(target=lambda: found.extend(
        guest.lines("disturb", timeout=SETTLE_SECONDS, port=1)), daemon=True)
    reader.start()
    time.sleep(1)
    what()
    guest.sh("kill $(pidof disturb)")
    reader.join(vm.STOP_SECONDS)
    return {name: float(value) for name, value in
            (word.split("=") for word in " ".join(found).split() if "=" in word)}


def play_disturbance(bench_, driver):
    """One second of quiet is part of what is seen, with both drivers."""
    with bench_.guest(driver) as guest:
        quiet = disturbed(guest, lambda: time.sleep(3))
        speed = quiet["copied_mib"] / quiet["seconds"]
        seen = disturbed(guest, lambda: resize(guest, MEM - LARGE))
    usual = quiet["late_ms"] / quiet["seconds"] * seen["seconds"]
    return {"late in all": max(seen["late_ms"] - usual, 0.001), "worst": seen["worst_ms"],
            "not copied": max(speed * seen["seconds"] - seen["copied_mib"], 0.001)}


def zeroing_kernel():
    setup.ensure("kernel")
    return kernels.built("zeroing")


ROWS = {
    "untouched": Row(
        "3 GiB that the guest has not used", play_untouched,
        Figure("inflate", "s", "≥ 1.6 ×, ≤ 1.25 × the floor",
               lambda stock, ours, low: stock >= 1.6 * ours and low and ours <= 1.25 * low),
        Figure("deflate", "s", "≥ 1.05 ×", times(1.05)), quick=True),
    "touched": Row(
        "3 GiB that a program has used, reporting off",
        lambda bench_, driver: play_touched(bench_, driver, False),
        Figure("inflate", "s", "≥ 1.4 ×", times(1.4)), Figure("90 % of it gone", "s")),
    "reported": Row(
        "3 GiB that a program has used, reporting on",
        lambda bench_, driver: play_touched(bench_, driver, True),
        Figure("inflate", "s", "≥ 3.5 ×", times(3.5)),
        Figure("90 % of it gone", "s", "≥ 10 × sooner", times(10)), quick=True),
    "zeroing": Row(
        "1.5 GiB, a kernel that zeroes, with the series' patch",
        lambda bench_, driver: play_zeroing(bench_, driver, zeroing_kernel()),
        Figure("inflate", "s", "≥ 6 ×", times(6)), Figure("deflate", "s")),
    "zeroing-debian": Row(
        "1.5 GiB, Debian's kernel as it boots: it zeroes",
        lambda bench_, driver: play_zeroing(bench_, driver, None),
        Figure("inflate", "s"), Figure("deflate", "s")),
    "hugetlb": Row(
        "1.5 GiB of a guest in huge pages of the host", play_hugetlb,
        Figure("returned", "MiB", "≥ 99 %", lambda _, ours, __: ours >= 0.99 * SMALL, "{:.0f}",
               more_is_better=True),
        Figure("inflate", "s", "≥ 4 ×", times(4)), quick=True),
    "counts": Row(
        "for each GiB of 3 that the guest has not used", play_counts,
        Figure("kicks", "", "≤ 40", at_most(40), "{:.0f}"),
        Figure("config writes", "", "≤ 40", at_most(40), "{:.0f}"),
        Figure("interrupts", "", form="{:.0f}"), once=True, quick=True),
    "instructions": Row(
        "of the guest's, for each page", play_instructions,
        Figure("inflate", "", form="{:.0f}"),
        Figure("inflate, the driver's own", "", form="{:.0f}"),
        Figure("deflate", "", form="{:.0f}"),
        Figure("deflate, the driver's own", "", form="{:.0f}"), once=True),
    "fragmented": Row("1 GiB in single pages", play_fragmented, Figure("inflate", "s")),
    "retouch": Row(
        "memory that was in the balloon", play_retouch, Figure("2 GiB used again", "s"),
        Figure("guest's huge pages", "MiB", form="{:.0f}", more_is_better=True),
        Figure("host's huge pages", "MiB", form="{:.0f}", more_is_better=True)),
    "disturbance": Row(
        "what programs notice while 3 GiB move", play_disturbance,
        Figure("late in all", "ms", "≤ stock's", no_more, "{:.0f}"),
        Figure("worst", "ms", form="{:.1f}"),
        Figure("not copied", "MiB", "≤ stock's", no_more, "{:.0f}")),
}


# --- measuring ------------------------------------------------------------------------------------

def once(bench_, row, driver):
    for number in range(TRIES):
        try:
            return row.play(bench_, driver)
        except RoundLost as lost:
            say(f"    {driver}: {lost}; again")
            if number == TRIES - 1:
                raise vm.GuestError(f"{driver}: no round counted: {lost}") from None
    return {}


def measure(bench_, name, rounds):
    row = ROWS[name]
    drivers = [STOCK, OURS] + ([FLOOR] if row.play is play_untouched else [])
    say(f"{name}: {row.about}")
    try:
        for number in range(1 if row.once else rounds):
            for driver in drivers:
                found = once(bench_, row, driver)
                for figure, value in found.items():
                    row.figures[figure].add(driver, value)
                say(f"    round {number + 1}, {driver}: " + ", ".join(
                    f"{key} {row.figures[key].form.format(value)} {row.figures[key].unit}".rstrip()
                    for key, value in found.items()))
    except NotHere as why:
        row.skipped = str(why)
        say(f"    skipped: {why}")
    except (vm.GuestError, SetupError) as error:
        bench_.problems += [f"{name}: {line}" for line in str(error).splitlines()[:4]]
        say(f"    failed: {error}")


# --- what came of it ------------------------------------------------------------------------------

def spread(figure, driver):
    found = figure.samples.get(driver)
    if not found:
        return "-"
    text = figure.form.format(statistics.median(found))
    if len(found) > 1:
        text += " ±" + figure.form.format((max(found) - min(found)) / 2)
    return text


def table(names):
    lines = [f"{'':45}{'stock':>15}{'ours':>15}{'floor':>13}{'ratio':>8}  wanted"]
    for name in names:
        row = ROWS[name]
        lines.append(f"{name}: {row.about}" + (f" - skipped: {row.skipped}" if row.skipped else ""))
        for figure in row.figures.values() if not row.skipped else ():
            what = f"{figure.name}, {figure.unit}".rstrip(", ")
            ratio = f"{figure.ratio:.2f}" if figure.ratio else ""
            verdict = {True: "met", False: "MISSED", None: ""}[figure.met]
            lines.append(f"    {what:41}{spread(figure, STOCK):>15}{spread(figure, OURS):>15}"
                         f"{spread(figure, FLOOR):>13}{ratio:>8}  {figure.wanted:30}{verdict}"
                         .rstrip())
    return "\n".join(lines)


def save(names, bench_, rounds):
    known = {
        "environment": {
            "qemu": setup.output(bench_.qemu, "--version").split("\n")[0],
            "guest kernel": setup.kernel().release, "cpus": os.cpu_count(),
            "machine": platform.machine(), "rounds": rounds},
        "rows": {name: {"about": ROWS[name].about, "skipped": ROWS[name].skipped, "figures": {
            figure.name: {"unit": figure.unit, "samples": figure.samples, "ratio": figure.ratio,
                          "wanted": figure.wanted, "met": figure.met}
            for figure in ROWS[name].figures.values()}} for name in names},
        "instructions for each page, by function": bench_.functions,
        "problems": bench_.problems}
    (OUT / "bench.json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def draw(names):
    """A bar for each figure that has a ratio."""
    with open(OUT / "bench.dat", "w", encoding="utf-8") as file:
        for name in names:
            for figure in ROWS[name].figures.values():
                wanted = re.search(r"≥ ([0-9.]+) ×", figure.wanted)
                if figure.ratio:
                    file.write(f'"{name}: {figure.name}"\t{figure.ratio:.4f}\t'
                               f'{wanted[1] if wanted else "NaN"}\n')
    if (OUT / "bench.dat").stat().st_size:
        bench.draw("speed.gp", OUT / "bench.dat", OUT / "bench.png")


def choose(text, quick):
    names = text.replace(",", " ").split()
    for name in names:
        if name not in ROWS:
            close = difflib.get_close_matches(name, ROWS, 3)
            raise SetupError(f'there is no row "{name}"'
                             + (f': did you mean {" or ".join(close)}?' if close else ";")
                             + f" ROWS= takes {' '.join(ROWS)}")
    return [name for name, row in ROWS.items() if name in names or not names
            and (row.quick or not quick)]


def parse_arguments():
    default = os.environ.get
    parser = argparse.ArgumentParser(prog="speed.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=default("ROWS") or "", metavar="NAMES",
                        help=f"only these of {' '.join(ROWS)} (ROWS=)")
    parser.add_argument("--rounds", default=default("ROUNDS") or "",
                        help="of each row and driver (ROUNDS=; 5, or 1 if quick)")
    parser.add_argument("--quick", default=default("QUICK") or "0", choices=("0", "1"),
                        help="one round of the main rows, under 3 minutes (QUICK=1)")
    parser.add_argument("--qemu", default=default("QEMU"), metavar="PROGRAM",
                        help="another qemu-system-x86_64 (QEMU=)")
    return parser.parse_args()


def main():
    args = parse_arguments()
    quick = args.quick == "1"
    names = choose(args.rows, quick)
    rounds = bench.whole_number("ROUNDS", args.rounds or ("1" if quick else "5"), 1, 99, "rounds",
                                "the median counts")
    qemu = args.qemu and vm.find_qemu(args.qemu)
    setup.ensure("bench", skip=["qemu-system-x86"] if qemu else [])
    setup.own(OUT)
    start = time.monotonic()
    bench_ = Bench(qemu)
    for name in names:
        measure(bench_, name, rounds)
        save(names, bench_, rounds)
    text = table(names)
    (OUT / "summary.txt").write_text(text + "\n", encoding="utf-8")
    print(f"\n{text}\n")
    draw(names)
    print(f"{time.monotonic() - start:.0f} s. The picture: {OUT.relative_to(setup.ROOT)}/bench.png"
          f"   every sample: {OUT.relative_to(setup.ROOT)}/bench.json")
    for line in bench_.problems:
        print(f"FAIL {line}")
    return 1 if bench_.problems else 0


if __name__ == "__main__":
    setup.guarded(main)
