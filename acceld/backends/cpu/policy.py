"""What a candidate in C may hold, read from its tokens: early, clear refusals. The jail is the wall."""

from __future__ import annotations

import re
from collections.abc import Iterator

from acceld.model import Failure

HEADERS = frozenset(
    "math.h stdint.h stddef.h string.h stdbool.h float.h limits.h stdalign.h stdlib.h assert.h complex.h tgmath.h "
    "immintrin.h x86intrin.h xmmintrin.h emmintrin.h arm_neon.h arm_sve.h".split()
)
"""Headers a kernel may include."""
_FORBIDDEN = frozenset(
    "asm __asm __asm__ fork vfork clone execl execlp execle execv execvp execve system popen dlopen dlsym dlclose "
    "syscall mmap munmap mprotect mremap ptrace kill raise signal sigaction abort exit _exit _Exit quick_exit atexit "
    "pthread_create thrd_create longjmp setjmp open openat creat read write pread pwrite fopen fdopen freopen close dup "
    "dup2 pipe socket connect ioctl fcntl getenv setenv putenv nanosleep usleep sleep clock clock_gettime time "
    "gettimeofday alarm setitimer environ __environ constructor destructor ifunc section __start __init_array".split()
)
"""Names with which a kernel would do something else than compute."""
_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#[ \t]*(?P<directive>\w+)(?P<rest>[^\n]*)|(?P<name>[A-Za-z_]\w*)',
    re.DOTALL | re.MULTILINE,
)
_INCLUDE = re.compile(r'\s*[<"]([^>"]+)[>"]')
MAX_CHARACTERS = 200_000


def refused_c(text: str) -> Failure | None:
    """The first thing in a C source that a candidate may not hold."""
    if len(text) > MAX_CHARACTERS:
        return Failure("source_size", f"the source has {len(text)} characters; {MAX_CHARACTERS} are allowed")
    joined = text.replace("\\\n", "  ")
    return next(_findings(joined), None)


def _findings(text: str) -> Iterator[Failure]:
    for token in _TOKEN.finditer(text):
        line = text.count("\n", 0, token.start()) + 1
        directive, name = token.group("directive"), token.group("name")
        if directive in ("include", "include_next", "embed", "import"):
            included = _INCLUDE.match(token.group("rest"))
            if directive != "include" or included is None or included.group(1) not in HEADERS:
                yield Failure(
                    "include",
                    f"a candidate may not have #{directive}{token.group('rest')}",
                    line,
                    f"allowed: {', '.join(sorted(HEADERS))}",
                )
        elif directive in ("define", "pragma") and "##" in token.group("rest"):
            yield Failure("token_pasting", "a candidate may not paste tokens", line)
        elif directive == "define" or name:
            words = re.findall(r"[A-Za-z_]\w*", token.group("rest")) if directive else [name]
            bad = next((word for word in words if word in _FORBIDDEN), None)
            if bad:
                yield Failure("library", f"a candidate may not use {bad}: a kernel computes on its arguments", line)
