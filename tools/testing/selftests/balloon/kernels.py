# SPDX-License-Identifier: GPL-2.0
"""Guest kernels built from Debian's source, where its own will not do.

Each is a list of configuration fragments on top of tinyconfig, and of patches from this project.
The balloon driver in them is the kernel's own, as a module; ours is built against them like against
any other kernel.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import arch as architectures
import setup
from setup import SetupError

FOLDER = setup.HERE / "kernels"
SKIP_ZERO = setup.HERE / "patches/mm-skip-zero.patch"


@dataclass(frozen=True)
class Variant:
    fragments: tuple
    patches: tuple = ()


VARIANTS = {
    # Zeroes what it allocates, and knows what need not be.
    "zeroing": Variant(("small.config", "zeroing.config"), (SKIP_ZERO,)),
    # KASAN, lockdep, kmemleak and the like; slow.
    "debug": Variant(("small.config", "debug.config")),
}


def archive():
    path = Path(f"/usr/src/{setup.SOURCE_PACKAGE}.tar.xz")
    if not path.exists():
        raise SetupError(f"{path} is not there (package {setup.SOURCE_PACKAGE})")
    return path


def tree(patches):
    """The whole kernel source, with patches: {it}/linux."""
    packed = archive()
    state = packed.stat()

    def make(new):
        setup.long_run("Unpacking the kernel source",
                       ["tar", "-xJf", packed, "-C", new], setup.CACHE / "unpack.log")
        (new / setup.SOURCE_PACKAGE).rename(new / "linux")
        for patch in patches:
            setup.long_run(f"Applying {patch.name}",
                           ["patch", "-s", "-p1", "-d", new / "linux", "-i", patch],
                           setup.CACHE / "patch.log")

    name = setup.digest(state.st_size, int(state.st_mtime), *patches)
    return setup.cached(setup.CACHE / "source" / f"whole-{name}", make) / "linux"


def make_command(source, new, arch):
    return ["make", "-C", source, f"O={new}", *arch.make_args()]


def configure(source, new, fragments, arch):
    """tinyconfig and fragments. What a fragment wants and does not get is an error."""
    log = setup.CACHE / "kernel-config.log"
    merge = source / "scripts/kconfig/merge_config.sh"
    build = make_command(source, new, arch)
    setup.long_run("Configuring the kernel", [*build, "tinyconfig"], log)
    setup.long_run("Merging its configuration",
                   [merge, "-m", "-O", new, new / ".config", *fragments], log)
    setup.long_run("Completing its configuration", [*build, "olddefconfig"], log)
    got = set((new / ".config").read_text().splitlines())
    wanted = [line for fragment in fragments for line in fragment.read_text().splitlines()
              if line.startswith("CONFIG_")]
    missing = [line for line in wanted if line not in got]
    if missing:
        raise SetupError("the kernel's configuration does not take " + ", ".join(missing))


def compile_in(source, new, what, fragments, arch):
    build = [*make_command(source, new / "build", arch), f"-j{os.cpu_count()}"]
    (new / "build").mkdir()
    configure(source, new / "build", fragments, arch)
    setup.long_run(f"Building the {what} kernel (once, about ten minutes on two CPUs)",
                   [*build, arch.target, "modules"], setup.CACHE / "kernel-build.log")
    setup.long_run("Installing its modules into the cache",
                   [*build, f"INSTALL_MOD_PATH={new / 'root'}", "modules_install"],
                   setup.CACHE / "kernel-build.log")
    shutil.copyfile(new / "build" / arch.image, new / arch.target)


def make(what, variant, arch):
    """A kernel as a setup.Kernel, built if it is not in the cache."""
    source = tree(variant.patches)
    fragments = [FOLDER / fragment for fragment in variant.fragments]
    name = setup.digest(str(source), setup.compiler(arch.cross), *fragments)
    path = setup.cached(setup.CACHE / "kernel-built" / f"{what}-{name}",
                        lambda new: compile_in(source, new, what, fragments, arch))
    release = (path / "build/include/config/kernel.release").read_text().strip()
    return setup.Kernel(f"{release}-{what}", path / arch.target,
                        path / f"root/lib/modules/{release}", path / "build",
                        path / "build/.config", arch)


def built(what):
    """The kernel of that name for this machine's own architecture."""
    return make(what, VARIANTS[what], architectures.HOST)


def foreign(arch):
    """The kernel of another architecture."""
    return make(arch.name, Variant(arch.fragments), arch)
