# SPDX-License-Identifier: GPL-2.0
"""`make page-cache`: page cache against the balloon, from the OOM notifier and from a shrinker.

The experiment that this project began with. A guest reads a file in a loop that fills its page
cache, and the host wants nearly all of its memory. Once, the driver deflated from a shrinker, so
whenever reclaim ran: the balloon gave way to the cache, was refilled, and gave way again. Both are
measured in the same run: this driver, and the same with historic-shrinker.patch.
"""

import csv
import json
import os
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, field

import bench
import setup
import vm
from setup import say

OUT = setup.OUT / "page-cache"
MEM = 2048                  # MiB; the file, and what the host wants to leave, as parts of it
FILE = MEM * 42 // 64
TARGET = MEM * 11 // 64
SAMPLE_MS = 100
FINISH_SECONDS = 180        # without the reader, or back to zero
PUBLISHED = {"time": 8.6, "pages": 12}      # 64 GiB, 16 CPUs, a file of 42 GiB, 53 GiB wanted

# What the driver is, and how it is drawn.
OURS, HISTORIC = "from the OOM notifier", "from a shrinker"


@dataclass
class Case:
    """One driver, one medium: what was seen."""
    driver: str
    medium: str
    rows: list = field(default_factory=list)    # (seconds, actual MiB, inflated, deflated, kills)
    begun: float = 0.0
    reached: float | None = None                # seconds until the target, with the reader at work
    finished: float | None = None               # the same, the reader's end included
    stuck: float = 0.0                          # longest time without a new low
    inflated: int = 0
    deflated: int = 0                           # until the end of inflation: there is no reason to
    read_mib: int = 0
    kills: int = 0
    left: int = 0                               # pages, after everything was given back
    problems: list = field(default_factory=list)

    @property
    def name(self):
        return f"{self.driver}, {self.medium}"

    @property
    def moved(self):
        return self.inflated + self.deflated


# --- the drivers and the file -----------------------------------------------------------------

def ext4_image():
    """A filesystem with nothing but the file, random bytes; kept in the cache."""
    def make(new):
        say(f"Writing a file of {FILE} MiB of random data into an ext4 image ...")
        (new / "root").mkdir()
        with open(new / "root/file", "wb") as file:
            for _ in range(FILE):
                file.write(os.urandom(vm.MIB))
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", new / "root",
                        new / "disk.img", f"{FILE * 21 // 20}M"], check=True)
        shutil.rmtree(new / "root")

    return setup.cached(setup.CACHE / "disk" / f"ext4-{FILE}", make) / "disk.img"


# --- one guest --------------------------------------------------------------------------------

class Watch(bench.Sampler):
    """Samples of the guest, for the case."""

    def __init__(self, guest, case):
        super().__init__(guest, SAMPLE_MS)
        self.case = case

    def add(self, seen):
        self.case.rows.append((time.monotonic() - self.case.begun,
                               self.guest.actual_bytes() / vm.MIB, seen["balloon_inflate"],
                               seen["balloon_deflate"], seen["oom_kill"]))


def wait_for_target(guest, mib, seconds, progress):
    """Seconds until the balloon is there, or None."""
    said = 0

    def waiting(passed):
        nonlocal said
        if passed > said + 10:
            said = passed
            say(f"    {said:4.0f} s  {progress}: {guest.actual_bytes() // vm.MIB} MiB, "
                f"target {mib}")

    return bench.wait_for_target(guest, mib, seconds, waiting)


def counters(guest):
    found = bench.counters(guest)
    return found["balloon_inflate"], found["balloon_deflate"], found["oom_kill"]


def longest_without_progress(case, until):
    """The longest time in which `actual` made no new low, until the target or the end."""
    lowest, since, longest = float("inf"), 0.0, 0.0
    for seconds, actual, *_ in case.rows:
        if seconds < 0 or seconds > until:
            continue
        if actual < lowest:
            lowest, since = actual, seconds
        longest = max(longest, seconds - since)
    return longest


def start_reader(guest, path):
    """The reader, on a shell of its own; what it says at its end is put into the list."""
    said = []

    def read():
        said.append(guest.sh(f"readloop {path}", timeout=3600, port=2)[1])

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread, said


def play(guest, case, path, read_seconds):
    """Fill the cache, set the target and read on; stop reading, let it finish; back to zero."""
    guest.sh(f"readloop {path} 1", timeout=300)
    thread, said = start_reader(guest, path)
    case.begun = time.monotonic()
    with Watch(guest, case) as watch:
        guest.set_target_bytes(TARGET * vm.MIB)
        case.reached = wait_for_target(guest, TARGET, read_seconds, "reading on")
        reading = time.monotonic() - case.begun
        guest.sh("killall -TERM readloop")
        thread.join(60)
        case.finished = case.reached
        if case.reached is None and wait_for_target(guest, TARGET, FINISH_SECONDS, "reader ended"):
            case.finished = time.monotonic() - case.begun
        case.inflated, case.deflated, case.kills = counters(guest)
        guest.set_target_bytes(MEM * vm.MIB)
        wait_for_target(guest, MEM, FINISH_SECONDS, "back to zero")
    if watch.error:
        raise watch.error
    inflated, deflated, _ = counters(guest)
    case.left = inflated - deflated
    case.stuck = longest_without_progress(case, case.finished or reading)
    case.read_mib = int(said[0].split("mib=")[1]) if said and "mib=" in said[0] else 0
    case.problems = guest.problems()


def measure(case, module, read_seconds, qemu):
    say(f"{case.name}: booting a guest of {MEM} MiB ...")
    outdir = OUT / case.name.replace(", ", "-").replace(" ", "-")
    guest = vm.Guest(outdir, mem_mib=MEM, module=module, programs=["sample", "readloop"],
                     balloon="deflate-on-oom=on", modules=["crc32c_generic", "ext4"],
                     drives=[(ext4_image(), "format=raw,readonly=on")], qemu=qemu)
    with guest:
        # Open all the time: the last to close a block device drops its page cache.
        guest.sh("sleep 36000 </dev/vda >/dev/null 2>&1 &")
        path = "/dev/vda"
        if case.medium == "ext4":
            code, text = guest.sh("mkdir /data && mount -t ext4 -o ro,noload /dev/vda /data")
            if code:
                raise vm.GuestError(f"the guest could not mount its disk: {text}")
            path = "/data/file"
        play(guest, case, path, read_seconds)
    say(f"  {describe(case)}")
    return case


# --- what came of it --------------------------------------------------------------------------

def describe(case):
    when = (f"target reached in {case.reached:.1f} s" if case.reached else
            f"target not reached while reading; {finish(case)}")
    return (f"{when}; {case.inflated} pages inflated, {case.deflated} deflated; "
            f"longest without a new low {case.stuck:.1f} s; {case.read_mib} MiB read; "
            f"OOM kills {case.kills}")


def finish(case):
    return f"reached {case.finished:.0f} s after the start" if case.finished else "never reached"


def faults(cases):
    """Where this driver did not do what it promises."""
    found = []
    wanted = (MEM - TARGET) * vm.MIB // 4096
    for case in (case for case in cases if case.driver == OURS):
        if case.reached is None:
            found.append(f"{case.name}: the target was not reached while the reader ran")
        if case.deflated:
            found.append(f"{case.name}: {case.deflated} pages were deflated while inflating")
        if case.inflated > wanted * 1.01:
            found.append(f"{case.name}: {case.inflated} pages inflated, {wanted} wanted")
        if case.left or case.kills:
            found.append(f"{case.name}: {case.left} pages left over, {case.kills} kills")
        found += [f"{case.name}: {line}" for line in case.problems[:3]]
    return found


def ratios(cases, medium, read_seconds):
    """Historic over ours: (time, whether that is only a lower bound, pages moved)."""
    by = {case.driver: case for case in cases if case.medium == medium}
    ours, historic = by[OURS], by[HISTORIC]
    seconds = historic.reached or read_seconds
    return (seconds / ours.reached if ours.reached else 0, historic.reached is None,
            historic.moved / max(ours.moved, 1))


def table(cases, read_seconds):
    lines = [f"{'':34}{'reached':>10}{'no new low':>12}{'inflated':>12}{'deflated':>12}"
             f"{'read':>10}{'OOM':>6}",
             f"{'':34}{'s':>10}{'s':>12}{'pages':>12}{'pages':>12}{'MiB':>10}{'kills':>6}"]
    for case in cases:
        reached = f"{case.reached:.1f}" if case.reached else f"> {read_seconds}"
        lines.append(f"{case.name:34}{reached:>10}{case.stuck:12.1f}{case.inflated:12}"
                     f"{case.deflated:12}{case.read_mib:10}{case.kills:6}")
    for medium in dict.fromkeys(case.medium for case in cases):
        slower, bound, more = ratios(cases, medium, read_seconds)
        lines.append(f"{medium}: the shrinker took {'more than ' if bound else ''}{slower:.1f} times "
                     f"as long (published: {PUBLISHED['time']}) and moved {more:.0f} times the pages "
                     f"(published: {PUBLISHED['pages']})")
    return "\n".join(lines)


def save(cases):
    for number, case in enumerate(cases):
        with open(OUT / f"case-{number}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["time_s", "actual_mib", "inflated", "deflated", "oom_kills", "back"])
            until = case.finished or float("inf")
            writer.writerows((*row, int(row[0] > until)) for row in case.rows)
    known = [{key: value for key, value in vars(case).items() if key not in ("rows", "begun")}
             for case in cases]
    (OUT / "page-cache.json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def draw(read_seconds):
    """As PNG to look at, as SVG for the documentation."""
    svg = OUT / "page-cache.svg"
    for picture in (svg.with_suffix(".png"), svg):
        bench.draw("page_cache.gp", OUT / "case-0.csv", OUT / "case-1.csv", picture, MEM, TARGET,
                   read_seconds)
    licence = "?>\n<!-- SPDX-License-Identifier: GPL-2.0 -->\n"
    svg.write_text(svg.read_text(encoding="utf-8").replace("?>\n", licence, 1), encoding="utf-8")


def parse_arguments():
    parser = setup.parser("page_cache.py", __doc__)
    parser.add_argument("--seconds", default=os.environ.get("SECONDS") or "90",
                        help="how long the reader goes on where the target is not reached "
                             "(SECONDS=, %(default)s)")
    vm.add_qemu(parser)
    return parser.parse_args()


def main():
    args = parse_arguments()
    read_seconds = bench.whole_number("SECONDS", args.seconds, 10, 600, "s",
                                      "how long the reader goes on")
    qemu = vm.prepare("page-cache", args.qemu)
    setup.own(OUT)
    modules = {HISTORIC: setup.module(src=setup.historic_source()), OURS: setup.module()}
    cases = [measure(Case(driver, medium), module, read_seconds, qemu)
             for medium in ("ext4", "raw disk") for driver, module in modules.items()]
    save(cases)
    text = table(cases, read_seconds)
    (OUT / "summary.txt").write_text(text + "\n", encoding="utf-8")
    print("\n" + text)
    draw(read_seconds)
    bad = faults(cases)
    for line in bad:
        print(f"FAIL {line}")
    print(f"\nThe picture: {OUT.relative_to(setup.ROOT)}/page-cache.png")
    return 1 if bad else 0


if __name__ == "__main__":
    setup.guarded(main)
