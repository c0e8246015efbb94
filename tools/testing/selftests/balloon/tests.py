# SPDX-License-Identifier: GPL-2.0
"""The table of the tests: what each shows, and what it needs."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace

import arch as architectures
import static_checks
from setup import SetupError

RESET = "reset"     # as a step: the host resets the guest's machine


@dataclass(frozen=True)
class Boot:
    """A guest that tests share; "page-poison" is what QEMU offers if it is not told otherwise."""
    name: str
    balloon: str | None     # properties; None for a guest that is to have one plugged
    mem_mib: int = 1024
    disk_mib: int = 0
    disk_format: str = "raw"
    append: str = ""        # to the kernel's command line
    machine: str = ""       # the architecture's usual one
    accel: str = "tcg,thread=multi"
    bus: str = ""           # likewise
    extra: tuple = ()       # further words of QEMU's command line
    kernel: str = ""        # one that kernels.py builds, whatever the others run
    test_modules: tuple = ()    # of kmod/
    modules: tuple = ()     # of the kernel, loaded first
    module: str = ""        # "historic": a driver that deflates from a shrinker


# A kprobe or tracepoint rewrites code that another CPU may be running, and with a thread for each
# CPU QEMU's emulation sometimes crashes the guest over that. S3 fares no better.
ONE_THREAD = "tcg,thread=single"

PLAIN = Boot("plain", "page-poison=off", accel=ONE_THREAD)
OOM = Boot("oom", "page-poison=off,deflate-on-oom=on", disk_mib=672)
OOM_PROBED = Boot("oom-probed", OOM.balloon, accel=ONE_THREAD)
NODES = Boot("nodes", OOM.balloon, extra=tuple(
    word for node in range(2) for word in (
        "-object", f"memory-backend-ram,id=node{node},size=512M",
        "-numa", f"node,nodeid={node},memdev=node{node},cpus={node}")))
HINT = Boot("hint", "page-poison=off,free-page-hint=on", accel=ONE_THREAD)
# For the negotiation only, so they are small: they boot faster.
EVERYTHING = Boot("everything", "page-poison=on,deflate-on-oom=on,free-page-hint=on,"
                                "free-page-reporting=on", 512, accel=ONE_THREAD)
POISON = Boot("poison", EVERYTHING.balloon, 512, append="init_on_free=1", accel=ONE_THREAD)
NO_POISON = Boot("no-poison", "page-poison=off,free-page-reporting=on", 512,
                 append="init_on_free=1", accel=ONE_THREAD)
LARGE = Boot("large", OOM.balloon, mem_mib=2048, disk_mib=1344)

# "pc" unplugs by ACPI at once; q35's root ports blink for five seconds first.
PLUG_ARGS = {"machine": "pc", "extra": ("-object", "iothread,id=hinting")}
PLUG = Boot("plug", None, **PLUG_ARGS)
PLUG_PROBED = Boot("plug-probed", None, accel=ONE_THREAD, **PLUG_ARGS)
PLUG_ZEROED = Boot("plug-zeroed", None, 512, append="init_on_free=1", **PLUG_ARGS)
PLUG_POISONED = Boot("plug-poisoned", None, 512, append="page_poison=1", **PLUG_ARGS)
SLEEP = Boot("sleep", "page-poison=off,deflate-on-oom=on,free-page-hint=on,free-page-reporting=on",
             disk_mib=1536, append="no_console_suspend", machine="pc", accel=ONE_THREAD)
# Without deflate-on-oom, so that each zone's managed pages follow the balloon. Several GiB, so that
# there is one of which nothing is in use for good: the kernel lies in the first, and what it
# allocates early in the last one.
MOVABLE = Boot("movable", "page-poison=off", 6144, append="movablecore=1G nokaslr")
SNAPSHOT = Boot("snapshot", "page-poison=off,deflate-on-oom=on", disk_mib=64, disk_format="qcow2")
LEGACY = Boot("legacy", OOM.balloon + ",disable-modern=on", disk_mib=OOM.disk_mib)
# The only timer that microvm's kernel can calibrate the TSC with is one that a loaded host keeps
# badly; without the TSC it hangs. Counting instructions makes the two agree.
MMIO = Boot("mmio", OOM.balloon, disk_mib=OOM.disk_mib, machine="microvm,acpi=on,rtc=on",
            bus="mmio", accel=ONE_THREAD, extra=("-icount", "shift=auto"))

HISTORIC = Boot("historic", OOM.balloon, disk_mib=OOM.disk_mib, module="historic")
EXT4 = Boot("ext4", OOM.balloon, disk_mib=256, disk_format="ext4",
            modules=("crc32c_generic", "ext4"))
# The kernel with the patch for __GFP_SKIP_ZERO.
ZEROING = Boot("zeroing", OOM.balloon, append="init_on_alloc=1", kernel="zeroing",
               test_modules=("skip_zero",))

FILLING = "cache_test -t filling"

# What a transport can get wrong: fields of the configuration, byte order, the queues.
ON_TRANSPORT = ("features_test -t negotiated_as_offered",
                "target_test -t up -t in_odd_sizes -t changed_while_inflating",
                "oom_test -t program_lives", "stats_test -t every_tag")

# What the kernel says of an OOM kill that a test is there to bring about.
OOM_KILL = (r"invoked oom-killer", r"Out of memory: Killed process", r"Call Trace:")


@dataclass(frozen=True)
class ThroughPowerOff:
    """A step: a program that sends the guest to its disk, and goes on in the next QEMU."""
    program: str


@dataclass(frozen=True)
class MustFail:
    """A step: a program that fails, by an assertion that a regular expression names."""
    program: str
    because: str
    why: str


@dataclass(frozen=True)
class Part:
    """Steps in one guest: test programs with their arguments, one after the other."""
    boot: Boot
    steps: tuple


@dataclass(frozen=True)
class Test:
    name: str
    about: str
    seconds: int                    # about how long; only the order of work depends on it
    check: Callable | None = None   # either this, without a guest
    parts: tuple = ()               # or these
    allow: tuple = ()               # kernel log lines that are no fault in this test
    slow: bool = False              # only with ALL=1, or by name


def in_guest(name, about, seconds, boots, *steps, **more):
    boots = boots if isinstance(boots, tuple) else (boots,)
    return Test(name, about, seconds, parts=tuple(Part(boot, steps) for boot in boots), **more)


TESTS = (
    Test("uapi", "our UAPI header and the kernel's: every constant, size and offset", 1,
         static_checks.check_uapi),
    Test("sparse", "the driver compiles without a warning, sparse's and W=1's included", 15,
         static_checks.check_sparse),
    Test("checkpatch", "checkpatch --strict on all sources and scripts", 15,
         static_checks.check_checkpatch),
    Test("originality", "the driver and the header are our own text", 3,
         static_checks.check_originality),
    Test("shellcheck", "the shell scripts", 2, static_checks.check_shellcheck),
    Test("python", "the Python files compile", 1, static_checks.check_python),

    in_guest("target", "down, up, in odd sizes, to the same value, changed on the way", 12, OOM,
             "target_test -T wiggle -f target"),
    in_guest("target-residues", "a target within a page settles, and all is quiet then (U20); "
             "a page's PFNs ascend in one request", 30, OOM, "target_test -f unaligned"),
    in_guest("target-early", "a target that was set before the driver is loaded (U18)", 3, OOM,
             "target_test -f early"),
    in_guest("wiggle", "ten moves of 10 MiB a second (U29)", 5, OOM, "target_test -t wiggle"),
    in_guest("reboot", "the balloon is filled again after a reboot (U16)", 10, OOM,
             "target_test -t before", RESET, "target_test -t after"),
    in_guest("host-memory", "the host's RSS falls by what was ballooned", 6, OOM,
             "data_test -t host_gets_the_memory"),
    in_guest("data", "what the guest wrote before and after inflating stays", 10, OOM,
             "data_test -t what_was_written_stays"),

    in_guest("oom-deflate", "a program that needs the balloon's memory lives (U1)", 8, OOM,
             "oom_test -t program_lives"),
    in_guest("oom-freed", "*freed grows by the pages that left the balloon", 5, OOM_PROBED,
             "oom_test -t freed_counts_pages"),
    in_guest("oom-free-memory", "*freed, as the kernel gets it, is what is free then", 10,
             OOM_PROBED, "oom_test -t freed_is_free_memory", allow=OOM_KILL),
    in_guest("oom-locked", "70 % of memory locked, then inflated: nothing is killed (U8)", 10, OOM,
             "oom_test -t locked_memory"),
    in_guest("oom-sysrq", "each forced OOM frees pages (U2)", 5, OOM, "oom_test -t sysrq",
             allow=OOM_KILL),
    in_guest("panic-on-oom", "an OOM that the balloon ends does not panic", 5, OOM,
             "oom_test -t no_panic"),
    in_guest("oom-off", "without the feature the program is killed and the balloon stays", 5, PLAIN,
             "oom_test -f off", allow=OOM_KILL),

    in_guest("oom-threads", "800 MiB touched all over by four threads: nothing is killed", 10, OOM,
             "pressure_test -t scattered_heap"),
    in_guest("oom-huge", "800 MiB of huge pages touched by a program: nothing is killed", 10, OOM, "pressure_test -t huge_pages"),
    in_guest("oom-while-inflating", "a program starts while the balloon grows (U6)", 40, OOM,
             "pressure_test -t while_inflating"),
    in_guest("oom-rest", "inflation rests after an OOM, and comes back by itself (F33)", 40,
             OOM_PROBED, "pressure_test -t rests_and_comes_back"),
    in_guest("oom-targets", "new targets while inflation rests", 20, OOM,
             "pressure_test -t targets_while_resting"),
    in_guest("oom-stats", "statistics are answered within a second (U24)", 10, OOM,
             "pressure_test -t statistics"),
    in_guest("impossible-target", "is asked for seldom, and logged once (U7)", 25, OOM,
             "pressure_test -t impossible_target"),
    in_guest("fork-load", "short processes in what the balloon leaves: none is killed", 15, OOM,
             "pressure_test -t short_processes"),
    in_guest("memcg-oom", "a container at its limit leaves the balloon alone", 5, OOM,
             "pressure_test -t container", allow=OOM_KILL),
    in_guest("cpuset-oom", "a full node takes the balloon once, and then the kernel kills", 40,
             NODES, "pressure_test -t policy -t cpuset", allow=OOM_KILL),

    in_guest("drop-caches", "drop_caches leaves the balloon alone (U4)", 8, OOM,
             "cache_test -t dropping -t dropping_in_a_loop"),
    Test("page-cache", "a file read in a loop against a large balloon (U3); a driver that deflates "
         "from a shrinker fails it", 20, parts=(
             Part(OOM, (FILLING,)),
             Part(HISTORIC, (MustFail(FILLING, r"DEFLATED\(\)", "it deflates from a shrinker"),)))),
    in_guest("page-cache-swap", "programs work with more than is left: reclaim swaps, the balloon "
             "stays", 20, OOM, "cache_test -f swapping"),
    in_guest("ext4-writes", "heavy writes to ext4 while the balloon is filled (U5)", 25, EXT4,
             "cache_test -f writes"),
    in_guest("page-cache-large", "page-cache in a guest of 2 GiB", 60, LARGE,
             FILLING, slow=True),

    in_guest("hint", "a migration with hinting: id, blocks, STOP, all memory back", 10, HINT,
             "hint_test -t migration"),
    in_guest("hint-shrink", "memory wanted in mid-run comes back through the shrinker", 10, HINT,
             "hint_test -t memory_wanted_in_between"),
    in_guest("hint-unload", "rmmod in mid-run loses no block (F11)", 8, HINT,
             "hint_test -t unload_in_between"),
    in_guest("shrinker", "registered with hinting, and only then", 4, (HINT, OOM_PROBED),
             "features_test -t registered_as_offered"),

    in_guest("stats", "every tag against /proc", 20, OOM,
             "stats_test -t every_tag -t oom_kills", allow=OOM_KILL),
    in_guest("stats-reload", "statistics are fresh after a reload (U23)", 8, OOM,
             "stats_test -t fresh_after_reload"),
    in_guest("stats-ten", "first_ten_stats=1 sends tags 0 to 9 (V10)", 5, OOM,
             "stats_test -t first_ten_only"),

    in_guest("features", "each bit negotiated exactly when offered, with what it registers; "
             "MemTotal (U27)", 15, (PLAIN, OOM_PROBED, HINT, EVERYTHING), "features_test"),
    in_guest("features-poison", "features, where free memory keeps its content (S2, S3)", 20,
             (POISON, NO_POISON), "features_test"),

    in_guest("module-cycle", "rmmod empty, inflated, in mid-inflate; every page back", 20,
             (OOM, PLAIN), "module_test -t empty -t inflated -t while_inflating"),
    in_guest("unbind", "unbind and bind inflated, in mid-inflate; every page back", 10, OOM,
             "module_test -t unbind_and_bind -t unbind_while_inflating"),
    in_guest("unplug", "device_del and unbind on the way down, on the way up and in mid-hint: "
             "20 rounds (U17)", 40, PLUG, "unplug_test"),
    in_guest("unplug-no-hints", "unplug without hinting: on the way down and up, 16 rounds (U17, U22)",
             30, PLUG, "env PROPERTIES='deflate-on-oom=on free-page-reporting=on' unplug_test "
             "-t while_inflating -t while_deflating -t unbind_while_inflating "
             "-t unbind_while_deflating", slow=True),
    in_guest("unplug-long", "unplug, 60 rounds", 120, PLUG, "env ROUNDS=12 unplug_test",
             slow=True),

    in_guest("suspend", "S3 empty, inflated, on the way, under stress (U14, U23)", 40, SLEEP,
             "suspend_test -v ram"),
    in_guest("suspend-awake", "an adjustment holds off who wants to sleep", 5, SLEEP,
             "suspend_test -f awake"),
    in_guest("hibernate", "S4 on the way, resumed at once", 15, SLEEP,
             "suspend_test -r suspend.image.while_inflating"),
    in_guest("hibernate-more", "S4 empty, inflated, on the way up, under stress", 60, SLEEP,
             "suspend_test -v image", slow=True),
    in_guest("hibernate-disk", "S4 to the disk, and back in a new QEMU", 30, SLEEP,
             ThroughPowerOff("suspend_test -r suspend.disk.while_inflating"), slow=True),

    in_guest("reporting", "freed memory leaves the host's RSS (U21)", 15, PLUG,
             "reporting_test -r reporting.poison_on.host_gets_freed_memory"),
    in_guest("reporting-poison", "with init_on_free and page_poison, and a device that knows of "
             "it or not: no page changes (S3, S27, S31, F14)", 40, (PLUG_ZEROED, PLUG_POISONED),
             "reporting_test -t negotiated -t no_page_changes"),
    in_guest("reporting-sleep", "after a sleep the device is told the poison value again (F26)",
             30, PLUG_POISONED,
             "reporting_test -r reporting.poison_on.no_page_changes_after_sleep"),

    in_guest("matrix", "hinting, reporting and deflate-on-oom on and off: all queues work (U10)",
             60, (PLUG, PLUG_ZEROED), "matrix_test", allow=OOM_KILL),

    in_guest("compaction", "compaction in a loop while resizing (U15)", 20, MOVABLE,
             "migrate_test -t compaction_while_resizing"),
    in_guest("memory-offline", "memory blocks with balloon pages go offline (F10)", 20, MOVABLE,
             "migrate_test -t memory_goes_offline"),
    in_guest("huge-pages", "2 MiB and 1 GiB pages out of ballooned memory", 30, MOVABLE,
             "migrate_test -t huge_pages -t gigantic_page"),

    in_guest("snapshot", "savevm and loadvm in mid-inflate (U12)", 15, SNAPSHOT, "snapshot_test"),

    in_guest("legacy", "a legacy PCI device: negotiation, target, OOM, statistics", 40, LEGACY,
             *ON_TRANSPORT),
    in_guest("mmio", "virtio-mmio: negotiation, target, OOM, statistics", 40, MMIO, *ON_TRANSPORT),

    in_guest("trace", "the tracepoints tell what was", 20, PLUG_PROBED,
             "observe_test -t resizes_are_traced -t pressure_is_traced -t reports_are_traced"),
    in_guest("trace-hints", "the tracepoints of hinting", 10, PLUG_PROBED,
             "observe_test -t hints_are_traced"),
    in_guest("debugfs", "agrees with QEMU and /proc/vmstat, and reading it changes nothing", 10,
             PLUG, "observe_test -t status_agrees -t reading_changes_nothing "
             "-t debugfs_goes_with_the_device"),
    in_guest("skip-zero", "the balloon's pages are not zeroed, everybody else's are", 20, ZEROING,
             "zero_test", slow=True),
    in_guest("cycles", "ten resizes with all features on (U30)", 15, PLUG,
             "observe_test -t ten_cycles"),
)


# What depends on the size of a page, the order of bytes or the transport.
EVERYWHERE = ("target", "target-residues", "host-memory", "data", "oom-deflate", "oom-freed",
              "oom-free-memory", "oom-off", "hint", "stats", "stats-ten", "features",
              "features-poison", "module-cycle", "unbind", "unplug", "unplug-no-hints",
              "reporting", "reporting-poison", "trace", "trace-hints", "debugfs")


def boot_on(boot, arch):
    """The same guest on another architecture, and the kind of machine that it has."""
    return replace(boot, name=f"{arch.name}-{boot.name}", machine="")


def test_on(test, arch):
    parts = tuple(replace(part, boot=boot_on(part.boot, arch)) for part in test.parts)
    return replace(test, name=f"{arch.name}.{test.name}", parts=parts, slow=False)


def tests_of(arch):
    """All tests that can run on an architecture, with its name in theirs."""
    if arch == architectures.HOST:
        return TESTS
    return tuple(test_on(test, arch) for test in TESTS
                 if test.name in EVERYWHERE and test.name not in arch.without)


def choose(names, everything, arch):
    """The tests of these names, in the order of the table; all quick ones if none is named."""
    known = {test.name.removeprefix(f"{arch.name}."): test for test in tests_of(arch)}
    names = [name.removeprefix(f"{arch.name}.") for name in names]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, 3)
            which = "" if arch == architectures.HOST else f"ARCH={arch.name} "
            raise SetupError(f'there is no test "{name}"'
                             + (f': did you mean {" or ".join(close)}?' if close else ":")
                             + f" `make check {which}LIST=1` lists them")
    if names:
        return [known[name] for name in known if name in names]
    return [test for test in known.values() if everything or not test.slow]
