"""Call Linux functions that the sandbox needs and that Python 3.11 lacks, through ctypes.

Each function raises OSError with the system's errno. On other systems this module can be imported, but its
calls fail.
"""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_TSC, PR_TSC_SIGSEGV = 26, 2
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

CAP_SETGID, CAP_SETUID = 6, 7
CAP_SYS_ADMIN = 21

CLONE_NEWTIME = 0x00000080
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

_NUMBERS = {
    "x86_64": {"pivot_root": 155, "capset": 126},
    "aarch64": {"pivot_root": 41, "capset": 91},
}
"""Numbers of system calls that have no function in the C library and differ between processors."""

_libc = ctypes.CDLL(None, use_errno=True)


def machine() -> str:
    """Return ``x86_64`` or ``aarch64``; on other processors, which no filter covers, return the system's name of the
    processor.
    """
    name = os.uname().machine
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def syscall(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call and return its result. An integer argument is passed as a C long."""
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *converted), f"system call {number}")


def prctl(option: int, value: int = 0) -> None:
    """Call prctl(2) with one argument."""
    zero = ctypes.c_ulong(0)
    _checked(_libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero), f"prctl {option}")


def forbid_counter() -> bool:
    """Let the system end this process if it reads the time stamp counter. The C library's clocks read it too.

    Return False if the processor or the system can not do that.
    """
    zero = ctypes.c_ulong(0)
    return bool(_libc.prctl(PR_SET_TSC, ctypes.c_ulong(PR_TSC_SIGSEGV), zero, zero, zero) == 0)


def unshare(flags: int) -> None:
    """Call unshare(2)."""
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Call mount(2)."""
    _checked(
        _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()),
        f"mount {target}",
    )


def unmount(target: str) -> None:
    """Call umount2(2) with MNT_DETACH."""
    _checked(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """Call pivot_root(2)."""
    syscall(_NUMBERS[machine()]["pivot_root"], new.encode(), old.encode())


def capable(*capabilities: int) -> bool:
    """Tell whether this process has all of the given ``capabilities``. Root in a container may have no capabilities."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        effective = next((int(line.split()[1], 16) for line in file if line.startswith("CapEff:")), 0)
    return all(effective >> one & 1 for one in capabilities)


def drop_capabilities() -> None:
    """Drop all capabilities of this thread (capset(2))."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    number = ctypes.c_long(_NUMBERS[machine()]["capset"])
    _checked(_libc.syscall(number, ctypes.byref(header), ctypes.byref(data)), "capset")


def _checked(result: int, what: str) -> int:
    """Return the result of a C function. Raise OSError if the result means an error."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
