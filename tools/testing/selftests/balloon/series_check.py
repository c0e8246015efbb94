# SPDX-License-Identifier: GPL-2.0
"""`make series-check`: what a maintainer and the kernel's own checkers would say to the series.

The series is made, and applied by git am to the whole unchanged source, which stays in the cache
with a build directory for each architecture. Only objects that the series touches are built. One
KTAP line for each item; what is not installed, and cannot be, is skipped with the reason.

Status 0: nothing failed. 1: something did. 2: it could not be run.
"""

import fcntl
import os
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import kernels
import ktap
import series
import setup
import static_checks
from setup import SetupError, say
from static_checks import Failed, Skipped, needed

OUT = setup.OUT / "series-check"
ROOM = setup.CACHE / "series"
FRAGMENT = setup.HERE / "series/build.config"

DRIVER = "drivers/virtio/virtio_balloon.c"
TESTS = "drivers/virtio/tests"
OBJECT = "drivers/virtio/virtio_balloon.o"
ALLOCATOR = "mm/page_alloc.o"
OBJECTS = (ALLOCATOR, OBJECT)
# Of the allocator's file only the words about what we changed would be ours.
OURS = re.compile(r"(drivers/virtio/(virtio_balloon|tests/)|trace/events/virtio_balloon)")

FUNCTION_LINES = 60
STACK_BYTES = 512
ITEM_SECONDS = 1500


# --- trees ------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Build:
    """A build directory: what for, with what, and which package has the compiler."""
    arch: str
    program: str = "gcc"
    package: str = "gcc"
    args: tuple = ()
    more: tuple = ()        # lines of configuration besides the fragment's
    bits: str = ""          # what file(1) would say of an object: class and byte order


BUILDS = {
    "x86_64": Build("x86_64", bits="64 little"),
    "x86_64-clang": Build("x86_64", "clang", "clang", ("LLVM=1",), bits="64 little"),
    "i386": Build("i386", bits="32 little"),
    "arm64": Build("arm64", "aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu", bits="64 little"),
    "arm64-64k": Build("arm64", "aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu",
                       more=("CONFIG_ARM64_64K_PAGES=y",), bits="64 little"),
    "arm64-tags": Build("arm64", "aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu",
                        more=("CONFIG_ARM64_TAGGED_ADDR_ABI=y", "CONFIG_ARM64_PAN=y",
                              "CONFIG_ARM64_MTE=y", "CONFIG_KASAN=y", "CONFIG_KASAN_HW_TAGS=y"),
                        bits="64 little"),
    "s390x": Build("s390", "s390x-linux-gnu-gcc", "gcc-s390x-linux-gnu", bits="64 big"),
    "powerpc-32": Build("powerpc", "powerpc-linux-gnu-gcc", "gcc-powerpc-linux-gnu",
                        bits="32 big"),
}


def source():
    """The whole source. git knows only what the series changes: the rest would take minutes."""
    packed = kernels.archive().stat()

    def make_it(new):
        shutil.copytree(kernels.tree(()), new / "linux", symlinks=True)
        tree = new / "linux"
        series.git(tree, "init", "-q", "-b", "series")
        (tree / ".git/info/exclude").write_text("*\n", encoding="utf-8")
        for key, value in (("user.name", "series-check"), ("user.email", "none@localhost")):
            series.git(tree, "config", key, value)
        series.git(tree, "add", "-f", "LICENSES", *series.BASE)
        series.git(tree, "commit", "-q", "-m", "the kernel's source")
        series.git(tree, "tag", "base")

    name = setup.digest("series-check", packed.st_size, int(packed.st_mtime), *series.BASE)
    say("The whole kernel source, once (a minute or two) ...")
    return setup.cached(ROOM / f"source-{name}", make_it) / "linux"


class Work:
    """The series, applied to the source: a branch with a commit for each patch."""

    def __init__(self):
        self.tree = source()
        self.lock = open(self.tree.parent / "lock", "w", encoding="utf-8")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.count = len(series.patches())

    def git(self, *args):
        return series.git(self.tree, *args)

    def apply(self):
        if (self.tree / ".git/rebase-apply").exists():
            self.git("am", "--abort")
        self.git("checkout", "-q", "-f", "--detach", "base")
        self.git("am", "-q", *series.patches())
        self.git("branch", "-f", "series", "HEAD")
        self.git("checkout", "-q", "series")

    def at(self, patch):
        """The tree as it is after so many patches."""
        self.git("checkout", "-q", "--detach", f"series~{self.count - patch}")

    def whole(self):
        self.git("checkout", "-q", "series")

    def changed(self, *endings):
        names = self.git("diff", "--name-only", "base", "series").splitlines()
        return [name for name in names if name.endswith(endings or ("",))]

    def room(self, name):
        path = ROOM / f"build-{name}-{setup.digest(str(self.tree), BUILDS[name])}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def make(self, name, *targets):
        """(exit code, everything it said) of make in a build directory."""
        build = BUILDS[name]
        cross = build.program.removesuffix("gcc")
        args = build.args or ((f"CROSS_COMPILE={cross}",) if cross else ())
        return static_checks.run(["make", "-C", self.tree, f"O={self.room(name)}",
                                  f"ARCH={build.arch}", f"-j{os.cpu_count()}", *args, *targets],
                                 timeout=ITEM_SECONDS, env=dict(os.environ, LC_ALL="C"))

    def must(self, name, *targets):
        code, said = self.make(name, *targets)
        if code:
            raise Failed([f"make {' '.join(map(str, targets))}:", *said.splitlines()[-20:]])
        return said


# --- configurations ---------------------------------------------------------------------------

def missing(room, wanted):
    """Which lines of a configuration did not come true."""
    got = (room / ".config").read_text(encoding="utf-8").splitlines()
    values = dict(line.split("=", 1) for line in got if line.startswith("CONFIG_"))
    pairs = [line.split("=", 1) for line in wanted]
    return [f"{key} is {values.get(key, 'n')}, not {value}" for key, value in pairs
            if values.get(key, "n") != value]


def configure(work, name, wanted=(), base="allnoconfig", fragment=True):
    """A configuration; what is asked for by name must come true, the fragment need not."""
    needed(BUILDS[name].program, BUILDS[name].package)
    room = work.room(name)
    wanted = [*BUILDS[name].more, *wanted]
    lines = FRAGMENT.read_text(encoding="utf-8").splitlines() if fragment else []
    keys = {line.split("=")[0] for line in wanted}
    lines = [line for line in lines if line.split("=")[0] not in keys] + wanted
    (room / "wanted.config").write_text("\n".join(lines) + "\n", encoding="utf-8")
    work.must(name, base, f"KCONFIG_ALLCONFIG={room / 'wanted.config'}")
    bad = missing(room, wanted)
    if bad:
        raise Failed(["the configuration does not come true: " + ", ".join(bad)])


def our_words(said):
    """Warnings and errors about our files."""
    return [line for line in said.splitlines()
            if re.search(r"(warning|error)[: ]", line, re.I) and OURS.search(line)]


def compile_objects(work, name, objects=OBJECTS, args=("W=1",)):
    """Build them anew; not a word about our files."""
    for one in objects:
        (work.room(name) / one).unlink(missing_ok=True)
    said = work.must(name, *args, *objects)
    (OUT / f"build-{name}.log").write_text(said, encoding="utf-8")
    bad = our_words(said)
    if bad:
        raise Failed(bad)
    absent = [one for one in objects if not (work.room(name) / one).exists()]
    if absent:
        raise Failed([f"{one} was not built" for one in absent])
    return said


CLASSES, ORDERS = {1: "32", 2: "64"}, {1: "little", 2: "big"}


def kind_of(path):
    """Class and byte order of an ELF object."""
    head = path.read_bytes()[:6]
    return f"{CLASSES.get(head[4])} {ORDERS.get(head[5])}"


def build_check(name):
    """The objects for an architecture, with all that the driver can use."""
    def check(work):
        configure(work, name, ["CONFIG_VIRTIO_BALLOON=y"])
        compile_objects(work, name)
        made = work.room(name) / OBJECT
        if kind_of(made) != BUILDS[name].bits:
            raise Failed([f"the object is {kind_of(made)}-endian, not {BUILDS[name].bits}"])
        return f"{' and '.join(OBJECTS)}, {kind_of(made)}-endian, W=1 silent"

    return check


def config_check(*wanted, base="allnoconfig", fragment=True, objects=OBJECTS):
    """The objects for x86_64 in another configuration."""
    def check(work):
        configure(work, "x86_64", wanted, base, fragment)
        compile_objects(work, "x86_64", objects)
        return "W=1 silent"

    return check


def off_check(*names):
    """The driver without something that it can use."""
    return config_check("CONFIG_VIRTIO_BALLOON=y", *[f"CONFIG_{name}=n" for name in names])


def check_no_balloon(work):
    """=n: nothing of it is built, and the rest of the directory is."""
    configure(work, "x86_64", ["CONFIG_VIRTIO_BALLOON=n"])
    made = work.room("x86_64") / OBJECT
    made.unlink(missing_ok=True)
    work.must("x86_64", "drivers/virtio/")
    if made.exists():
        raise Failed([f"{OBJECT} is built though it is switched off"])
    return "drivers/virtio/ without it"


def check_no_reporting(_work):
    raise Skipped("Kconfig: the driver selects it, as the present one does")


KUNIT = ("CONFIG_VIRTIO_BALLOON=y", "CONFIG_KUNIT=y", "CONFIG_MEM_ALLOC_PROFILING=y",
         "CONFIG_VIRTIO_BALLOON_KUNIT_TEST=y")


# --- the patches ------------------------------------------------------------------------------

def check_am(work):
    work.apply()
    bad = series.differences(work.tree)
    if bad:
        raise Failed(["not as it is here: " + ", ".join(bad)])
    return f"{work.count} patches, to the whole of {series.source_version()}"


# Disputed, and why; the commits say so too.
EXCUSED = (
    # MAINTAINERS has a patch of its own, the last one.
    (r"", r"FILE_PATH_CHANGES"),
    # The form that the tracing macros ask for.
    (r"include/trace/", r"PARENTHESIS_ALIGNMENT|OPEN_ENDED_LINE"),
    # The kernel's own page flag functions; macros make their names.
    (r"drivers/virtio/virtio_balloon\.c", r"CAMELCASE"),
    # An empty line of context in a patch is a blank.
    (r"\.patch:", r"TRAILING_WHITESPACE"),
    # Programs of the host, which knows no kernel types.
    (r"selftests/balloon/host/", r"PREFER_KERNEL_TYPES"),
    # gnuplot has a word "left" and a word "Left".
    (r"\.gp:", r"REPEATED_WORD"),
)


def excused(line):
    return any(re.search(kind, line) and re.search(place, line) for place, kind in EXCUSED)


def check_checkpatch(work):
    needed("perl", "perl")
    script = work.tree / "scripts/checkpatch.pl"
    said, count = [], 0
    for patch in series.patches():
        told = static_checks.run(["perl", script, "--strict", "--terse", "--showfile",
                                  "--show-types", "--color=never", "--no-summary", patch],
                                 cwd=work.tree)[1].splitlines()
        found = [line for line in told if re.search(r"(ERROR|WARNING|CHECK):", line)]
        count += sum(map(excused, found))
        said += [f"{patch.name[:4]} {line}" for line in found if not excused(line)]
    if said:
        raise Failed(said)
    return f"--strict: nothing, but for {count} disputed lines, of kinds excused with reasons"


def check_bisect(work):
    """Each patch builds by itself, in order."""
    done = []
    configure(work, "x86_64", ["CONFIG_VIRTIO_BALLOON=y"])
    try:
        for number in range(1, work.count + 1):
            work.at(number)
            here = work.git("show", "--format=", "--name-only", "HEAD").splitlines()
            objects = [ALLOCATOR] if "mm/page_alloc.c" in here else [OBJECT]
            if any(name.startswith(TESTS) for name in here):
                configure(work, "x86_64", KUNIT)
            compile_objects(work, "x86_64", objects)
            done.append(number)
    except Failed as failure:
        raise Failed([f"patch {len(done) + 1}:", *failure.lines]) from None
    finally:
        work.whole()
    return f"{len(done)} trees"


def check_uapi(work):
    if work.changed() and work.git("diff", "--name-only", "base", "series", "--", "include/uapi"):
        raise Failed(["the series changes the kernel's UAPI"])
    return "left alone; " + static_checks.check_uapi()


def check_maintainer(work):
    names = [DRIVER, f"{TESTS}/fake_balloon.c", "include/trace/events/virtio_balloon.h",
             "include/uapi/linux/virtio_balloon.h", f"{series.SELFTESTS}/check.py",
             "Documentation/admin-guide/mm/virtio-balloon.rst",
             "Documentation/driver-api/virtio/virtio_balloon.rst",
             "Documentation/ABI/testing/debugfs-virtio-balloon"]
    for name in names:
        said = static_checks.run(["perl", "scripts/get_maintainer.pl", "--nogit",
                                  "--nogit-fallback", "--rolestats", "-f", name],
                                 cwd=work.tree)[1]
        if "VIRTIO BALLOON" not in said:
            raise Failed([f"{name}: the entry is not found", *said.splitlines()])
    return f"finds VIRTIO BALLOON for {len(names)} files of all kinds"


# --- the source -------------------------------------------------------------------------------

def c_files(work):
    return [name for name in work.changed(".c", ".h")
            if name.startswith(("drivers/virtio", "include/trace/events/virtio", series.SELFTESTS))]


def check_sparse(work):
    needed("sparse", "sparse")
    configure(work, "x86_64", KUNIT)
    said = compile_objects(work, "x86_64", OBJECTS, ("W=1", "C=2", "CF=-D__CHECK_ENDIAN__"))
    if not re.search(r"^ +CHECK .*virtio_balloon\.c", said, re.M):
        raise Failed(["the build did not run sparse"])
    return "C=2 W=1, with the KUnit tests: not a word"


NO_OCAML = "No OCaml compiler found"


def spatch(work, script, names):
    """What one semantic patch has to say; it knows which options it needs."""
    options = re.search(r"^// ?Options:(.*)$", script.read_text(encoding="utf-8"), re.M)
    code, said = static_checks.run(
        ["spatch", "-D", "report", "--very-quiet", "--no-show-diff", "--cocci-file", script,
         *(options[1].split() if options else ()), "-I", work.tree / "include", *names],
        cwd=work.tree, timeout=ITEM_SECONDS)
    if NO_OCAML in said:
        return NO_OCAML
    if code:
        return f"{script.name}: spatch failed: {said.strip()[-200:]}"
    return "\n".join(line for line in said.splitlines() if re.match(r"\S+\.[ch]:\d+", line))


def check_coccinelle(work):
    needed("spatch", "coccinelle")
    names = [name for name in c_files(work) if name.startswith("drivers/virtio")]
    scripts = [path for path in sorted((work.tree / "scripts/coccinelle").rglob("*.cocci"))
               if "virtual report" in path.read_text(encoding="utf-8")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(lambda script: spatch(work, script, names), scripts))
    bad = [line for one in said if one != NO_OCAML for line in one.splitlines()]
    if bad:
        raise Failed(bad)
    left_out = said.count(NO_OCAML)
    return (f"report mode, {len(scripts) - left_out} semantic patches, {len(names)} files: nothing"
            + (f"; {left_out} more need an OCaml compiler" if left_out else ""))


def check_kernel_doc(work):
    needed("perl", "perl")
    names = [name for name in c_files(work) if not name.startswith(series.SELFTESTS)]
    code, said = static_checks.run(["perl", "scripts/kernel-doc", "-none", "-Wall", *names],
                                   cwd=work.tree)
    if code or said.strip():
        raise Failed(said.splitlines())
    return f"-none -Wall, {len(names)} files: nothing"


def check_spdx(work):
    python = "/usr/bin/python3"
    if static_checks.run([python, "-c", "import git, ply"])[0]:
        raise Skipped("Python's git and ply are not there (packages python3-git, python3-ply)")
    names = [name for name in work.changed() if name not in series.BASE]
    code, said = static_checks.run([python, "scripts/spdxcheck.py", *names], cwd=work.tree)
    if code or said.strip():
        raise Failed(said.splitlines())
    return f"{len(names)} files"


# A function's first line, what may follow of its head, and its body.
BODY = re.compile(r"^(?!struct|enum|union|typedef)\w[^\n;={}#]*\([^;{}#]*\)\n\{\n.*?^\}$",
                  re.M | re.S)
FORWARD = re.compile(r"^static (?![A-Z_]+\()[^;={}#\"]*\([^;={}#\"]*\)[\w \t]*;", re.M)


def check_functions(work):
    bad, most, count = [], 0, 0
    for name in c_files(work):
        text = (work.tree / name).read_text(encoding="utf-8")
        for found in BODY.finditer(text):
            lines, count = found[0].count("\n") + 1, count + 1
            most = max(most, lines)
            if lines > FUNCTION_LINES:
                line = text.count("\n", 0, found.start()) + 1
                bad.append(f"{name}:{line}: {lines} lines")
        bad += [f"{name}: declared before it is there: {found[0]}"
                for found in FORWARD.finditer(text) if name.endswith(".c")]
    if bad:
        raise Failed(bad)
    return f"{count} functions, the longest has {most} lines; none is declared beforehand"


def check_stack(work):
    needed("objdump", "binutils")
    configure(work, "x86_64", ["CONFIG_VIRTIO_BALLOON=m"])
    compile_objects(work, "x86_64", [OBJECT])
    listing = static_checks.run(["objdump", "-d", work.room("x86_64") / OBJECT])[1]
    done = subprocess.run(["perl", work.tree / "scripts/checkstack.pl", "x86_64", "1"], text=True,
                          input=listing, stdout=subprocess.PIPE, check=True)
    used = {line: int(size) for line in done.stdout.splitlines()
            for size in re.findall(r"\t(\d+)$", line)}
    bad = [line for line, size in used.items() if size >= STACK_BYTES]
    if bad:
        raise Failed(bad)
    if not used:
        raise Failed(["checkstack found no function"])
    return f"{len(used)} functions with a frame, the largest {max(used.values())} bytes"


# --- what is installed ------------------------------------------------------------------------

def check_headers(work):
    needed("rsync", "rsync")
    configure(work, "x86_64", ["CONFIG_VIRTIO_BALLOON=y"])
    place = OUT / "headers"
    work.must("x86_64", "headers_install", f"INSTALL_HDR_PATH={place}")
    if not (place / "include/linux/virtio_balloon.h").exists():
        raise Failed(["linux/virtio_balloon.h is not among them"])
    if list(place.rglob("trace/events/*")):
        raise Failed(["trace events were installed"])
    return "linux/virtio_balloon.h is among them"


def check_kselftest(work):
    """Built with the installed headers, and put where a tester wants it."""
    needed("rsync", "rsync")
    configure(work, "x86_64", ["CONFIG_VIRTIO_BALLOON=y"])
    work.must("x86_64", "headers")
    place, room = OUT / "kselftest", work.room("x86_64")
    code, said = static_checks.run(
        ["make", "-C", work.tree / "tools/testing/selftests", f"O={room}", "TARGETS=balloon",
         f"INSTALL_PATH={place}", "FORCE_TARGETS=1", "install"], timeout=ITEM_SECONDS)
    if code:
        raise Failed(said.splitlines()[-20:])
    listed = (place / "kselftest-list.txt").read_text(encoding="utf-8").split()
    names = [one.removeprefix("balloon:") for one in listed if one.startswith("balloon:")]
    absent = [name for name in names if not os.access(place / "balloon" / name, os.X_OK)]
    if absent or not names:
        raise Failed(["not installed: " + (", ".join(absent) or "any test")])
    if not (place / "balloon/settings").exists():
        raise Failed(["the settings are not installed"])
    return f"{len(names)} programs"


def check_abi(work):
    code, said = static_checks.run(["perl", "scripts/get_abi.pl", "validate", "--dir",
                                    "Documentation/ABI/testing"], cwd=work.tree)
    bad = [line for line in said.splitlines() if "virtio-balloon" in line]
    if code or bad:
        raise Failed(bad or said.splitlines()[-10:])
    return "get_abi.pl validate"


def check_htmldocs(work):
    """The folders that our pages are in; links to the rest of the book are not looked at."""
    needed("sphinx-build", "python3-sphinx")
    said = work.must("x86_64", "htmldocs", "SPHINXDIRS=admin-guide/mm driver-api/virtio")
    (OUT / "htmldocs.log").write_text(said, encoding="utf-8")
    bad = [line for line in said.splitlines() if re.search(r"virtio[-_]balloon", line)
           and re.search(r"warning|error", line, re.I)]
    if bad:
        raise Failed(bad)
    pages = [path.name for path in work.room("x86_64").glob("Documentation/output/**/*.html")
             if re.fullmatch(r"virtio[-_]balloon\.html", path.name)]
    if len(set(pages)) != 2:
        raise Failed([f"pages that came of it: {sorted(set(pages))}"])
    return "no warning about our pages"


# --- all of it --------------------------------------------------------------------------------

CHECKS = {
    "git-am": check_am,
    "checkpatch": check_checkpatch,
    "spdx": check_spdx,
    "get-maintainer": check_maintainer,
    "uapi": check_uapi,
    "functions": check_functions,
    "kernel-doc": check_kernel_doc,
    "abi": check_abi,
    "bisect": check_bisect,
    "sparse": check_sparse,
    "checkstack": check_stack,
    **{f"build-{name}": build_check(name) for name in BUILDS},
    "kunit": config_check(*KUNIT),
    "config-y": config_check("CONFIG_VIRTIO_BALLOON=y"),
    "config-m": config_check("CONFIG_VIRTIO_BALLOON=m"),
    "config-n": check_no_balloon,
    "without-balloon-compaction": off_check("BALLOON_COMPACTION"),
    "without-page-reporting": check_no_reporting,
    "without-vm-event-counters": off_check("VM_EVENT_COUNTERS"),
    "without-hugetlb": off_check("HUGETLBFS", "HUGETLB_PAGE"),
    "without-debug-fs": off_check("DEBUG_FS"),
    "without-shrinker-debug": off_check("SHRINKER_DEBUG"),
    "without-smp": off_check("SMP"),
    "without-pm-sleep": off_check("SUSPEND", "HIBERNATION", "PM_SLEEP"),
    "without-tracepoints": off_check("FTRACE", "TRACEPOINTS"),
    "allnoconfig": config_check("CONFIG_PCI=y", "CONFIG_VIRTIO_MENU=y", "CONFIG_VIRTIO_PCI=y",
                                "CONFIG_VIRTIO_BALLOON=y", fragment=False),
    "allmodconfig": config_check("CONFIG_VIRTIO_BALLOON=m", base="allmodconfig", fragment=False),
    "headers-install": check_headers,
    "kselftest-install": check_kselftest,
    "coccicheck": check_coccinelle,
    "htmldocs": check_htmldocs,
}


def run_check(work, name):
    outcome, begun = ktap.Outcome(), time.monotonic()
    try:
        outcome.reason = CHECKS[name](work) or ""
    except Skipped as why:
        outcome.state, outcome.reason = ktap.SKIP, str(why)
    except Failed as failure:
        outcome.fail(*failure.lines[:40])
    except (SetupError, OSError, subprocess.SubprocessError, ValueError) as error:
        outcome.fail(*str(error).splitlines()[:40])
    outcome.seconds = time.monotonic() - begun
    return outcome


def parse_arguments():
    parser = setup.parser("series_check.py", __doc__)
    parser.add_argument("names", nargs="*", default=os.environ.get("TESTS", "").split(),
                        help="only these checks (TESTS=)")
    parser.add_argument("--list", action="store_true", default=setup.flag("LIST"),
                        help="list them and run none (LIST=1)")
    return parser.parse_args()


def chosen(names):
    """Nothing can be looked at before it is applied."""
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise SetupError(f"there is no {', '.join(unknown)}; there are: {' '.join(CHECKS)}")
    return list(dict.fromkeys(["git-am", *(names or CHECKS)]))


def prepare():
    """What cannot be installed is a reason to skip, if the series can be made without it."""
    setup.ensure("series")
    try:
        setup.ensure("series-check")
    except SetupError as error:
        say(f"{error}\nWhat needs them is skipped.")


def main():
    args = parse_arguments()
    names = chosen(args.names)
    if args.list:
        print("\n".join(names if args.names else CHECKS))
        return 0
    prepare()
    series.make()
    setup.own(OUT)
    work, states = Work(), []
    print(f"KTAP version 1\n1..{len(names)}", flush=True)
    for number, name in enumerate(names, 1):
        say(f"{name} ...")
        outcome = run_check(work, name)
        states.append(outcome.state)
        print("\n".join(ktap.lines(number, name, outcome)), flush=True)
        if name == "git-am" and outcome.state == ktap.FAIL:
            break
    print(f"{states.count(ktap.PASS)} passed, {states.count(ktap.FAIL)} failed, "
          f"{states.count(ktap.SKIP)} skipped", flush=True)
    return 1 if ktap.FAIL in states else 0


if __name__ == "__main__":
    setup.guarded(main)
