"""Refuse forbidden C sources early and with a clear message, by their tokens. This policy only explains: the jail is
the protection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from acceld.model import Failure

HEADERS = frozenset(
    "math.h stdint.h stddef.h string.h stdbool.h float.h limits.h stdalign.h stdlib.h assert.h complex.h tgmath.h "
    "immintrin.h x86intrin.h xmmintrin.h emmintrin.h arm_neon.h arm_sve.h".split()
)
"""Headers that a kernel may include."""
_FORBIDDEN = frozenset(
    "asm fork vfork clone execl execlp execle execv execvp execve fexecve system popen syscall brk sbrk mmap munmap "
    "mprotect mremap madvise ptrace prctl kill killpg raise signal abort exit _exit _Exit quick_exit atexit on_exit "
    "at_quick_exit longjmp setjmp open openat creat read write pread pwrite fopen fdopen freopen fread fwrite close dup "
    "dup2 pipe socket connect ioctl fcntl getenv setenv putenv getauxval nanosleep usleep sleep pause clock "
    "clock_gettime time gettimeofday alarm setitimer getpid getppid gettid setrlimit getrlimit prlimit setpriority nice "
    "wait waitpid wait3 wait4 waitid unshare setns mount memfd_create personality swapcontext makecontext backtrace "
    "printf puts putchar scanf remove rename unlink mkdir tmpfile environ constructor destructor ifunc section weak "
    "weakref alias redefine_extname __start init_array seg_fs seg_gs _GLOBAL_OFFSET_TABLE_ return_address frame_address stack_address "
    "extract_return_addr frob_return_addr thread_pointer set_thread_pointer apply_args unwind_init eh_return".split()
)
"""Names that a kernel may not use: of functions that do more than compute, and of means to call such functions under
another name.
"""
_FAMILIES = re.compile(
    r"(pthread|thrd|mtx|cnd|sched|shm|sem|mq|aio|timer|cblas|io_uring|inotify|process_vm)_\w+|posix_spawnp?"
    r"|dwarf_\w+|dl(open|sym|vsym|close|mopen|addr|info|_iterate_phdr)|sig(action|procmask|queue|altstack|longjmp|setjmp|suspend|wait\w*)"
)
"""Pattern of further forbidden names, by how they begin."""
_MARK = "\x02"
"""Character that replaces a line end within a comment, so that lines can still be counted."""
_SPLICE = re.compile(r"\\[^\S\n]*\n")
_SPLICED = re.compile(rf"^(?:[^\n]*{_SPLICE.pattern})+[^\n]*", re.MULTILINE)
_MARKED = re.compile(rf"^[^\n]*{_MARK}[^\n]*", re.MULTILINE)
_LITERAL = r"""(?:"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)"""
_LITERAL_OR_COMMENT = re.compile(rf"{_LITERAL}|//[^\n]*|/\*.*?(?:\*/|\Z)|%:", re.DOTALL)
_TOKEN = re.compile(
    r"^[^\S\n]*#[^\S\n]*(?P<directive>\w*)(?P<rest>[^\n]*)"
    r'|(?P<raw>\b(?:u8|[uUL])?R")'
    rf"|\b_Pragma\s*\(\s*L?(?P<pragma>{_LITERAL})"
    rf"|{_LITERAL}|(?P<paste>##)|(?P<name>[A-Za-z_]\w*)",
    re.MULTILINE,
)
_INCLUDE = re.compile(r'\s*[<"]([^>"]+)[>"]')
_WORD = re.compile(r"[A-Za-z_]\w*")
MAX_CHARACTERS = 200_000


def refused_c(text: str) -> Failure | None:
    """Return the first forbidden token of a C source as a failure; None if the source is allowed."""
    if len(text) > MAX_CHARACTERS:
        return Failure("source_size", f"the source has {len(text)} characters; {MAX_CHARACTERS} are allowed")
    return next(_findings(_as_translated(text)), None)


def _as_translated(text: str) -> str:
    """Return the source as the compiler reads it: continued lines joined, comments as blanks, ``%:`` as ``#``.

    A joined line is followed by empty lines, so that later lines keep their numbers.
    """
    whole = _SPLICED.sub(lambda found: _joined(found.group(), _SPLICE.pattern), text)
    blank = _LITERAL_OR_COMMENT.sub(_without_comment, whole)
    return _MARKED.sub(lambda found: _joined(found.group(), _MARK), blank)


def _joined(lines: str, between: str) -> str:
    whole, count = re.subn(between, "", lines)
    return whole + "\n" * count


def _without_comment(found: re.Match[str]) -> str:
    token = found.group()
    if token == "%:":
        return "#"
    return " " + _MARK * token.count("\n") if token.startswith("/") else token


def _findings(text: str) -> Iterator[Failure]:
    for token in _TOKEN.finditer(text):
        found = _complaint(token)
        if found is not None:
            yield replace(found, line=text.count("\n", 0, token.start()) + 1)


def _complaint(token: re.Match[str]) -> Failure | None:
    directive, rest = token.group("directive"), token.group("rest") or ""
    if directive in ("include", "include_next", "embed", "import"):
        included = _INCLUDE.match(rest)
        if directive == "include" and included is not None and included.group(1) in HEADERS:
            return None
        hint = f"The allowed headers are {', '.join(sorted(HEADERS))}."
        return Failure("include", f"a candidate may not have #{directive}{rest}", hint=hint)
    if token.group("raw"):
        return Failure("raw_string", "a candidate may not have raw strings; write the string with escapes")
    if token.group("paste") or (directive is not None and "##" in rest):
        return Failure("token_pasting", "a candidate may not paste tokens by ##; write the whole name")
    if directive in ("error", "warning"):
        return None
    words = _WORD.findall(token.group("name") or token.group("pragma") or rest)
    bad = next((word for word in words if _reaches(word)), None)
    return (
        Failure("library", f"a candidate may not use {bad}: a kernel may only compute on its arguments")
        if bad
        else None
    )


def _reaches(word: str) -> bool:
    """Tell whether ``word`` is a forbidden name, in any of the spellings that the compiler takes for that name."""
    plain = word.removeprefix("__builtin_")
    plain = plain.strip("_") if plain.startswith("__") else plain
    return any(name in _FORBIDDEN or _FAMILIES.fullmatch(name) for name in (word, plain))
