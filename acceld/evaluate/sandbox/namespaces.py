"""Put a process into namespaces of its own: without network, and with an almost empty file system.

A process with CAP_SYS_ADMIN in the first user namespace makes the namespaces directly, and drops its user id
afterwards. A process of an ordinary user makes a user namespace first.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from acceld.evaluate.sandbox import linux

_SEPARATE = linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS | linux.CLONE_NEWCGROUP
INNER_ID = 1000
"""The user and group id of an ordinary user inside the user namespace."""


def separate() -> None:
    """Put the future children of this process into new pid, net, ipc, uts and cgroup namespaces.

    The process must have a single thread, which a user namespace demands. Raise OSError if the system refuses.
    """
    uid, gid = os.getuid(), os.getgid()
    if linux.capable(linux.CAP_SYS_ADMIN):
        linux.unshare(_SEPARATE)
        return
    linux.unshare(_SEPARATE | linux.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{INNER_ID} {uid} 1"), ("gid_map", f"{INNER_ID} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


@dataclass(frozen=True, slots=True)
class System:
    """The system facilities that a jailed program expects: /proc, shared memory, a user with a name, processor
    counts.
    """

    READ: ClassVar[tuple[str, ...]] = ("/proc", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/sys")
    WRITE: ClassVar[tuple[str, ...]] = ("/dev/shm",)
    uid: int
    shared_bytes: int

    def make(self, root: str) -> None:
        """Create the facilities below the folder ``root``. Raise OSError if the system refuses.

        The caller must be the first process of a pid namespace, so that /proc shows the jail's processes only.
        """
        for folder in ("proc", "etc", "dev/shm", "sys/devices/system/cpu"):
            os.makedirs(f"{root}/{folder}", 0o755, exist_ok=True)
        flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
        linux.mount("proc", f"{root}/proc", "proc", flags | linux.MS_RDONLY)
        linux.mount("tmpfs", f"{root}/dev/shm", "tmpfs", flags, f"size={self.shared_bytes},nr_inodes=4096,mode=1777")
        user = f"acceld:x:{self.uid}:{self.uid}:acceld:/tmp:/bin/sh\n"
        made = {"passwd": user, "group": f"acceld:x:{self.uid}:\n", "nsswitch.conf": "passwd: files\ngroup: files\n"}
        cores = f"0-{(os.cpu_count() or 1) - 1}\n"
        files = {f"etc/{name}": text for name, text in made.items()}
        files |= {f"sys/devices/system/cpu/{name}": cores for name in ("online", "possible", "present")}
        for name, text in files.items():
            with open(f"{root}/{name}", "w", encoding="ascii") as file:
                file.write(text)


def empty_root(
    *, scratch_bytes: int, read: tuple[str, ...] = (), write: tuple[str, ...] = (), system: System | None = None
) -> None:
    """Replace the file system by a new one that has only ``/tmp`` (a private tmpfs) and the given paths."""
    os.umask(0o022)  # evaluated code has another user id, which must be able to enter these folders
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    old = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC), path in write) for path in (*read, *write)]
    linux.mount("tmpfs", "/tmp", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=1m,nr_inodes=4096,mode=755")
    root = "/tmp"
    os.mkdir(f"{root}/tmp", 0o777)
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    linux.mount("tmpfs", f"{root}/tmp", "tmpfs", flags, f"size={scratch_bytes},nr_inodes=1024,mode=1777")
    for path, descriptor, writable in old:
        real = os.path.realpath(path)
        _bind(root + real, descriptor, writable)
        os.close(descriptor)
        if real != path and not os.path.lexists(root + path):
            # Paths such as /lib64, under which programs look for their loader.
            os.makedirs(os.path.dirname(root + path), 0o755, exist_ok=True)
            os.symlink(real, root + path)
        _link(root, path)
    if system is not None:
        system.make(root)
    os.chdir(root)
    linux.pivot_root(".", ".")
    linux.unmount(".")
    os.chdir("/tmp")
    linux.mount("none", "/", "", linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV)


def _link(root: str, path: str) -> None:
    """Make the same link in the new root if ``path`` is a symbolic link, as ``/lib64`` often is.

    Programs look for their loader under that name.
    """
    if os.path.islink(path) and not os.path.lexists(root + path):
        os.makedirs(os.path.dirname(root + path), 0o755, exist_ok=True)
        os.symlink(os.readlink(path), root + path)


def _bind(target: str, descriptor: int, writable: bool) -> None:
    """Make the file or folder that a descriptor stands for visible at ``target``."""
    source = f"/proc/self/fd/{descriptor}"
    if os.path.isdir(source):
        os.makedirs(target, 0o755, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        with open(target, "w", encoding="ascii"):
            pass
    linux.mount(source, target, "", linux.MS_BIND | linux.MS_REC)
    if not writable:
        flags = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV
        linux.mount("none", target, "", flags)
