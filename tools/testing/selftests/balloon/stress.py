# SPDX-License-Identifier: GPL-2.0
"""`make stress`: what can happen to a balloon, at random and at once, for some minutes.

One guest; four threads, each with a random generator of its own from one seed, which is printed:
targets; programs that need more than is left; compaction, memory blocks going offline, huge pages
and the page cache; and what there is one of at a time: migrations with hinting, suspend to RAM,
hot-unplug, unloading, unbinding, statistics. Then the host gives everything back, and what the guest
has must be what it had.

Status 0: no page is missing, nothing was killed, and the kernel log is clean. 1: otherwise. 2: it
could not be run.
"""

import contextlib
import os
import random
import re
import threading
import time
import traceback

import bench
import setup
import vm
from setup import say

OUT = setup.OUT / "stress"
MEM = 1536                  # MiB of the guest
LEAST = 160                 # of a target
PROGRAM = 600               # MiB at most: so much is there, whatever else goes on
WAKE_SECONDS = 60
COMMAND_SECONDS = 240
SETTLE_SECONDS = 120
LOST = 4                    # MiB that may be missing: the kernel has a few that it does not count
# All that is not free and has a name; free pages that wait in lists of each CPU come on top.
KNOWN = ("MemFree", "Buffers", "Cached", "AnonPages", "Slab", "KernelStack", "PageTables", "Percpu",
         "VmallocUsed")
# What the kernel says where a block cannot go offline as there is no room for what is in it.
NO_ROOM = re.compile(r"^[^\n]*page allocation failure: (?:(?!</TASK>).)*?offline_pages.*?</TASK>",
                     re.M | re.S)

DEVICE = {"page-poison": False, "deflate-on-oom": True, "free-page-hint": True,
          "free-page-reporting": True}
DRIVER = "/sys/bus/virtio/drivers/virtio_balloon"
BLOCKS = ("for f in /sys/devices/system/memory/memory*/valid_zones; do "
          "grep -q Movable $f && echo ${f%/valid_zones}; done")


class StressGuest(vm.Guest):
    def living_boots(self):
        return NO_ROOM.sub("", super().living_boots())


class Actor(threading.Thread):
    """Does things at random until the time is over, and notes them."""

    def __init__(self, stress, name, port, actions):
        super().__init__(name=name, daemon=True)
        self.stress, self.port, self.actions = stress, port, actions
        self.random = random.Random(f"{stress.seed} {name}")
        self.done = {}
        self.error = None
        self.idle = threading.Lock()        # its port: what is on its way to it is lost in a sleep

    def run(self):
        try:
            while not self.stress.over.is_set():
                action = self.random.choice(self.actions)
                name = action.__name__
                self.stress.note(f"{self.name}: {name} {action(self) or ''}")
                self.done[name] = self.done.get(name, 0) + 1
        except vm.GuestError as error:
            self.fail(str(error))
        except Exception:       # whatever it is, it must be seen
            self.fail(traceback.format_exc())

    def fail(self, text):
        self.error = f"{self.name}: {text}"
        self.stress.over.set()

    def sh(self, command):
        with self.idle:
            return self.stress.guest.sh(command, timeout=COMMAND_SECONDS, port=self.port)

    def wait(self, least, most):
        self.stress.over.wait(self.random.uniform(least, most))


class Stress:
    def __init__(self, guest, seed):
        self.guest, self.seed = guest, seed
        self.over = threading.Event()
        self.there = threading.Lock()       # the device: whoever sets a target wants it
        self.begun = time.monotonic()
        self.log = open(OUT / "actions.log", "w", encoding="utf-8", buffering=1)
        self.actors = [Actor(self, "targets", None, [target] * 6 + [odd_target]),
                       Actor(self, "programs", 1, [program] * 3 + [threads, pause]),
                       Actor(self, "memory", 2, [compact, drop_caches, offline, huge_pages, read]),
                       Actor(self, "device", 0, [migrate, suspend, unplug, reload, rebind,
                                                 statistics, statistics])]

    def note(self, text):
        self.log.write(f"{time.monotonic() - self.begun:8.2f} {text.strip()}\n")

    def play(self, seconds):
        for actor in self.actors:
            actor.start()
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self.over.wait(min(left, 15)):
            say(f"    {left:4.0f} s left; {self.counts()}")
        self.over.set()
        for actor in self.actors:
            actor.join(COMMAND_SECONDS)
        return [actor.error for actor in self.actors if actor.error] + \
            [f"{actor.name}: does not come to an end" for actor in self.actors if actor.is_alive()]

    def counts(self):
        done = {name: count for actor in self.actors for name, count in list(actor.done.items())}
        return ", ".join(f"{count} {name}" for name, count in done.items())


# --- what can happen ------------------------------------------------------------------------------

def set_target(actor, count):
    with actor.stress.there:
        actor.stress.guest.set_target_bytes(count)


def target(actor):
    mib = actor.random.randint(LEAST, MEM)
    set_target(actor, mib * vm.MIB)
    actor.wait(0.05, 3)
    return mib


def odd_target(actor):
    pages = actor.random.randint(LEAST * 256, MEM * 256)
    set_target(actor, pages * 4096)
    actor.wait(0, 0.5)
    return pages


def run_program(actor, options=""):
    mib = actor.random.randint(50, PROGRAM)
    command = f"memtouch {options} {mib} {actor.random.randint(0, 2)}"
    code, text = actor.sh(command)
    if code:
        actor.fail(f"{command} ended with {code}: {text}")
    return mib


def program(actor):
    return run_program(actor)


def threads(actor):
    return run_program(actor, "-t 4 -r")


def pause(actor):
    actor.wait(0, 4)


def compact(actor):
    actor.sh("echo 1 >/proc/sys/vm/compact_memory")


def drop_caches(actor):
    actor.sh("echo 3 >/proc/sys/vm/drop_caches")


def read(actor):
    actor.sh("timeout 3 dd if=/dev/vda of=/dev/null bs=1M 2>/dev/null")


def offline(actor):
    """It may well fail: what is in use for good cannot go."""
    blocks = actor.sh(BLOCKS)[1].split()
    if not blocks:
        return "none"
    block = actor.random.choice(blocks)
    code, _ = actor.sh(f"timeout 20 sh -c 'echo offline >{block}/state' 2>/dev/null")
    actor.wait(0, 1)
    actor.sh(f"grep -q offline {block}/state && echo online_movable >{block}/state")
    return f"{block.rpartition('/')[2]} {'failed' if code else 'done'}"


def huge_pages(actor):
    actor.sh(f"echo {actor.random.randint(1, 60)} >/proc/sys/vm/nr_hugepages")
    actor.wait(0, 1)
    actor.sh("echo 0 >/proc/sys/vm/nr_hugepages")


def migrate(actor):
    """To nowhere, and given up."""
    guest = actor.stress.guest
    guest.migrate_start(actor.random.randint(1, 40))
    actor.wait(0.2, 4)
    guest.qmp("migrate_cancel")
    while "cancel" in (state := guest.migrate_status()) and "cancelled" not in state:
        time.sleep(0.05)
    guest.qmp("cont")
    return state


def suspend(actor):
    """With a program of its own, as the others' commands must come to an end before."""
    guest = actor.stress.guest
    seen = len(guest.events("SUSPEND"))
    waker = threading.Thread(target=wake, args=(guest, seen), daemon=True)
    with contextlib.ExitStack() as others:
        for other in actor.stress.actors:
            if other is not actor:
                others.enter_context(other.idle)
        waker.start()
        mib = actor.random.randint(50, PROGRAM)
        code, text = actor.sh(f"memtouch {mib} 1 >/dev/null 2>&1 & echo mem >/sys/power/state")
        waker.join(0.1 if code else WAKE_SECONDS)
    return text


def wake(guest, seen):
    with contextlib.suppress(vm.GuestError):
        guest.wait_event("SUSPEND", WAKE_SECONDS, seen)
        time.sleep(0.3)
        guest.qmp("system_wakeup")


def unplug(actor):
    guest = actor.stress.guest
    with actor.stress.there:
        guest.unplug()
        actor.wait(0, 1)
        guest.plug(**DEVICE)


def reload(actor):
    actor.sh("rmmod virtio_balloon")
    actor.wait(0, 1)
    actor.stress.guest.load()


def rebind(actor):
    """Where there is a device, and it has not just gone."""
    device = actor.sh(f"cd {DRIVER} && ls -d virtio*")[1].split()
    if device:
        actor.sh(f"echo {device[0]} >{DRIVER}/unbind")
        actor.wait(0, 1)
        actor.sh(f"echo {device[0]} >{DRIVER}/bind")


def statistics(actor):
    seconds = actor.random.randint(0, 2)
    actor.stress.guest.stats_interval(seconds)
    actor.wait(0, 3)
    return f"every {seconds} s"


# --- what must be as it was -----------------------------------------------------------------------

def look(guest):
    """(MiB that nobody knows of, MiB in all) without a driver, so without a balloon."""
    guest.sh("rmmod virtio_balloon; echo 3 >/proc/sys/vm/drop_caches; sleep 1")
    seen = {line.split(":")[0]: int(line.split()[1])
            for line in guest.sh("cat /proc/meminfo")[1].splitlines()}
    waiting = guest.sh("awk '/^ *count:/ { n += $2 } END { print n * 4 }' /proc/zoneinfo")[1]
    guest.load()
    known = sum(seen[name] for name in KNOWN) + int(waiting)
    return (seen["MemTotal"] - known) // 1024, seen["MemTotal"] // 1024


def judge(guest, before, killed):
    """What is wrong after all has been given back."""
    guest.set_target_bytes(MEM * vm.MIB)
    took = bench.wait_for_target(guest, MEM, SETTLE_SECONDS)
    if took is None:
        return [f"{guest.actual_bytes() // vm.MIB} of {MEM} MiB are back after {SETTLE_SECONDS} s"]
    found = []
    seen = bench.counters(guest)
    if seen["balloon_inflate"] != seen["balloon_deflate"]:
        found.append(f"{seen['balloon_inflate']} pages inflated, "
                     f"{seen['balloon_deflate']} deflated")
    if seen["oom_kill"] != killed:
        found.append(f"{seen['oom_kill'] - killed} programs were killed")
    lost, total = look(guest)
    say(f"neither free nor in use by name: {before[0]} MiB before, {lost} MiB after; "
        f"MemTotal: {before[1]} and {total} MiB; "
        f"{seen['balloon_inflate']} pages inflated and {seen['balloon_deflate']} deflated")
    if lost > before[0] + LOST or total != before[1]:
        found.append(f"{lost - before[0]} MiB are missing")
    return found


def parse_arguments():
    parser = setup.parser("stress.py", __doc__)
    default = os.environ.get
    parser.add_argument("--minutes", default=default("MINUTES") or "10",
                        help="how long (MINUTES=, %(default)s)")
    parser.add_argument("--seed", default=default("SEED") or str(random.randrange(10 ** 6)),
                        help="a number that was printed, for the same once more (SEED=)")
    vm.add_qemu(parser)
    return parser.parse_args()


def empty_disk():
    path = OUT / "disk.img"
    with open(path, "wb") as file:
        file.truncate(512 * vm.MIB)
    return path


def main():
    args = parse_arguments()
    minutes = bench.whole_number("MINUTES", args.minutes, 1, 24 * 60, "minutes", "of stress")
    qemu = vm.prepare("stress", args.qemu)
    setup.own(OUT)
    say(f"seed {args.seed}: SEED={args.seed} plays the same; {minutes} minutes; booting ...")
    guest = StressGuest(OUT / "guest", mem_mib=MEM, module=setup.module(), balloon=None,
                        machine="pc", append="no_console_suspend movablecore=512M", qemu=qemu,
                        programs=["memtouch"], extra=["-object", "iothread,id=hinting"],
                        drives=[(empty_disk(), "format=raw,readonly=on")])
    with guest:
        guest.plug(**DEVICE)
        before = look(guest)
        killed = bench.counters(guest)["oom_kill"]
        stress = Stress(guest, args.seed)
        bad = stress.play(minutes * 60)
        print(stress.counts())
        try:
            bad += judge(guest, before, killed)
        except vm.GuestError as error:
            bad.append(str(error))
        bad += guest.problems()[:20]
    for line in bad:
        print(f"FAIL {line}")
    (OUT / "disk.img").unlink(missing_ok=True)
    print(f"{minutes} minutes with seed {args.seed}: "
          + ("nothing is missing" if not bad else f"{len(bad)} faults; logs in "
             f"{OUT.relative_to(setup.ROOT)}"))
    return 1 if bad else 0


if __name__ == "__main__":
    setup.guarded(main)
