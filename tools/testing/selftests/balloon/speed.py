# SPDX-License-Identifier: GPL-2.0
"""`make bench`: how fast memory moves, and at what price; the kernel's driver beside this one.

Every row measures both drivers in turn, round by round, in guests of the same kernel and QEMU, never
two at a time. What counts is the ratio of the medians. Seconds on an emulated machine say little
about another; ratios within one run travel better.
"""

import contextlib
import difflib
import json
import os
import platform
import re
import resource
import statistics
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import bench
import instructions
import kernels
import run
import setup
import vm
from setup import SetupError, say

OUT = setup.OUT / "bench"
STOCK, OURS, FLOOR = "stock", "ours", "floor"
OVER_FLOOR = "{}, times the floor"
MEM = 4096                  # MiB, of the guests that move 3 GiB
LARGE = 3072                # MiB that are moved
SMALL_MEM, SMALL = 2048, 1536
TOUCHED = 3600              # MiB that a program has written to and freed: nearly all there is
KEPT = 64                   # MiB that may leave QEMU for other reasons than the balloon
BROKEN = 3700               # MiB that are broken into single pages, and every other one is free
PAGE = 4096
BLOCK_ORDER = 9             # 2 MiB of them
SETTLE_SECONDS = 180
BALLOON_QUEUES = 5
PROGRAMS = ["memtouch", "disturb", "fragment"]
HUGEPAGES = Path("/proc/sys/vm/nr_hugepages")
HUGE_MIB = 2
SPARE = 512                 # MiB that QEMU takes beside the guest's, and some for others
HUGE_SPARE = 64             # MiB; QEMU wants a few more than the guest has
BUSY = 0.25                 # CPUs used by others, from which on figures are to be doubted
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
    good: Callable = None       # (stock, ours) -> bool, of medians
    form: str = "{:.2f}"
    more_is_better: bool = False
    compared: bool = True       # less, or more, is better
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
        if not self.compared or stock is None or ours is None or not min(stock, ours) > 0:
            return None
        return ours / stock if self.more_is_better else stock / ours

    @property
    def least(self):
        """The ratio that is wanted, or None."""
        stock, least = self.median(STOCK), re.match(r"≥ ([0-9.]+) ×", self.wanted)
        if least:
            return float(least[1])
        most = re.fullmatch("≤ ([0-9.]+)", self.wanted)
        if most and stock and self.compared:
            return stock / float(most[1])
        return 1.0 if self.good is no_more else None

    @property
    def bound(self):
        """The ratio that the device itself would have, or None."""
        stock, low = self.median(STOCK), self.median(FLOOR)
        return stock / low if stock and low else None

    @property
    def met(self):
        if self.good is None or self.median(OURS) is None or self.median(STOCK) is None:
            return None
        return bool(self.good(self.median(STOCK), self.median(OURS)))


def times(factor):
    return lambda stock, ours: stock >= factor * ours


def no_more(stock, ours):
    return ours <= stock


def at_most(limit):
    return lambda _, ours: ours <= limit


def at_least(limit):
    return lambda _, ours: ours >= limit


class Row:
    """What is measured together. `play` measures one driver once and gives {figure: value}."""

    def __init__(self, about, play, *figures, quick=False, once=False):
        self.about, self.play, self.quick, self.once = about, play, quick, once
        self.figures = {figure.name: figure for figure in figures}
        self.skipped = None
        self.others = 0.0       # CPUs that other programs of this machine used meanwhile


class Load:
    """How many CPUs other programs than this one, its QEMUs included, use on this machine."""

    def __enter__(self):
        self.begun, self.busy, self.own = time.monotonic(), self._busy(), self._own()
        return self

    def __exit__(self, *_):
        seconds = time.monotonic() - self.begun
        self.others = max(self._busy() - self.busy - (self._own() - self.own), 0) / seconds

    @staticmethod
    def _busy():
        user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = (
            int(word) for word in Path("/proc/stat").read_text().split()[1:10])
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _own():
        used = [resource.getrusage(who)
                for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used)


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
        if run.host_available_mib() < mem + SPARE:
            raise NotHere(f"this machine has no {mem + SPARE} MiB of memory available")
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

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()

    def run(self):
        with contextlib.suppress(vm.GuestError, OSError):
            while not self.over.is_set():
                self.look()
                time.sleep(0.005)

    def look(self):
        self.seen.append((time.monotonic(), self.guest.rss_kib() / 1024))

    def last(self):
        self.look()
        return self.seen[-1][1]

    def most(self):
        return max(rss for _, rss in self.seen)

    def below(self, mib, start):
        """Seconds from `start` until there was no more than that."""
        return next(at - start for at, rss in sorted(self.seen) if at >= start and rss <= mib)


# --- what is measured ---------------------------------------------------------------------------

def compare_with_floor(row):
    """How far each round was from the device's own time."""
    for name in ("inflate", "deflate"):
        low = row.figures[name].median(FLOOR)
        for driver in (STOCK, OURS) if low else ():
            row.figures[OVER_FLOOR.format(name)].samples[driver] = [
                seconds / low for seconds in row.figures[name].samples[driver]]


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


def reports(guest):
    """How many the device has answered, modulo 2^16: the last of its queues is theirs."""
    path = guest.virtio_path()
    last = guest.qmp("x-query-virtio-status", path=path)["num-vqs"] - 1
    return guest.qmp("x-query-virtio-queue-status", path=path, queue=last)["used-idx"]


def play_touched(bench_, driver, reporting):
    """A round counts if all the memory was still the guest's when the target was set.

    The page_reporting core begins 2 s after memory is freed. Where a driver is still inflating then,
    the core helps it; "reports" tells.
    """
    with bench_.guest(driver, balloon="deflate-on-oom=on,free-page-reporting="
                      + ("on" if reporting else "off")) as guest:
        with RssWatch(guest) as watch:
            touch(guest, TOUCHED)
            before = reports(guest) if reporting else 0
            start = time.monotonic()
            full = watch.last()
            if full < max(watch.most(), TOUCHED) - KEPT:
                raise RoundLost(f"{watch.most() - full:.0f} MiB had left the guest already")
            seconds = resize(guest, MEM - LARGE)
            left = watch.last()
        found = {"inflate": seconds, "90 % of it gone": watch.below(full - 0.9 * (full - left), start)}
        if full - left < 0.85 * LARGE:
            raise RoundLost(f"only {full - left:.0f} MiB of {LARGE} had been the host's")
        if reporting:
            found["reports meanwhile"] = (reports(guest) - before) % (1 << 16)
        return found


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
    memory = ["-object", f"memory-backend-memfd,id=mem,size={SMALL_MEM}M,hugetlb=on,hugetlbsize=2M,"
                         "prealloc=on", "-machine", "memory-backend=mem"]
    with huge_pages(SMALL_MEM + HUGE_SPARE):
        with bench_.guest(driver, SMALL_MEM, extra=memory) as guest:
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
    device = balloon_device(text)
    kicks = len(re.findall(rf"virtio_queue_notify vdev {device} n 0 ", text))
    gib = LARGE / 1024
    return {"kicks": kicks / gib, "interrupts": interrupts / gib,
            "config writes": text.count("virtio_balloon_set_config") / gib}


def balloon_device(trace):
    """Of the two devices that are notified, the one with few queues: the other has the shells'."""
    queues = {}
    for device, number in re.findall(r"virtio_queue_notify vdev (\S+) n ([0-9]+) ", trace):
        queues.setdefault(device, set()).add(int(number))
    found = [device for device, numbers in queues.items() if max(numbers) < BALLOON_QUEUES]
    if len(found) != 1:
        raise vm.GuestError(f"QEMU's trace does not tell which device is the balloon: {queues}")
    return found[0]


def balloon_interrupts(guest):
    """Of all the balloon's queues, as their vectors may be shared; without MSI-X, of its line."""
    name = guest.sh("basename /sys/bus/virtio/drivers/virtio_balloon/virtio*")[1].strip()
    found = 0
    for line in guest.sh("cat /proc/interrupts")[1].splitlines():
        words = line.replace(",", " ").split()
        if name in words or any(word.startswith(name + "-") and not word.endswith("-config")
                                for word in words):
            found += sum(int(word) for word in words[1:1 + guest.cpus])
    return found


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


def free_blocks(guest):
    """MiB that are free in blocks of 2 MiB and more."""
    text = guest.sh("cat /proc/buddyinfo")[1]
    return sum(int(number) << order for line in text.splitlines()
               for order, number in enumerate(line.split()[4 + BLOCK_ORDER:], 1))


def play_fragmented(bench_, driver):
    """The kernel must not mend in the background what is broken here: how far it comes is chance."""
    with bench_.guest(driver) as guest:
        guest.sh("echo 0 >/proc/sys/vm/compaction_proactiveness")
        lines = guest.lines(f"fragment {BROKEN}", timeout=SETTLE_SECONDS, port=1)
        if next(lines).strip() != "ready":
            raise vm.GuestError("memory could not be fragmented")
        blocks = free_blocks(guest)
        if blocks > SMALL / 4:
            raise RoundLost(f"{blocks} MiB were free in whole blocks")
        seconds = resize(guest, MEM - SMALL)
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
        moves = [disturbed(guest, lambda mib=mib: resize(guest, mib)) for mib in (MEM - LARGE, MEM)]
    seconds = sum(seen["seconds"] for seen in moves)
    late = sum(seen["late_ms"] for seen in moves)
    copied = sum(seen["copied_mib"] for seen in moves)
    return {"late in all": late - quiet["late_ms"] / quiet["seconds"] * seconds,
            "worst": max(seen["worst_ms"] for seen in moves),
            "not copied": quiet["copied_mib"] / quiet["seconds"] * seconds - copied}


def zeroing_kernel():
    setup.ensure("kernel")
    return kernels.built("zeroing")


ROWS = {
    "untouched": Row(
        "3 GiB that the guest has not used", play_untouched,
        Figure("inflate", "s", "≥ 1.6 ×", times(1.6)),
        Figure(OVER_FLOOR.format("inflate"), "", "≤ 1.25", at_most(1.25), compared=False),
        Figure("deflate", "s", "≥ 1.05 ×", times(1.05)),
        Figure(OVER_FLOOR.format("deflate"), "", compared=False), quick=True),
    "touched": Row(
        "3 GiB that a program has used, reporting off",
        lambda bench_, driver: play_touched(bench_, driver, False),
        Figure("inflate", "s", "≥ 1.4 ×", times(1.4)),
        Figure("90 % of it gone", "s", form="{:.3f}")),
    "reported": Row(
        "3 GiB that a program has used, reporting on",
        lambda bench_, driver: play_touched(bench_, driver, True),
        Figure("inflate", "s", "≥ 3.5 ×", times(3.5)),
        Figure("90 % of it gone", "s", "≥ 10 × sooner", times(10), "{:.3f}"),
        Figure("reports meanwhile", "", form="{:.0f}", compared=False), quick=True),
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
        Figure("returned", "MiB", "≥ 99 %", at_least(0.99 * SMALL), "{:.0f}",
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
    "fragmented": Row("1.5 GiB in single pages", play_fragmented, Figure("inflate", "s")),
    "retouch": Row(
        "memory that was in the balloon", play_retouch, Figure("2 GiB used again", "s"),
        Figure("guest's huge pages", "MiB", form="{:.0f}", more_is_better=True),
        Figure("host's huge pages", "MiB", form="{:.0f}", more_is_better=True)),
    "disturbance": Row(
        "what programs notice while 3 GiB go and come", play_disturbance,
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
        if FLOOR in drivers:
            compare_with_floor(row)
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
        lines.append(f"{name}: {row.about}" + (f" - skipped: {row.skipped}" if row.skipped else "")
                     + (f" - other programs used {row.others:.1f} CPUs meanwhile"
                        if row.others > BUSY else ""))
        for figure in row.figures.values() if not row.skipped else ():
            what = f"{figure.name}, {figure.unit}".rstrip(", ")
            ratio = f"{figure.ratio:.2f}" if figure.ratio else ""
            verdict = {True: "met", False: "MISSED", None: ""}[figure.met]
            lines.append(f"    {what:41}{spread(figure, STOCK):>15}{spread(figure, OURS):>15}"
                         f"{spread(figure, FLOOR):>13}{ratio:>8}  {figure.wanted:30}{verdict}"
                         .rstrip())
    return "\n".join(lines)


def cpu_model():
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else "unknown"


def save(names, bench_, rounds):
    known = {
        "environment": {
            "qemu": setup.output(bench_.qemu, "--version").split("\n")[0],
            "guest kernel": setup.kernel().release, "cpus": os.cpu_count(), "cpu": cpu_model(),
            "host kernel": platform.release(), "machine": platform.machine(), "rounds": rounds},
        "rows": {name: {"about": ROWS[name].about, "skipped": ROWS[name].skipped,
                        "CPUs used by others": ROWS[name].others, "figures": {
            figure.name: {"unit": figure.unit, "samples": figure.samples, "ratio": figure.ratio,
                          "wanted": figure.wanted, "met": figure.met}
            for figure in ROWS[name].figures.values()}} for name in names},
        "instructions for each page, by function": bench_.functions,
        "problems": bench_.problems}
    (OUT / "bench.json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def draw(names):
    """A bar for each figure that has a ratio, with marks for what is wanted and what is possible."""
    bars = [(f"{name}: {figure.name}", figure) for name in names
            for figure in ROWS[name].figures.values() if figure.ratio]
    number = lambda value: "NaN" if value is None else f"{value:.4f}"  # noqa: E731
    lines = [f'"{name}"\t{figure.ratio:.4f}\t{number(figure.least)}\t{number(figure.bound)}'
             f"\t{int(figure.met is False)}" for name, figure in bars]
    (OUT / "bench.dat").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if bars:
        bench.draw("speed.gp", OUT / "bench.dat", OUT / "bench.png",
                   max(max(figure.ratio, figure.least or 0, figure.bound or 0)
                       for _, figure in bars))


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
    parser = setup.parser("speed.py", __doc__)
    parser.add_argument("--rows", default=default("ROWS") or "", metavar="NAMES",
                        help=f"only these of {' '.join(ROWS)} (ROWS=)")
    parser.add_argument("--rounds", default=default("ROUNDS") or "",
                        help="of each row and driver (ROUNDS=; 5, or 1 if quick)")
    parser.add_argument("--quick", action="store_true", default=setup.flag("QUICK"),
                        help="one round of the main rows, under 3 minutes (QUICK=1)")
    vm.add_qemu(parser)
    return parser.parse_args()


def main():
    args = parse_arguments()
    names = choose(args.rows, args.quick)
    rounds = bench.whole_number("ROUNDS", args.rounds or ("1" if args.quick else "5"), 1, 99,
                                "rounds", "the median counts")
    qemu = vm.prepare("bench", args.qemu)
    setup.own(OUT)
    start = time.monotonic()
    bench_ = Bench(qemu)
    for name in names:
        with Load() as load:
            measure(bench_, name, rounds)
        ROWS[name].others = round(load.others, 2)
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
