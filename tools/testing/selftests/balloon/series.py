# SPDX-License-Identifier: GPL-2.0
"""`make series`: this repository as a patch series for the kernel, in out/series.

Made with git against Debian's unchanged source, from the files here. What stands in files that are
not ours (Kconfig, MAINTAINERS, lists of tests and pages) is put into the kernel's own. The series
is signed off by whoever git says you are. At last the patches are applied to that source once more,
and what comes of it is compared with the files here.
"""

import json
import os
import re
import shutil
import statistics
import subprocess

import kernels
import setup
from setup import SetupError, say

OUT = setup.OUT / "series"
TEXTS = setup.HERE / "series"
SELFTESTS = "tools/testing/selftests/balloon"
# What of the tests is of no use in a kernel tree: it is about making one from this.
NOT_IN_TREE = ("series", "series.py", "series_check.py")
# Nothing of the user's settings may shape the patches, or ask for a key.
ALONE = dict(os.environ, LC_ALL="C", GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1")

DOCUMENTATION = ("Documentation/ABI", "Documentation/admin-guide", "Documentation/driver-api")
# What is ours as a whole, besides the tests.
WHOLE = ("drivers/virtio/virtio_balloon.c", "drivers/virtio/tests",
         "include/trace/events/virtio_balloon.h", *DOCUMENTATION)

# The kernel's files that the series changes.
BASE = ("drivers/virtio/virtio_balloon.c", "drivers/virtio/Kconfig", "drivers/virtio/Makefile",
        "MAINTAINERS", "tools/testing/selftests/Makefile", "Documentation/admin-guide/mm/index.rst",
        "Documentation/driver-api/virtio/index.rst", "include/linux/gfp_types.h",
        "include/trace/events/mmflags.h", "mm/page_alloc.c")

KUNIT_TAIL = re.compile(r"\n#if IS_ENABLED\(CONFIG_VIRTIO_BALLOON_KUNIT_TEST\)\n.*?#endif\n", re.S)
KUNIT_ENTRY = re.compile(r"\nconfig VIRTIO_BALLOON_KUNIT_TEST\n.*?(?=\nconfig |\Z)", re.S)


# --- git --------------------------------------------------------------------------------------

def git(tree, *args, text=None):
    """git in a tree of its own; its output."""
    done = subprocess.run(["git", "-C", tree, *map(str, args)], input=text, text=True, env=ALONE,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise SetupError(f"git {' '.join(map(str, args))} failed:\n{done.stdout}")
    return done.stdout


def identity():
    """Whoever sends a patch must sign it off; nobody else can."""
    for key, example in (("user.name", '"Your Name"'), ("user.email", "you@example.org")):
        if not setup.output("git", "-C", setup.ROOT, "config", key).strip():
            raise SetupError(f"git does not know who you are, and a patch must be signed off: "
                             f"git config --global {key} {example}")
    return [setup.output("git", "-C", setup.ROOT, "config", key).strip()
            for key in ("user.name", "user.email")]


def base():
    """The kernel's files that change, as they are in its source."""
    packed = kernels.archive()
    state = packed.stat()

    def make(new):
        names = [f"{setup.SOURCE_PACKAGE}/{name}" for name in BASE]
        setup.long_run("Unpacking what the series changes", ["tar", "-xJf", packed, "-C", new,
                       "--strip-components=1", *names], setup.CACHE / "unpack.log")

    name = setup.digest(*BASE, state.st_size, int(state.st_mtime))
    return setup.cached(setup.CACHE / "source" / f"base-{name}", make)


# --- files that are not ours ------------------------------------------------------------------

def change(tree, name, how):
    path = tree / name
    before = path.read_text(encoding="utf-8")
    after = how(before)
    if before == after:
        raise SetupError(f"{name} of the kernel has no place for what is ours")
    path.write_text(after, encoding="utf-8")


def put_section(begin, ours, end):
    """How to replace a section of a file, from a line to what ends it, by ours."""
    def how(text):
        section = re.compile(rf"^{re.escape(begin)}\n.*?(?={end}|\Z)", re.M | re.S)
        return section.sub(lambda _: ours.strip("\n") + "\n\n", text, count=1)

    return how


def add_line(line):
    """How to add a line to a sorted list of such lines, which has the same beginning."""
    indent = re.match(r"\s*(?:TARGETS \+= )?", line)[0]

    def how(text):
        lines = text.split("\n")
        entry = re.compile(rf"{re.escape(indent)}[\w/-]+$")
        places = [number for number, one in enumerate(lines) if entry.match(one)]
        after = [number for number in places if lines[number] < line]
        if places:
            lines.insert(after[-1] + 1 if after else places[0], line)
        return "\n".join(lines)

    return how


def without_comment(text):
    """Our fragment of a kernel file, without the words that say that it is one."""
    return re.sub(r"\A(?:#.*\n)+\n*", "", text)


# --- the patches ------------------------------------------------------------------------------

def copy(tree, *names):
    for name in names:
        source, target = setup.ROOT / name, tree / name
        if source.is_dir():
            tracked = setup.output("git", "-C", setup.ROOT, "ls-files", name).splitlines()
            copy(tree, *tracked)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def ours(name):
    return (setup.ROOT / name).read_text(encoding="utf-8")


def kconfig_entry():
    return without_comment(ours("drivers/virtio/Kconfig"))


def put_kconfig(tree, entry):
    change(tree, "drivers/virtio/Kconfig", put_section("config VIRTIO_BALLOON", entry, r"^config "))


def add_driver(tree):
    text = KUNIT_TAIL.sub("", ours("drivers/virtio/virtio_balloon.c"))
    (tree / "drivers/virtio/virtio_balloon.c").write_text(text, encoding="utf-8")
    put_kconfig(tree, KUNIT_ENTRY.sub("", kconfig_entry()))


def add_kunit(tree):
    copy(tree, "drivers/virtio/virtio_balloon.c", "drivers/virtio/tests")
    entry = kconfig_entry().partition("config VIRTIO_BALLOON_KUNIT_TEST")
    change(tree, "drivers/virtio/Kconfig",
           lambda text: text.replace("config VIRTIO_MEM\n", "".join(entry[1:]).strip("\n")
                                     + "\n\nconfig VIRTIO_MEM\n", 1))


def selftests():
    tracked = setup.output("git", "-C", setup.ROOT, "ls-files", SELFTESTS).splitlines()
    return [name for name in tracked
            if name.removeprefix(SELFTESTS + "/").split("/")[0] not in NOT_IN_TREE]


def add_selftests(tree):
    copy(tree, *selftests())
    change(tree, "tools/testing/selftests/Makefile", add_line("TARGETS += balloon"))


def add_documentation(tree):
    copy(tree, *DOCUMENTATION)
    change(tree, "Documentation/admin-guide/mm/index.rst", add_line("   virtio-balloon"))
    change(tree, "Documentation/driver-api/virtio/index.rst", add_line("   virtio_balloon"))


def add_maintainers(tree):
    entry = without_comment(ours("MAINTAINERS"))
    next_one = r"^[A-Z0-9][^:\n]*\n[A-Z]:"
    change(tree, "MAINTAINERS", put_section("VIRTIO BALLOON", entry, next_one))


PATCHES = (
    ("02-trace.txt", lambda tree: copy(tree, "include/trace/events/virtio_balloon.h")),
    ("03-driver.txt", add_driver),
    ("04-kunit.txt", add_kunit),
    ("05-selftests.txt", add_selftests),
    ("06-documentation.txt", add_documentation),
    ("07-maintainers.txt", add_maintainers),
)


def commit(tree, message):
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-s", "-F", "-", text=message)
    say(f"  {message.splitlines()[0]}")


def start(name):
    """The kernel's files, as a repository of their own."""
    tree = OUT / name
    shutil.copytree(base(), tree)
    git(tree, "init", "-q", "-b", "series")
    for key, value in zip(("user.name", "user.email"), identity()):
        git(tree, "config", key, value)
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "the kernel's source")
    git(tree, "tag", "base")
    return tree


def make_tree():
    tree = start("tree")
    message, _, patch = kernels.SKIP_ZERO.read_text(encoding="utf-8").partition("---\n")
    git(tree, "apply", "-", text=patch)
    commit(tree, message)
    for text, add in PATCHES:
        add(tree)
        commit(tree, (TEXTS / text).read_text(encoding="utf-8"))
    return tree


def patches():
    """The series without its letter."""
    return [path for path in sorted(OUT.glob("*.patch")) if not path.name.startswith("0000")]


# --- the same as here -------------------------------------------------------------------------

def whole_files():
    listed = setup.output("git", "-C", setup.ROOT, "ls-files", *WHOLE).splitlines()
    return sorted([*listed, *selftests()])


def same(one, two):
    return (two.is_file() and one.read_bytes() == two.read_bytes()
            and os.access(one, os.X_OK) == os.access(two, os.X_OK))


def differences(tree):
    """What a tree with the series applied has that is not as it is here."""
    names = whole_files()
    bad = [name for name in names if not same(setup.ROOT / name, tree / name)]
    for name in ("drivers/virtio/Kconfig", "drivers/virtio/Makefile", "MAINTAINERS"):
        if without_comment(ours(name)).strip("\n") not in (tree / name).read_text("utf-8"):
            bad.append(name)
    changed = git(tree, "diff", "--name-only", "base").splitlines()
    return bad + sorted(set(changed) - set(names) - set(BASE))


def apply_again():
    """What a maintainer would get; it must be what is here."""
    tree = start("applied")
    git(tree, "am", "-q", *patches())
    bad = differences(tree)
    if bad:
        raise SetupError("the series does not make what is here: " + ", ".join(bad))
    shutil.rmtree(tree)
    return len(whole_files())


# --- the cover letter -------------------------------------------------------------------------

def middle(samples):
    return statistics.median(samples)


def speed_row(label, figure):
    stock, mine = (middle(figure["samples"][who]) for who in ("stock", "ours"))
    return f"  {label:44}{stock:9.4g}{mine:9.4g} {figure['unit']}".rstrip()


def speed_table(rows):
    for row in rows.values():
        known = {name: one for name, one in row.get("figures", {}).items()
                 if {"stock", "ours"} <= {who for who, found in one["samples"].items() if found}}
        if known:
            yield f"  {row['about']}"
            yield from (speed_row("  " + name, one) for name, one in known.items())


def speed():
    """The bench's figures, if it was run here."""
    try:
        told = json.loads((setup.OUT / "bench/bench.json").read_text(encoding="utf-8"))
        lines = list(speed_table(told["rows"]))
        where = told["environment"]
        head = (f"Speed by `make bench`, medians of {where['rounds']} rounds; guest kernel\n"
                f"{where['guest kernel']}, {where['cpus']} CPUs:\n\n"
                f"  {'':44}{'stock':>9}{'new':>9}")
    except FileNotFoundError:
        lines = []
    except (KeyError, TypeError, ValueError) as error:
        raise SetupError(f"out/bench/bench.json is not what make bench writes: {error!r}") from None
    if not lines:
        return "Figures of speed are not given here: `make bench` of the project makes them."
    return "\n".join([head, *lines])


def source_version():
    found = setup.output("dpkg-query", "-W", "-f=${Version}", setup.SOURCE_PACKAGE).strip()
    return f"{setup.SOURCE_PACKAGE} {found}".strip()


def cover_letter():
    """git's, with our words and its own list of what changes."""
    subject, _, words = (TEXTS / "cover-letter.txt").read_text(encoding="utf-8").partition("\n")
    words = words.replace("@SPEED@", speed()).replace("@BASE@", source_version())
    path = OUT / "0000-cover-letter.patch"
    text = path.read_text(encoding="utf-8")
    text = text.replace("*** SUBJECT HERE ***", subject.strip())
    path.write_text(text.replace("*** BLURB HERE ***", words.strip()), encoding="utf-8")


def make():
    """The series in out/series; the tree with a commit for each patch."""
    identity()
    setup.own(OUT)
    say("Making the series:")
    tree = make_tree()
    git(tree, "format-patch", "-q", "--cover-letter", "-M", "-o", OUT, "base")
    cover_letter()
    return tree


def main():
    setup.parser("series.py", __doc__).parse_args()
    setup.ensure("series")
    tree = make()
    count = apply_again()
    for path in sorted(OUT.glob("*.patch")):
        print(path.relative_to(setup.ROOT))
    print(git(tree, "diff", "--stat", "base").splitlines()[-1].strip())
    print(f"applied to {source_version()} it makes what is here: {count} files are the same")
    print(f"as `git am` takes it:  git am {OUT.relative_to(setup.ROOT)}/000[1-7]*.patch")
    return 0


if __name__ == "__main__":
    setup.guarded(main)
