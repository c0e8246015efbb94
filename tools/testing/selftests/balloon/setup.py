# SPDX-License-Identifier: GPL-2.0
"""What a guest is made of: packages, kernel, module, programs, initramfs.

Everything downloaded or built goes to ${XDG_CACHE_HOME:-~/.cache}/virtio-balloon, under a name that
holds a hash of what it was made from, and is moved there only when complete: a build that was
interrupted leaves nothing that a later one could take for whole.
"""

import argparse
import fcntl
import functools
import gzip
import hashlib
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from arch import HOST, Arch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
OUT = ROOT / "out"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "virtio-balloon"

DRIVER = ROOT / "drivers/virtio/virtio_balloon.c"
HISTORIC = HERE / "historic-shrinker.patch"
SOURCE_PACKAGE = "linux-source-6.12"
KERNEL_NAME = re.compile(r"linux-image-(6\.12\.[0-9]+\+[a-z0-9]+-amd64)")

# What each command needs. The kernel's own packages are not among them: its headers package would
# install a kernel, with an initramfs, on a machine that does not boot it. They are unpacked into
# the cache instead; libelf1 and pahole are what they need to build a module.
BUILD = ["gcc", "libc6-dev", "make", "kmod", "libelf1", "pahole"]
GUEST = BUILD + ["qemu-system-x86", "busybox-static"]
KUNIT = [SOURCE_PACKAGE, "gcc", "libc6-dev", "make", "xz-utils", "perl", "bc", "bison", "flex"]
PACKAGES = {
    "build": BUILD,
    "run": GUEST + ["gnuplot-nox"],
    "shell": GUEST,
    "bench": GUEST + ["gnuplot-nox"],
    "page-cache": GUEST + ["gnuplot-nox", "patch", "e2fsprogs"],
    "pressure": GUEST + ["gnuplot-nox"],
    "stress": GUEST,
    "check": GUEST + ["xz-utils", "perl", "sparse", "shellcheck", "qemu-utils",
                      "patch", "e2fsprogs", SOURCE_PACKAGE],
    "series": [SOURCE_PACKAGE, "xz-utils", "git"],
    "series-check": ["gcc", "libc6-dev", "make", "perl", "bc", "bison", "flex", "libelf-dev",
                     "libssl-dev", "binutils", "rsync", "sparse", "coccinelle", "python3-git",
                     "python3-ply", "python3-sphinx", "clang", "lld", "llvm",
                     "gcc-aarch64-linux-gnu", "gcc-s390x-linux-gnu", "gcc-powerpc-linux-gnu"],
    "kernel": [SOURCE_PACKAGE, "gcc", "libc6-dev", "make", "xz-utils", "patch", "perl", "bc",
               "bison", "flex", "libelf-dev", "kmod"],
    "kunit": KUNIT,
    "mutants": KUNIT + ["patch"],
}

# The parts of the kernel source that the checks read; all of it would be 1.4 GB.
SOURCE_PARTS = ["scripts", "include", "drivers/virtio", "tools/testing/selftests", "tools/include"]

KEEP_BUILDS = 24        # of each kind, most recently used first


class SetupError(Exception):
    """Something that the user can put right: the text says what it is and what to do."""


def say(text):
    print(text, file=sys.stderr, flush=True)


# --- running other programs -------------------------------------------------------------------

def output(*cmd, **kwargs):
    """The standard output of a short command, in the C locale; its failure is the caller's."""
    env = dict(os.environ, LC_ALL="C")
    return subprocess.run(cmd, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, check=False, **kwargs).stdout


def last_line(path):
    lines = path.read_text(errors="replace").replace("\r", "\n").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def follow(child, what, log):
    """Wait for a long command, showing that it lives: one moving line, or one line in 15 s."""
    start = time.monotonic()
    tty = sys.stderr.isatty()
    told = 0
    while child.poll() is None:
        time.sleep(0.1)
        seconds = int(time.monotonic() - start)
        if tty:
            print(f"\r\033[K  {seconds:3} s  {last_line(log)[:68]}", end="", file=sys.stderr)
        elif seconds >= told + 15:
            told = seconds
            say(f"  {seconds:3} s  {last_line(log)[:100]}")
    if tty:
        print("\r\033[K", end="", file=sys.stderr)
    return child.returncode


def long_run(what, cmd, log, **kwargs):
    """Run a long command with its output in a log; on failure the log's end is in the error."""
    say(f"{what} ...")
    log.parent.mkdir(parents=True, exist_ok=True)
    env = dict(os.environ, LC_ALL="C", DEBIAN_FRONTEND="noninteractive")
    with open(log, "wb") as sink:
        child = subprocess.Popen(cmd, env=env, stdin=subprocess.DEVNULL, stdout=sink,
                                 stderr=subprocess.STDOUT, **kwargs)
        try:
            code = follow(child, what, log)
        except KeyboardInterrupt:
            child.wait()        # it got the signal too; apt must not be cut off in mid-write
            raise
    if code:
        lines = log.read_text(errors="replace").splitlines()[-20:]
        raise SetupError(f"{what} failed ({' '.join(map(str, cmd))}):\n"
                         + "".join(f"  | {line}\n" for line in lines) + f"  whole log: {log}")


# --- the cache --------------------------------------------------------------------------------

def digest(*parts):
    """A short name for what something is made from: texts, and the contents of files."""
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else str(part).encode()
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:16]


def prune(kind):
    """Forget all but the most recently used builds of a kind."""
    found = sorted((CACHE / "build").glob(f"{kind}-*"), key=os.path.getmtime, reverse=True)
    for path in found[KEEP_BUILDS:]:
        shutil.rmtree(path, ignore_errors=True)


def cached(path, make):
    """The directory `path`, made by make(directory) in a temporary place if it is not there yet."""
    if path.exists():
        os.utime(path)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=path.parent) as room:
        new = Path(room) / "it"
        new.mkdir()
        make(new)
        try:
            new.rename(path)
        except OSError:         # another run was quicker and has made the same thing
            if not path.exists():
                raise
    if path.parent == CACHE / "build":
        prune(path.name.rpartition("-")[0])
    return path


# --- packages ---------------------------------------------------------------------------------

def installed(names):
    """Those of the packages that are installed."""
    found = output("dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\n", *names)
    return {line.split()[0] for line in found.splitlines() if line.endswith(" installed")}


def candidates(names):
    """Those of the packages that apt knows a version of."""
    found, name = set(), None
    for line in output("apt-cache", "policy", *names).splitlines():
        if not line.startswith(" "):
            name = line.rstrip(":")
        elif line.strip().startswith("Candidate:") and "(none)" not in line:
            found.add(name)
    return found


@functools.cache
def update():
    """Fetch apt's package lists, once in a run."""
    if os.geteuid() != 0:
        raise SetupError("apt's package lists must be fetched first; as root: apt-get update")
    long_run("Fetching package lists (apt-get update)", ["apt-get", "update"],
             CACHE / "apt-update.log")


def updated():
    return update.cache_info().currsize > 0


def agree(names):
    """Name what is about to be installed; ask, unless told not to or nobody is there."""
    say("Packages to install: " + " ".join(names))
    if os.environ.get("YES") == "1" or not sys.stdin.isatty():
        return
    answer = input("Install them with apt-get? [Y/n] ").strip().lower()
    if answer not in ("", "y", "yes"):
        raise SetupError("nothing was installed; the packages above are needed")


def with_fresh_lists(what, command, log, **kwargs):
    """Run an apt-get command; if it fails, once more with new lists: versions may have gone."""
    try:
        long_run(what, command, CACHE / log, **kwargs)
    except SetupError:
        if updated() or os.geteuid() != 0:
            raise
        update()
        long_run(what, command, CACHE / log, **kwargs)


def install(names):
    command = ["apt-get", "install", "-y", "--no-install-recommends", *names]
    if os.geteuid() != 0:
        raise SetupError("packages are missing: " + " ".join(names)
                         + "\n  as root: " + " ".join(command))
    agree(names)
    if set(names) - candidates(names):
        update()
    unknown = set(names) - candidates(names)
    if unknown:
        raise SetupError("apt knows no package " + ", ".join(sorted(unknown)))
    with_fresh_lists("Installing packages", command, "apt-install.log")


def ensure(what, skip=(), more=()):
    """Install what a command ("build", "run", "shell", "check") needs and is not there yet."""
    if os.uname().machine != HOST.name:
        raise SetupError(f"this needs an {HOST.name} machine, not {os.uname().machine}: it fetches "
                         "kernels and compilers for that")
    if not shutil.which("apt-get"):
        raise SetupError("this needs Debian's apt-get, to fetch a kernel and install packages")
    names = [name for name in dict.fromkeys([*PACKAGES[what], *more]) if name not in skip]
    there = installed(names)
    missing = [name for name in names if name not in there]
    if missing:
        install(missing)


# --- the guest's kernel -----------------------------------------------------------------------

@dataclass(frozen=True)
class Kernel:
    release: str
    image: Path         # what QEMU boots
    moddir: Path        # lib/modules/RELEASE of the unpacked package
    headers: Path       # what external modules are built against
    config: Path
    arch: Arch = HOST


def version(name):
    return [int(number) for number in re.findall(r"[0-9]+", name)]


def offers_kernel(name):
    """Whether apt can deliver both the kernel and its headers."""
    return len(candidates([f"linux-image-{name}", f"linux-headers-{name}"])) == 2


def offered():
    """The newest release that apt can deliver, or None."""
    names = output("apt-cache", "pkgnames", "linux-image-6.12.").split()
    found = [match[1] for match in map(KERNEL_NAME.fullmatch, names) if match]
    return next(filter(offers_kernel, sorted(found, key=version, reverse=True)), None)


def at_hand():
    """Releases, newest first, that are in the cache."""
    names = [path.name for path in (CACHE / "kernel").glob("[0-9]*")]
    return sorted(names, key=version, reverse=True)


@functools.cache
def release():
    """The kernel release the guest boots: KREL, else the one at hand, else apt's newest 6.12."""
    wanted = os.environ.get("KREL")
    if wanted:
        if not re.fullmatch(r"[A-Za-z0-9.+~-]+", wanted):
            raise SetupError(f'KREL="{wanted}" is no kernel release; '
                             "one looks like 6.12.9+deb12-amd64")
        return wanted
    found = next(iter(at_hand()), None) or offered()
    if not found:
        update()
        found = offered()
    if not found:
        raise SetupError("apt knows no linux-image-6.12.*-amd64 with its headers: the sources need "
                         "the security suite of Debian 12, or name another release with KREL=")
    return found


def kernel_packages(name):
    """The image, and what modules for it are built with."""
    names = [f"linux-image-{name}", f"linux-headers-{name}"]
    if not offers_kernel(name):
        update()
    if not offers_kernel(name):
        raise SetupError(f"apt knows no linux-image-{name} with headers (KREL={name}); "
                         "`apt-cache pkgnames linux-image-6.12` shows what there is")
    needs = re.findall(r"Depends: (linux-(?:headers|kbuild)-\S+)",
                       output("apt-cache", "depends", names[1]))
    return names + needs


def fetch(packages, into):
    """Download packages and unpack them into one directory, without installing them."""
    with tempfile.TemporaryDirectory(prefix=".deb-", dir=into.parent) as room:
        command = ["apt-get", "-o", "APT::Sandbox::User=root", "download", *packages]
        with_fresh_lists(f"Downloading {packages[0]} and its headers", command, "apt-download.log",
                         cwd=room)
        for deb in Path(room).glob("*.deb"):
            subprocess.run(["dpkg", "-x", deb, into], check=True)


def fetch_kernel(name, into):
    fetch(kernel_packages(name), into)
    makefile = into / f"usr/src/linux-headers-{name}/Makefile"
    beside = "$(dir $(lastword $(MAKEFILE_LIST)))../"
    makefile.write_text(makefile.read_text().replace("/usr/src/", beside))


@functools.cache
def kernel():
    """The guest's kernel, downloaded and unpacked if it is not in the cache."""
    name = release()
    base = cached(CACHE / "kernel" / name, lambda new: fetch_kernel(name, new))
    return Kernel(name, base / f"boot/vmlinuz-{name}", base / f"lib/modules/{name}",
                  base / f"usr/src/linux-headers-{name}", base / f"boot/config-{name}")


def kernel_module(name, of=None):
    """[paths] of one of a kernel's own modules, uncompressed, after those it depends on."""
    of = of or kernel()
    spelled = re.sub("[_-]", "[_-]", name)
    packed = next(of.moddir.glob(f"kernel/**/{spelled}.ko*"), None)
    if packed is None:
        return []               # built in, or not there: loading will tell
    data = packed.read_bytes()
    if packed.suffix == ".xz":
        data = lzma.decompress(data)

    def write(new):
        (new / f"{name}.ko").write_bytes(data)

    path = cached(CACHE / "build" / f"stock-{of.release}-{name}", write) / f"{name}.ko"
    needs = re.search(rb"\0depends=([^\0]*)\0", data)
    needs = [one for one in needs[1].decode().split(",") if one] if needs else []
    before = [file for one in needs for file in kernel_module(one, of)]
    return list(dict.fromkeys(before + [path]))


def stock_module(of=None):
    """A kernel's own balloon driver, to compare with."""
    return kernel_module("virtio_balloon", of)[-1]


def source():
    """(the kernel source's parts that checks read, "") or (None, why it is not there)."""
    archive = Path(f"/usr/src/{SOURCE_PACKAGE}.tar.xz")
    if not archive.exists():
        return None, f"{archive} is not there (package {SOURCE_PACKAGE})"

    def unpack(new):
        parts = [f"{SOURCE_PACKAGE}/{part}" for part in SOURCE_PARTS]
        long_run("Unpacking kernel source", ["tar", "-xJf", archive, "-C", new,
                                             "--strip-components=1", *parts],
                 CACHE / "unpack.log")

    state = archive.stat()
    name = digest(*SOURCE_PARTS, state.st_size, int(state.st_mtime))
    return cached(CACHE / "source" / f"linux-{name}", unpack), ""


# --- the module -------------------------------------------------------------------------------

# LINUXINCLUDE rather than ccflags-y: the kernel's own copy of our header is found through the
# former, and the first directory wins.
KBUILD = """\
obj-m := virtio_balloon.o
LINUXINCLUDE := -I$(src)/include -I$(src)/include/uapi $(LINUXINCLUDE)
ccflags-y := {cflags}
"""


@functools.cache
def compiler(cross=""):
    """What tells one compiler from another. GCC answers only the first of two questions."""
    return cross + output(f"{cross}gcc", "-dumpfullversion", "-dumpmachine")


def module_files(driver):
    """{place in the build directory: file} of all that the module is made from."""
    files = {"virtio_balloon.c": Path(driver)}
    for header in sorted((ROOT / "drivers/virtio").glob("*.h")):
        files[header.name] = header
    for header in sorted((ROOT / "include").glob("**/*.h")):
        files[str(header.relative_to(ROOT))] = header
    return files


def stage(files, new, cflags):
    for place, file in files.items():
        (new / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, new / place)
    (new / "Kbuild").write_text(KBUILD.format(cflags=cflags))


def kdir_release(kdir):
    try:
        return (kdir / "include/config/kernel.release").read_text().strip()
    except OSError:
        raise SetupError(f"KDIR={kdir} is no directory to build modules against; one is "
                         "/lib/modules/$(uname -r)/build, with the headers installed") from None


def module(src=None, extra_cflags="", kdir=None, make_args=(), arch=HOST):
    """The driver built as a module (from another source file, for another kernel): its path.

    The compiler's words are beside it in build.log. Warnings of W=1 are asked for by make_args:
    they need more than the compiler (kernel-doc is Perl).
    """
    driver = Path(src or DRIVER)
    if not driver.is_file():
        raise SetupError(f"{driver} is not there: this is no complete checkout")
    kdir = Path(kdir).resolve() if kdir else kernel().headers
    files = module_files(driver)
    make_args = [*arch.make_args(), *make_args]
    name = digest(str(kdir), kdir_release(kdir), compiler(arch.cross), KBUILD, extra_cflags,
                  *make_args, *files, *files.values())

    def build(new):
        stage(files, new, extra_cflags)
        jobs = f"-j{os.cpu_count()}"
        long_run(f"Building virtio_balloon.ko for {kdir_release(kdir)}",
                 ["make", "-C", kdir, f"M={new}", jobs, *make_args, "modules"],
                 CACHE / "module.log")
        shutil.copyfile(CACHE / "module.log", new / "build.log")

    return cached(CACHE / "build" / f"module-{name}", build) / "virtio_balloon.ko"


def test_module(name, kdir, arch=HOST):
    """kmod/NAME.c built as a module: its path."""
    file = HERE / "kmod" / f"{name}.c"
    key = digest(str(kdir), kdir_release(kdir), compiler(arch.cross), file)

    def build(new):
        shutil.copyfile(file, new / file.name)
        (new / "Kbuild").write_text(f"obj-m := {name}.o\n")
        long_run(f"Building {name}.ko for {kdir_release(kdir)}",
                 ["make", "-C", kdir, f"M={new}", *arch.make_args(), "modules"],
                 CACHE / "module.log")

    return cached(CACHE / "build" / f"kmod-{key}", build) / f"{name}.ko"


def historic_source():
    """The driver with the patch that makes it deflate from a shrinker, as it once did."""
    def make(new):
        done = subprocess.run(["patch", "-s", "-o", new / "virtio_balloon.c", DRIVER, HISTORIC],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode:
            raise SetupError(f"{HISTORIC.name} does not fit the driver any more:\n{done.stdout}")

    name = digest(DRIVER, HISTORIC)
    return cached(CACHE / "build" / f"historic-{name}", make) / "virtio_balloon.c"


# --- programs for the guest -------------------------------------------------------------------

def program(names, cflags=(), arch=HOST):
    """{name: path} of guest/NAME.c, each built static."""
    headers = sorted((HERE / "guest").glob("*.h"))
    flags = ["-O2", "-Wall", "-Wextra", "-static", *map(str, cflags)]
    built = {}
    for name in [names] if isinstance(names, str) else names:
        file = HERE / "guest" / f"{name}.c"

        def build(new, file=file, name=name):
            done = subprocess.run([f"{arch.cross}gcc", *flags, "-o", new / name, file],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  check=False)
            if done.returncode:
                raise SetupError(f"{file} does not compile:\n{done.stdout}")

        key = digest(file, compiler(arch.cross), *flags, *headers)
        built[name] = cached(CACHE / "build" / f"program-{key}", build) / name
    return built


# --- the initramfs ----------------------------------------------------------------------------

def cpio_entry(name, mode, data=b""):
    """One member of a "newc" archive: the format the kernel unpacks."""
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def initramfs(files, path):
    """Write a compressed archive of {place in the guest: file or text}; returns its path."""
    folders = {str(parent) for place in files for parent in Path(place).parents} - {"."}
    parts = [cpio_entry(folder, 0o040755) for folder in sorted(folders)]
    for place, file in files.items():
        data = file.read_bytes() if isinstance(file, Path) else file.encode()
        parts.append(cpio_entry(place, 0o100755, data))
    parts.append(cpio_entry("TRAILER!!!", 0))
    Path(path).write_bytes(gzip.compress(b"".join(parts), compresslevel=1))
    return path


FOREIGN_APT = """\
APT::Architecture "{debian}";
APT::Architectures {{ "{debian}"; }};
APT::Sandbox::User "root";
Dir::State::lists "{room}/lists";
Dir::State::status "{room}/status";
Dir::Cache "{room}/cache";
"""


def fetch_foreign(package, debian, into):
    """A package of another architecture, unpacked. This machine's own lists know none of it."""
    with tempfile.TemporaryDirectory(prefix=".apt-", dir=CACHE) as room:
        for folder in ("lists/partial", "cache/archives/partial"):
            (Path(room) / folder).mkdir(parents=True)
        (Path(room) / "status").touch()
        (Path(room) / "apt.conf").write_text(FOREIGN_APT.format(debian=debian, room=room))
        apt = ["env", f"APT_CONFIG={room}/apt.conf", "apt-get"]
        long_run(f"Fetching package lists for {debian}", [*apt, "update"],
                 CACHE / "apt-update.log")
        long_run(f"Downloading {package} for {debian}", [*apt, "download", package],
                 CACHE / "apt-download.log", cwd=room)
        for deb in Path(room).glob("*.deb"):
            subprocess.run(["dpkg", "-x", deb, into], check=True)


def busybox(arch=HOST):
    """A static busybox that runs in guests of an architecture."""
    if arch != HOST:
        return cached(CACHE / "busybox" / arch.debian, lambda new: fetch_foreign(
            "busybox-static", arch.debian, new)) / "bin/busybox"
    path = shutil.which("busybox")
    if not path:
        raise SetupError("busybox is missing (package busybox-static)")
    return Path(path)


# --- commands ---------------------------------------------------------------------------------

def own(folder):
    """Make an empty output directory ours until this process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SetupError(f"{folder} is in use: the same command is running already") from None
    for item in folder.iterdir():
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item)
        else:
            item.unlink()


def parser(name, doc):
    """For a command's arguments; its help is what its file says."""
    return argparse.ArgumentParser(prog=name, description=doc,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)


def flag(name):
    """Whether a variable of `make` is 1."""
    value = os.environ.get(name) or "0"
    if value not in ("0", "1"):
        raise SetupError(f'{name}="{value}" must be 1 or 0')
    return value == "1"


def main():
    options = parser("setup.py", "`make module`: build the driver for the guest's kernel, or for "
                     "KDIR, and put the result into out/.")
    options.add_argument("--kdir", default=os.environ.get("KDIR"), metavar="DIRECTORY",
                         help="a kernel that is built or whose headers are installed (KDIR=)")
    kdir = options.parse_args().kdir
    if not kdir:
        ensure("build")
    elif not shutil.which("gcc") or not shutil.which("make"):
        raise SetupError("gcc and make are needed; as root: apt-get install -y gcc make libc6-dev")
    built = module(kdir=kdir)
    OUT.mkdir(exist_ok=True)
    target = OUT / "virtio_balloon.ko"
    shutil.copyfile(built, target)
    kind = output("modinfo", "-F", "vermagic", target).strip() if shutil.which("modinfo") else ""
    say(f"{target.relative_to(ROOT)} is built" + (f" for {kind}" if kind else ""))


def interrupted(*_):
    raise KeyboardInterrupt


def guarded(entry):
    """Run a command's main: errors as one clear message, exit 2; Ctrl-C as exit 130."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):    # also if started with "&"
        signal.signal(number, interrupted)
    try:
        sys.exit(entry())
    except (SetupError, OSError) as error:
        say(f"error: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        say("\ninterrupted")
        sys.exit(130)


if __name__ == "__main__":
    guarded(main)
