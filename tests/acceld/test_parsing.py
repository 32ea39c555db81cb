"""Sources are parsed in several threads at once, as the daemon does."""

from __future__ import annotations

import ast
import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from acceld.parsing import parse

NESTED = "\n".join(
    f"x{number} = f({'(' * 20}a[{number}] + b.c{')' * 20}, [1, {{'k': (3, 4)}}])" for number in range(60)
)


def test_threads_that_parse_at_the_same_time_all_get_their_tree() -> None:
    wanted, threshold = ast.dump(ast.parse(NESTED)), gc.get_threshold()

    def give_way(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)  # what a finalizer does that lets other threads run

    gc.callbacks.append(give_way)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(4) as pool:
            trees = list(pool.map(parse, [NESTED] * 12))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(give_way)
    assert all(ast.dump(tree) == wanted for tree in trees)


@pytest.mark.parametrize(
    "text",
    [
        "# coding: utf-7\n# +AAo-import os\nx = 1\n",
        "#!/usr/bin/env python3\n# vim: set fileencoding=utf-7 :\n# +AAo-x = 2\nx = 1\n",
        "# -*- coding: unicode_escape -*-\n# \\x0aimport os\n",
        "# coding: latin-1\nx = '\u00b5'\n",
        "# coding: nowhere\nx = 1\n",
    ],
)
def test_a_file_that_python_would_read_otherwise_is_no_source(text: str) -> None:
    with pytest.raises(SyntaxError, match="in which Python reads another program"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "# -*- coding: utf-8 -*-\nx = '\u00b5'\n",
        "# coding: UTF8\nx = '\u00b5'\n",
        "# coding: latin-1\nx = 1\n",
        "# coding: latin-1\n# \u00b5s\nx = 1\n",
        "# coding: utf-7\nx = 1\n",
        "x = 1\n\n# coding: utf-7\n# +AAo-import os\n",
    ],
)
def test_a_declared_encoding_that_changes_nothing_is_allowed(text: str) -> None:
    assert parse(text).body
