# SPDX-License-Identifier: GPL-2.0
"""`make series`: this repository as a patch series for the kernel, in out/series.

Made with git against Debian's unchanged source, from the files here. What stands in files that are
not ours (Kconfig, MAINTAINERS, lists of tests and pages) is put into the kernel's own. The series
is signed off by whoever git says you are.
"""

import re
import shutil
import subprocess

import kernels
import setup
from setup import SetupError, say

OUT = setup.OUT / "series"
TEXTS = setup.HERE / "series"
SELFTESTS = "tools/testing/selftests/balloon"
# What of the tests is of no use in a kernel tree: it is about making one from this.
NOT_IN_TREE = ("series", "patches", "series.py", "__pycache__")

# The kernel's files that the series changes.
BASE = ("drivers/virtio/virtio_balloon.c", "drivers/virtio/Kconfig", "drivers/virtio/Makefile",
        "MAINTAINERS", "tools/testing/selftests/Makefile", "Documentation/admin-guide/mm/index.rst",
        "Documentation/driver-api/virtio/index.rst", "include/linux/gfp_types.h",
        "include/trace/events/mmflags.h", "mm/page_alloc.c")

KUNIT_TAIL = re.compile(r"\n#if IS_ENABLED\(CONFIG_VIRTIO_BALLOON_KUNIT_TEST\)\n.*?#endif\n", re.S)
KUNIT_ENTRY = re.compile(r"\nconfig VIRTIO_BALLOON_KUNIT_TEST\n.*?(?=\nconfig |\Z)", re.S)


# --- git --------------------------------------------------------------------------------------

def git(*args, text=None):
    """git in the tree that the series is made in; its output."""
    done = subprocess.run(["git", "-C", OUT / "tree", *map(str, args)], input=text, text=True,
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


def put_section(begin, ours):
    """How to replace a section of a file, from a line to the next section, by ours."""
    def how(text):
        section = re.compile(rf"^{re.escape(begin)}\n(?:.*\n)*?(?=^(?:config |[A-Z0-9])|\Z)", re.M)
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


def add_driver(tree):
    text = KUNIT_TAIL.sub("", ours("drivers/virtio/virtio_balloon.c"))
    (tree / "drivers/virtio/virtio_balloon.c").write_text(text, encoding="utf-8")
    entry = KUNIT_ENTRY.sub("", without_comment(ours("drivers/virtio/Kconfig")))
    change(tree, "drivers/virtio/Kconfig", put_section("config VIRTIO_BALLOON", entry))


def add_kunit(tree):
    copy(tree, "drivers/virtio/virtio_balloon.c", "drivers/virtio/tests")
    entry = without_comment(ours("drivers/virtio/Kconfig"))
    change(tree, "drivers/virtio/Kconfig", put_section("config VIRTIO_BALLOON", entry))


def add_selftests(tree):
    tracked = setup.output("git", "-C", setup.ROOT, "ls-files", SELFTESTS).splitlines()
    copy(tree, *[name for name in tracked
                 if name.removeprefix(SELFTESTS + "/").split("/")[0] not in NOT_IN_TREE])
    change(tree, "tools/testing/selftests/Makefile", add_line("TARGETS += balloon"))


def add_documentation(tree):
    copy(tree, "Documentation/ABI", "Documentation/admin-guide", "Documentation/driver-api")
    change(tree, "Documentation/admin-guide/mm/index.rst", add_line("   virtio-balloon"))
    change(tree, "Documentation/driver-api/virtio/index.rst", add_line("   virtio_balloon"))


def add_maintainers(tree):
    entry = without_comment(ours("MAINTAINERS"))
    change(tree, "MAINTAINERS", put_section("VIRTIO BALLOON", entry))


PATCHES = (
    ("02-trace.txt", lambda tree: copy(tree, "include/trace/events/virtio_balloon.h")),
    ("03-driver.txt", add_driver),
    ("04-kunit.txt", add_kunit),
    ("05-selftests.txt", add_selftests),
    ("06-documentation.txt", add_documentation),
    ("07-maintainers.txt", add_maintainers),
)


def commit(message):
    git("add", "-A")
    git("commit", "-q", "-s", "-F", "-", text=message)
    say(f"  {message.splitlines()[0]}")


def make_tree():
    tree = OUT / "tree"
    shutil.copytree(base(), tree)
    git("init", "-q", "-b", "series")
    for key, value in zip(("user.name", "user.email"), identity()):
        git("config", key, value)
    git("add", "-A")
    git("commit", "-q", "-m", "the kernel's source")
    message, _, patch = kernels.SKIP_ZERO.read_text(encoding="utf-8").partition("---\n")
    git("apply", "-", text=patch)
    commit(message)
    for text, add in PATCHES:
        add(tree)
        commit((TEXTS / text).read_text(encoding="utf-8"))


def cover_letter():
    """git's, with our words and its own list of what changes."""
    subject, _, words = (TEXTS / "cover-letter.txt").read_text(encoding="utf-8").partition("\n")
    path = OUT / "0000-cover-letter.patch"
    text = path.read_text(encoding="utf-8")
    text = text.replace("*** SUBJECT HERE ***", subject.strip())
    path.write_text(text.replace("*** BLURB HERE ***", words.strip()), encoding="utf-8")


def main():
    setup.ensure("series")
    identity()
    setup.own(OUT)
    say("Making the series:")
    make_tree()
    git("format-patch", "-q", "--cover-letter", "-M", "-o", OUT, "HEAD~7")
    cover_letter()
    for path in sorted(OUT.glob("*.patch")):
        print(path.relative_to(setup.ROOT))
    print(git("diff", "--stat", "HEAD~7").splitlines()[-1].strip())
    print(f"as `git am` takes it:  git am {OUT.relative_to(setup.ROOT)}/000[1-7]*.patch")
    return 0


if __name__ == "__main__":
    setup.guarded(main)
