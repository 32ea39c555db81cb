"""State of the stand-in's cores: who used each one when, and which of them a kernel has broken.

The state lies in the folder that STANDIN_STATE names. Without a folder, no state is kept.
"""

import atexit
import contextlib
import json
import os
import time

done = set()
began = []
CORE = os.environ.get("NEURON_RT_VISIBLE_CORES", "")


def _place(name):
    folder = os.environ.get("STANDIN_STATE")
    return os.path.join(folder, name) if folder else None


def _log(what, entry, began):
    path = _place("log")
    if path:
        line = {"core": int(CORE), "what": what, "entry": entry, "from": began, "to": time.time()}
        with open(path, "a") as file:
            file.write(json.dumps(line) + "\n")


@contextlib.contextmanager
def busy(what, program):
    """Log the work on this process's core with its start and end."""
    began = time.time()
    done.add(what)
    try:
        yield
    finally:
        _log(what, getattr(program, "entry", ""), began)


def use():
    """Mark the core as used by this process from now on; its use is logged when the process ends."""
    path = _place("used" + CORE)
    if path is not None and not began:
        began.append(time.time())
        atexit.register(lambda: _log("held to time" if "time" in done else "held", "", began[0]))
    if path is not None:
        with open(path, "w") as file:
            file.write(str(os.getpid()))


def neighbor_is_used():
    """Return True if a live process uses the core beside this one."""
    path = _place(f"used{int(CORE) ^ 1}")
    if path is None or not os.path.exists(path):
        return False
    return os.path.exists("/proc/" + open(path).read())


def sick():
    """Return True if a kernel has broken this core."""
    path = _place("sick" + CORE)
    return path is not None and os.path.exists(path)


def poison():
    """Spoil this core for the next user."""
    path = _place("sick" + CORE)
    if path is not None:
        open(path, "w").close()
