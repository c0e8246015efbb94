# SPDX-License-Identifier: GPL-2.0
"""`make run`: a real guest gives memory to the host, and takes it back to save a program.

Boots a guest with this driver and plays four steps, with a line a second; leaves a timeline, its
picture, a summary and the guest's log in out/run. Exits 1 if a step did not do what it says.
"""

import csv
import os
import re
import shutil
import time
from dataclasses import dataclass, field

import bench
import setup
import vm
from setup import SetupError, say

OUT = setup.OUT / "run"
MIN_MEM_MIB = 512
MAX_MEM_MIB = 1 << 20
KERNEL_MIB = 128            # what a guest's kernel takes, and 1/16 of the memory beside
WATERMARK_MIB = 96          # what it keeps free, and reclaims page cache for
SAMPLE_MS = 200             # the picture's grain: inflating takes about a second
PAUSE = 3                   # seconds between steps, so that each shows in the picture
PAGE_MIB = 1 / 256

COLUMNS = ["time_s", "step", "target_mib", "actual_mib", "host_rss_mib", "guest_free_mib",
           "guest_cache_mib", "oom_kills", "balloon_inflate_pages", "balloon_deflate_pages"]
HEADER = """\
    time  step                        target  actual  host RSS  guest free   cache  OOM kills
       s                                 MiB     MiB       MiB         MiB     MiB"""


# --- what was asked for -----------------------------------------------------------------------

def host_available_mib():
    with open("/proc/meminfo", encoding="ascii") as file:
        return int(re.search(r"MemAvailable: +([0-9]+) kB", file.read())[1]) // 1024


def least_target(mem):
    """The least that leaves a guest enough to show something with."""
    return KERNEL_MIB + mem // 16


def check_sizes(args):
    """Refuse what cannot work, by name, before anything is started."""
    mem = bench.mebibytes("MEM", args.mem, MIN_MEM_MIB, MAX_MEM_MIB, "the guest's memory")
    if mem > host_available_mib():
        raise SetupError(f"MEM={mem}: this machine has only {host_available_mib()} MiB available; "
                         "the guest will use nearly all of its memory")
    if not re.fullmatch("[0-9]+", args.target):
        raise SetupError(f'TARGET="{args.target}" is no number of MiB')
    if int(args.target) > mem:
        raise SetupError(f"TARGET={args.target} is more than the guest's memory, MEM={mem}")
    target = bench.mebibytes("TARGET", args.target, least_target(mem), mem * 3 // 4,
                             f"with MEM={mem}: less would not keep the guest alive, "
                             "more would leave nothing to show")
    return mem, target


def parse_arguments():
    parser = setup.parser("run.py", __doc__)
    default = os.environ.get
    parser.add_argument("--mem", default=default("MEM") or "2048", metavar="MIB",
                        help="the guest's memory (MEM=, %(default)s)")
    parser.add_argument("--target", default=default("TARGET") or "512", metavar="MIB",
                        help="what the balloon leaves to the guest (TARGET=, %(default)s)")
    vm.add_qemu(parser)
    return parser.parse_args()


# --- watching ---------------------------------------------------------------------------------

class Timeline(bench.Sampler):
    """Samples of guest and host."""

    def __init__(self, guest, target_mib):
        super().__init__(guest, SAMPLE_MS)
        self.target_mib = target_mib
        self.step = "0 boot"
        self.start = None
        self.rows = []
        self.steps = []             # (time, label) where a step begins

    def __enter__(self):
        print(HEADER, flush=True)
        self.start = time.monotonic()
        return super().__enter__()

    def now(self):
        return time.monotonic() - self.start

    def begin(self, step, label):
        """From here on, samples belong to this step."""
        self.step = step
        self.steps.append((self.now(), label))

    def add(self, seen):
        row = [self.now(), self.step, self.target_mib, self.guest.actual_bytes() / vm.MIB,
               self.guest.rss_kib() / 1024, seen["MemFree"] / 1024,
               (seen["Buffers"] + seen["Cached"]) / 1024, seen["oom_kill"],
               seen["balloon_inflate"], seen["balloon_deflate"]]
        if not self.rows or int(row[0]) > int(self.rows[-1][0]):
            self._print(row)
        self.rows.append(row)

    def _print(self, row):
        seconds, step, target, actual, rss, free, cache, kills = row[:8]
        print(f"{seconds:8.1f}  {step:26} {target:7}{actual:8.0f}{rss:10.0f}{free:12.0f}"
              f"{cache:8.0f}{kills:11}", flush=True)

    def last(self):
        """The newest sample, by name, no older than a second or two."""
        deadline = time.monotonic() + 20
        after = self.now()
        while not self.rows or self.rows[-1][0] < after:
            if self.error:
                raise self.error
            if time.monotonic() > deadline:
                raise vm.GuestTimeout("the guest gave no sample for 20 s")
            time.sleep(0.02)
        return dict(zip(COLUMNS, self.rows[-1]))

    def highest(self, column, since):
        at = COLUMNS.index(column)
        return max((row[at] for row in self.rows if row[0] >= since), default=0)

    def save(self):
        with open(OUT / "timeline.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows([f"{cell:.2f}" if isinstance(cell, float) else cell for cell in row]
                             for row in self.rows)
        with open(OUT / "steps.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("time_s", "label"),
                                        *((f"{when:.2f}", label) for when, label in self.steps)])


# --- the steps --------------------------------------------------------------------------------

@dataclass
class Result:
    step: str
    measured: str
    faults: list = field(default_factory=list)      # empty: the step did what it says

    def need(self, true, otherwise):
        if not true:
            self.faults.append(otherwise)


class Play:
    """The guest, its timeline, and what each step found."""

    def __init__(self, guest, timeline, mem, target):
        self.guest, self.timeline = guest, timeline
        self.mem, self.target = mem, target
        self.results = []
        self.patience = 60 + mem / 1024 * 30        # seconds; a step takes about 2 s per GiB

    def move(self, target_mib):
        """Set a target; the seconds until the guest is there, or None."""
        self.timeline.target_mib = target_mib
        self.guest.set_target_bytes(target_mib * vm.MIB)
        return bench.wait_for_target(self.guest, target_mib, self.patience)

    def run(self, command):
        code, text = self.guest.sh(command, timeout=self.patience)
        return code, text.strip()

    def prepare(self):
        """Let the guest use most of its memory once: only then has the host given it."""
        self.timeline.begin("0 using memory once", "all memory is used once")
        code, text = self.run(f"memtouch {self.mem * 8 // 10}")
        if code:
            raise vm.GuestError(f"the guest could not use its memory: {text}")
        time.sleep(PAUSE)

    def give(self):
        before = self.timeline.last()
        self.timeline.begin("1 giving", f"1: target {self.target} MiB")
        seconds = self.move(self.target)
        time.sleep(PAUSE)
        after = self.timeline.last()
        rss = before["host_rss_mib"], after["host_rss_mib"]
        result = Result(f"1  target {self.mem} → {self.target} MiB",
                        f"{took(seconds)}; host RSS {rss[0]:.0f} → {rss[1]:.0f} MiB")
        result.need(seconds is not None, f"the balloon stopped at {after['actual_mib']:.0f} MiB")
        surplus = self.mem * 8 // 10 - self.target      # used once, and not left to the guest
        result.need(rss[0] - rss[1] >= surplus * 0.8,
                    f"the host should have got {surplus * 0.8:.0f} MiB or more")
        self.results.append(result)

    def fill_cache(self):
        before = self.timeline.last()
        self.timeline.begin("2 filling the page cache", "2: the page cache fills")
        # The last one to close a block device drops its page cache: a sleeper keeps it open.
        self.run("sleep 36000 </dev/vda >/dev/null 2>&1 & echo $! >/tmp/holder")
        code, text = self.run("for i in 1 2; do dd if=/dev/vda of=/dev/null bs=1M || exit 1; done")
        time.sleep(PAUSE)
        after = self.timeline.last()
        cache = before["guest_cache_mib"], after["guest_cache_mib"]
        deflated = after["balloon_deflate_pages"] - before["balloon_deflate_pages"]
        result = Result("2  page cache filled from a disk",
                        f"cache {cache[0]:.0f} → {cache[1]:.0f} MiB; "
                        f"the balloon gave back {deflated} pages")
        result.need(code == 0, f"the disk could not be read: {text}")
        result.need(cache[1] > (before["guest_free_mib"] - WATERMARK_MIB) / 2,
                    "the cache did not fill")
        result.need(deflated == 0 and after["actual_mib"] == self.target,
                    "the balloon did not stay")
        result.need(after["oom_kills"] == 0, f"{after['oom_kills']} programs were killed")
        self.results.append(result)

    def save_program(self):
        before = self.timeline.last()
        left = int(before["guest_free_mib"] + before["guest_cache_mib"])
        need = left + (self.mem - self.target) // 3
        self.timeline.begin("3 a program needs memory",
                            f"3: a program needs {need} MiB, {left} are left")
        start = self.timeline.now()
        code, text = self.run(f"memtouch {need} {PAUSE}")
        after = self.timeline.last()
        back = (after["balloon_deflate_pages"] - before["balloon_deflate_pages"]) * PAGE_MIB
        told = dict(word.split("=") for word in text.split() if "=" in word)
        result = Result(f"3  program of {need} MiB, {left} MiB left",
                        f"{survival(code, told)}; {back:.0f} MiB came back, "
                        f"OOM kills {after['oom_kills']}")
        result.need(code == 0, f"the program ended with {code}: {text}")
        result.need(back > 0, "the balloon did not deflate")
        result.need(self.timeline.highest("oom_kills", start) == 0, "the OOM killer ran")
        self.results.append(result)
        time.sleep(PAUSE)

    def take_back(self):
        self.run("kill $(cat /tmp/holder)")
        self.timeline.begin("4 taking back", f"4: target {self.mem} MiB")
        seconds = self.move(self.mem)
        time.sleep(PAUSE)
        after = self.timeline.last()
        kept = after["balloon_inflate_pages"] - after["balloon_deflate_pages"]
        result = Result(f"4  target back to {self.mem} MiB",
                        f"{took(seconds)}; balloon_inflate − balloon_deflate = {kept} pages")
        result.need(seconds is not None, f"the balloon stopped at {after['actual_mib']:.0f} MiB")
        result.need(kept == 0, f"{kept} pages did not come back")
        self.results.append(result)

    def statistics(self):
        found = self.guest.stats()
        age = int(time.time()) - found.pop("last-update")
        known = sum(1 for value in found.values() if 0 <= value < 1 << 63)
        result = Result("   statistics for the host", f"{known} kinds, {age} s old")
        result.need(age <= 5, "they are not fresh")
        result.need(known > 0, "there are none")
        self.results.append(result)

    def kernel_log(self):
        bad = self.guest.problems()
        result = Result("   the guest's kernel log", f"{len(bad)} bad lines" if bad else "clean")
        result.faults += bad[:3]
        self.results.append(result)

    def everything(self):
        """All steps, up to one that the guest does not outlive; its log is read in any case."""
        try:
            for act in (self.prepare, self.give, self.fill_cache, self.save_program,
                        self.take_back, self.statistics):
                act()
        except vm.GuestError as error:
            self.results.append(Result(self.timeline.step, "could not be finished", [str(error)]))
        self.kernel_log()


def took(seconds):
    return "not reached" if seconds is None else f"reached in {seconds:.1f} s"


def survival(code, told):
    if code or "seconds" not in told:
        return "did not live"
    return f"lived: {told['seconds']} s, worst MiB {int(told['worst_ns']) / 1e6:.1f} ms"


# --- what is left at the end ------------------------------------------------------------------

def summary(results):
    wide = max(len(result.step) for result in results)
    across = max(len(result.measured) for result in results)
    lines = []
    for result in results:
        verdict = "FAIL" if result.faults else "PASS"
        lines.append(f"{result.step:{wide}}   {result.measured:{across}}   {verdict}")
        lines += ["   ^ " + fault.replace("\n", "\n     ") for fault in result.faults]
    return "\n".join(lines)


def draw(mem, target):
    title = (f"A {mem} MiB guest gives memory to the host (target {target} MiB), "
             "and takes it back to save a program")
    bench.draw("timeline.gp", OUT / "timeline.csv", OUT / "steps.csv", OUT / "timeline.png", title,
               mem)


def random_disk(mib):
    """A file of random bytes, kept in the cache for the next run (one size only)."""
    folder = setup.CACHE / "disk"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = folder / f"random-{mib}"
    if not wanted.exists():
        for other in folder.glob("random-*"):
            shutil.rmtree(other, ignore_errors=True)
        if shutil.disk_usage(folder).free < (mib + 256) * vm.MIB:
            raise SetupError(f"{folder} has no room for a disk file of {mib} MiB")

    def fill(new):
        say(f"Writing a disk of {mib} MiB of random data ...")
        with open(new / "disk.img", "wb") as file:
            for _ in range(mib):
                file.write(os.urandom(vm.MIB))

    return setup.cached(wanted, fill) / "disk.img"


def play(args, mem, target):
    guest = vm.Guest(OUT, mem_mib=mem, module=setup.module(),
                     qemu=args.qemu,
                     balloon="deflate-on-oom=on,free-page-hint=on",
                     programs=["memtouch", "sample"],
                     drives=[(random_disk(target), "format=raw,readonly=on")])
    say(f"Booting a guest of {mem} MiB ...")
    with guest:
        guest.stats_interval(1)
        with Timeline(guest, mem) as timeline:
            acts = Play(guest, timeline, mem, target)
            try:
                acts.everything()
            finally:
                timeline.save()
    if timeline.rows:
        draw(mem, target)
    return acts.results


def main():
    args = parse_arguments()
    mem, target = check_sizes(args)
    args.qemu = vm.prepare("run", args.qemu)
    setup.own(OUT)
    start = time.monotonic()
    try:
        results = play(args, mem, target)
    except vm.GuestError as error:
        say(f"FAIL: {error}\n  logs: {OUT.relative_to(setup.ROOT)}/console.log, qemu.log")
        return 1
    table = summary(results)
    (OUT / "summary.txt").write_text(table + "\n", encoding="utf-8")
    print("\n" + table)
    where = OUT.relative_to(setup.ROOT)
    print(f"\n{time.monotonic() - start:.0f} s. The picture: {where}/timeline.png   the figures: "
          f"{where}/timeline.csv   the guest's log: {where}/console.log")
    return 1 if any(result.faults for result in results) else 0


if __name__ == "__main__":
    setup.guarded(main)
