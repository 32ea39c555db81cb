"""Build a seccomp filter in BPF: it allows the system calls that an evaluated process needs, and refuses others with
EPERM.

There are tables for x86_64 and aarch64, with the numbers of the kernel's own headers (asm/unistd_64.h and
asm-generic/unistd.h). A refused call returns an error and does not end the process, so that a kernel that makes such
a call ends with a message.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from dataclasses import dataclass

from acceld.evaluate.sandbox import linux

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBER = {"x86_64": 317, "aarch64": 277}
"""The number of the system call seccomp(2). Its operation 1 sets a filter."""
_X32 = 0x40000000
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_NEW_NAMESPACE = (
    linux.CLONE_NEWNS
    | linux.CLONE_NEWCGROUP
    | linux.CLONE_NEWUTS
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUSER
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWNET
    | linux.CLONE_NEWTIME
)
_PROT_EXEC = 4
_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1031, 1032)
_IOCTL = (0x5401, 0x5450, 0x5451, 0x541B)
_PRCTL = (3, 15, 16, 0x53564D41)

_BOTH = """
read 0 63  write 1 64  close 3 57  fstat 5 80  lseek 8 62  munmap 11 215  brk 12 214  rt_sigaction 13 134
rt_sigprocmask 14 135  rt_sigreturn 15 139  pread64 17 67  pwrite64 18 68  readv 19 65  writev 20 66
mremap 25 216  msync 26 227  mincore 27 232  madvise 28 233  dup 32 23  dup3 292 24  nanosleep 35 101
getitimer 36 102  setitimer 38 103  getpid 39 172  exit 60 93  uname 63 160  flock 73 32  fsync 74 82
fdatasync 75 83  truncate 76 45  ftruncate 77 46  getcwd 79 17  chdir 80 49  fchdir 81 50  fchmod 91 52
umask 95 166  gettimeofday 96 169  getrlimit 97 163  getrusage 98 165  sysinfo 99 179  times 100 153
getuid 102 174  getgid 104 176  geteuid 107 175  getegid 108 177  getppid 110 173  getpgid 121 155
getsid 124 156  getgroups 115 158  getresuid 118 148  getresgid 120 150  rt_sigpending 127 136
rt_sigtimedwait 128 137  rt_sigsuspend 130 133  sigaltstack 131 132  statfs 137 43  fstatfs 138 44
gettid 186 178  futex 202 98  sched_yield 24 124  sched_getaffinity 204 123  sched_getparam 143 121
sched_getscheduler 145 120  sched_get_priority_max 146 125  sched_get_priority_min 147 126
getdents64 217 61  set_tid_address 218 96  restart_syscall 219 128  fadvise64 221 223  clock_gettime 228 113
clock_getres 229 114  clock_nanosleep 230 115  exit_group 231 94  openat 257 56  mkdirat 258 34
newfstatat 262 79  unlinkat 263 35  renameat 264 38  renameat2 316 276  faccessat 269 48  faccessat2 439 439
readlinkat 267 78  pselect6 270 72  ppoll 271 73  set_robust_list 273 99  get_robust_list 274 100
fallocate 285 47  pipe2 293 59  getcpu 309 168  getrandom 318 278  membarrier 324 283  statx 332 291
rseq 334 293  close_range 436 436  openat2 437 437  epoll_create1 291 20  epoll_ctl 233 21
epoll_pwait 281 22  eventfd2 290 19  sendfile 40 71  utimensat 280 88  fchmodat 268 53  wait4 61 260
waitid 247 95
"""
_X86_ONLY = (
    2, 4, 6, 7, 21, 22, 23, 33, 78, 82, 83, 84, 87, 89, 90, 111, 158, 201, 232,
)  # fmt: skip
"""System calls that older C libraries make on x86_64: open stat lstat poll access pipe select dup2 getdents rename
mkdir rmdir unlink readlink chmod getpgrp arch_prctl time epoll_wait.
"""
_SPECIAL = {
    "x86_64": {"mmap": 9, "mprotect": 10, "ioctl": 16, "fcntl": 72, "prctl": 157, "kill": 62, "tkill": 200,
               "tgkill": 234, "prlimit64": 302, "clone": 56, "clone3": 435, "fork": 57, "vfork": 58,
               "execve": 59, "execveat": 322, "setsid": 112, "setpgid": 109},
    "aarch64": {"mmap": 222, "mprotect": 226, "ioctl": 29, "fcntl": 25, "prctl": 167, "kill": 129, "tkill": 130,
                "tgkill": 131, "prlimit64": 261, "clone": 220, "clone3": 435,
                "execve": 221, "execveat": 281, "setsid": 157, "setpgid": 154},
}  # fmt: skip


_DEVICE_CALLS = tuple(
    {"x86_64": int(x86), "aarch64": int(arm)}
    for x86, arm in (
        one.split() for one in "203 122,237 235,238 237,239 236,319 279,149 228,150 229,325 284".split(",")
    )
)
"""System calls, besides ioctl, that a GPU's driver library makes: sched_setaffinity mbind set_mempolicy get_mempolicy
memfd_create mlock munlock mlock2.
"""
_DEVICE_SOCKET_CALLS = tuple(
    {"x86_64": int(x86), "aarch64": int(arm)}
    for x86, arm in (
        one.split() for one in "42 203,46 211,47 212,49 200,50 201,51 204,54 208,55 209,288 242".split(",")
    )
)
"""System calls on unix sockets: connect sendmsg recvmsg bind listen getsockname setsockopt getsockopt accept4.

CUDA opens such a socket, without a file, for processes that want to share its memory. Processes in another network
namespace can not reach such a socket.
"""


_WIDE_CALLS = tuple(
    {"x86_64": int(x86), "aarch64": int(arm)}
    for x86, arm in (
        one.split()
        for one in "265 37,44 206,45 207,46 211,47 212,48 210,51 204,52 205,54 208,55 209,203 122,141 140".split(",")
    )
)
"""System calls that multiprocessing and event loops make: linkat sendto recvfrom sendmsg recvmsg shutdown getsockname
getpeername setsockopt getsockopt sched_setaffinity setpriority. The only sockets that a process can make are those of
socketpair.
"""
_LINK = 86
"""Number of the system call link on x86_64. aarch64 has no such call."""
_SOCKET = {"x86_64": 41, "aarch64": 198}
_SOCKETPAIR = {"x86_64": 53, "aarch64": 199}
_AF_UNIX = 1
_FIONBIO = 0x5421


@dataclass(frozen=True, slots=True)
class Filter:
    """The rights of an evaluated process besides computing and using its files.

    - ``pid``: its own process id, the only one that it may send signals to.
    - ``fork``: make processes and threads, but no namespaces.
    - ``execute``: start programs, and make memory executable.
    - ``devices``: control the devices that it can open, choose the NUMA node of memory, and use unix sockets.
    - ``wide``: use semaphores, pairs of unix sockets, and signals within its pid namespace, which must be its
      own.
    """

    pid: int
    fork: bool = False
    execute: bool = False
    devices: bool = False
    wide: bool = False


def supported() -> bool:
    """Tell whether there is a filter for this machine's processor."""
    return linux.machine() in _AUDIT_ARCH


def restrict(rules: Filter) -> None:
    """Apply a filter to this process permanently. The process must have no_new_privs set.

    Raise OSError if the system refuses.
    """
    code = assemble(rules, linux.machine())
    instructions = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(instructions))
    buffer = ctypes.create_string_buffer(program, len(program))
    linux.syscall(NUMBER[linux.machine()], 1, 0, buffer)


def assemble(rules: Filter, machine: str) -> bytes:
    """Return the BPF program for ``machine``, eight bytes for each instruction. Raise KeyError for a machine without a
    table.
    """
    special = _SPECIAL[machine]
    code = [
        (_LD, 0, 0, 4),
        (_JEQ, 1, 0, _AUDIT_ARCH[machine]),
        (_RET, 0, 0, _ERRNO | errno.EPERM),
        (_LD, 0, 0, 0),
    ]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, _X32), (_RET, 0, 0, _ERRNO | errno.EPERM)]
    for number in _plain_calls(machine):
        code += _allow(number)
    for name in ("setsid", "setpgid"):
        code += _allow(special[name]) if rules.fork else []
    for name in ("execve", "execveat"):
        code += _allow(special[name]) if rules.execute else []
    for name in ("mmap", "mprotect"):
        code += _allow(special[name]) if rules.execute else _unless_bits(special[name], 2, _PROT_EXEC)
    ioctl = (*_IOCTL, _FIONBIO) if rules.wide else _IOCTL
    code += _allow(special["ioctl"]) if rules.devices else _one_of(special["ioctl"], 1, ioctl)
    for numbers in _DEVICE_CALLS if rules.devices else ():
        code += _allow(numbers[machine])
    if rules.devices:
        code += _one_of(_SOCKET[machine], 0, (_AF_UNIX,))
        for numbers in _DEVICE_SOCKET_CALLS:
            code += _allow(numbers[machine])
    code += _one_of(special["fcntl"], 1, _FCNTL)
    code += _prctl(special["prctl"])
    code += _one_of(special["prlimit64"], 0, (0, rules.pid))
    if rules.wide:
        code += _one_of(_SOCKETPAIR[machine], 0, (_AF_UNIX,))
        for number in (*(numbers[machine] for numbers in _WIDE_CALLS), *((_LINK,) if machine == "x86_64" else ())):
            code += _allow(number)
    for name in ("kill", "tgkill"):
        code += _allow(special[name]) if rules.wide else _one_of(special[name], 0, (rules.pid,))
    code += _one_of(special["tkill"], 0, (rules.pid,))
    code += [(_JEQ, 0, 1, special["clone3"]), (_RET, 0, 0, _ERRNO | errno.ENOSYS)]
    if rules.fork:
        code += _unless_bits(special["clone"], 0, _NEW_NAMESPACE)
        for name in ("fork", "vfork"):
            code += _allow(special[name]) if name in special else []
    code.append((_RET, 0, 0, _ERRNO | errno.EPERM))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


_Code = list[tuple[int, int, int, int]]


def _plain_calls(machine: str) -> list[int]:
    """Return the numbers of the system calls that are always allowed."""
    words = _BOTH.split()
    column = 1 if machine == "x86_64" else 2
    numbers = [int(word) for word in words[column::3]]
    return numbers + (list(_X86_ONLY) if machine == "x86_64" else [])


def _allow(number: int) -> _Code:
    """Return BPF instructions that allow the system call with the number ``number``."""
    return [(_JEQ, 0, 1, number), (_RET, 0, 0, _ALLOW)]


def _one_of(number: int, argument: int, values: tuple[int, ...]) -> _Code:
    """Return BPF instructions that allow a system call if the low 32 bits of ``argument`` are one of
    ``values``.
    """
    low = 16 + 8 * argument
    checks: _Code = [(_LD, 0, 0, low)]
    for value in values:
        checks += [(_JEQ, 0, 1, value & 0xFFFFFFFF), (_RET, 0, 0, _ALLOW)]
    return [(_JEQ, 0, len(checks) + 1, number), *checks, (_RET, 0, 0, _ERRNO | errno.EPERM)]


def _prctl(number: int) -> _Code:
    """Return BPF instructions that allow some options of prctl.

    A process may forbid itself the time stamp counter, but not allow it again.
    """
    only_forbid: _Code = [
        (_JEQ, 0, 3, linux.PR_SET_TSC),
        (_LD, 0, 0, 24),
        (_JEQ, 0, 1, linux.PR_TSC_SIGSEGV),
        (_RET, 0, 0, _ALLOW),
    ]
    _, *options, refused = _one_of(number, 0, _PRCTL)
    checks = [*options, *only_forbid]
    return [(_JEQ, 0, len(checks) + 1, number), *checks, refused]


def _unless_bits(number: int, argument: int, bits: int) -> _Code:
    """Return BPF instructions that allow a system call, unless one of the bits ``bits`` is set in ``argument``."""
    low = 16 + 8 * argument
    return [
        (_JEQ, 0, 4, number),
        (_LD, 0, 0, low),
        (_JSET, 1, 0, bits),
        (_RET, 0, 0, _ALLOW),
        (_RET, 0, 0, _ERRNO | errno.EPERM),
    ]
