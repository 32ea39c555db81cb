"""The tools over the Model Context Protocol: with the SDK's client, with one written by hand, and over HTTP."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from acceld.home import Home
from tests.acceld.agents.conftest import SLOW
from tests.standin_neuron.machine import KERNEL

if TYPE_CHECKING:  # each process that collects the tests would import the SDK for a second
    from mcp import Client

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="needs the SDK of MCP")

WRONG = KERNEL.replace("operand0=1.0", "operand0=1.5")
SERVER = [sys.executable, "-m", "acceld", "mcp"]


def sdk_client() -> Client:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    parameters = StdioServerParameters(command=SERVER[0], args=SERVER[1:], env=dict(os.environ), cwd=os.getcwd())
    # the default is what sys.stderr was when the package was first imported, which may have been another test's capture
    return Client(stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr))


async def call(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """Return a tool's answer. AssertionError with its text if it is an error."""
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    assert found.structured_content is None
    return read(found.content)


def read(content: Sequence[Any]) -> dict[str, Any]:
    """Return an answer: JSON, and the source text that may follow as ``text``."""
    texts = [one.text for one in content if one.type == "text"]
    answer: dict[str, Any] = json.loads(texts[0])
    return answer | ({"text": texts[1]} if len(texts) > 1 else {})


async def refused(client: Client, tool: str, /, **arguments: Any) -> str:
    found = await client.call_tool(tool, arguments)
    assert found.is_error, found.content
    assert found.content[0].type == "text"
    return found.content[0].text


def written(project: Path) -> tuple[str, list[str]]:
    """Return the kernel's file in its present state, and its copies."""
    return (project / "mine.py").read_text(), [one.read_text() for one in project.glob("mine.py.*.bak")]


@pytest.mark.slow
async def test_a_fixed_sequence_of_calls_takes_a_kernel_file_to_an_applied_strictly_gated_win(project: Path) -> None:
    reported: list[str | None] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append(message)

    async with sdk_client() as client:
        assert {"profile_kernel", "optimize", "apply_best"} <= {tool.name for tool in (await client.list_tools()).tools}
        place = {"workload": "small_silu", "path": "mine.py"}
        before = await call(client, "check_kernel", strict=True, **place)
        assert (before["status"], before["gate"], before["source"]) == ("passed", "strict", "simulated")
        assert "nisa." in before["hot_lines"][0] or "nl." in before["hot_lines"][0]
        suggested = await call(client, "suggest_rewrites", **place)
        rule = suggested["suggestions"][0].split()[0]
        assert "text" not in suggested
        assert (await call(client, "suggest_rewrites", rule=rule, **place))["text"].startswith("--- kernel")
        found = await client.call_tool("optimize", {**place, "preset": "quick", "seed": 1}, progress_callback=progress)
        run = read(found.content)
        assert run["state"] == "finished"
        assert run["verdict"] == "certain"
        assert any("evaluated" in (line or "") for line in reported)
        best = await call(client, "best_kernel", run=run["run"])
        assert best["gate"] == "strict"
        applied = await call(client, "apply_best", run=run["run"], path="mine.py")
        assert "mine.py" in applied["result"]
        after = await call(client, "check_kernel", strict=True, **place)
        assert (after["status"], after["gate"]) == ("passed", "strict")
        assert after["latency_us"] < before["latency_us"]
    now, copies = await asyncio.to_thread(written, project)
    assert now == best["text"] != SLOW
    assert copies == [SLOW]


@pytest.mark.slow
async def test_a_cancelled_search_is_paused_and_resumed_to_its_end(project: Path) -> None:
    async with sdk_client() as client:
        began = asyncio.Event()

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            began.set()

        arguments = {"workload": "small_silu", "path": "mine.py", "preset": "standard", "seed": 1}
        searching = asyncio.create_task(client.call_tool("optimize", arguments, progress_callback=progress))
        async with asyncio.timeout(600):
            await began.wait()
        searching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching
        run = (await call(client, "list_runs"))["runs"][0]
        async with asyncio.timeout(600):
            while "paused" not in run and "finished" not in run:
                run = (await call(client, "list_runs"))["runs"][0]
        number = run.split()[0]
        if "paused" in run:
            ended = await call(client, "resume_run", run=number)
            assert ended["state"] == "finished"
        assert "has ended" in await refused(client, "cancel_run", run=number)


async def test_errors_say_what_to_do_and_answers_can_be_had_in_whole(project: Path) -> None:
    async with sdk_client() as client:
        wrong = await call(client, "check_kernel", workload="small_silu", source=WRONG)
        assert wrong["status"] == "incorrect_numerical"
        assert wrong["failure"]["hint"]
        rejected = await call(client, "check_kernel", workload="small_silu", source="import os\n" + KERNEL)
        assert rejected["status"] == "rejected"
        parts = [await call(client, "details", id=wrong["details"])]
        while parts[-1]["next_offset"]:
            parts.append(await call(client, "details", id=wrong["details"], offset=parts[-1]["next_offset"]))
        assert json.loads("".join(part["text"] for part in parts))["correctness"]["checks"]
        assert "Did you mean 'silu'" in await refused(client, "show_workload", workload="sillu")
        assert "one of the two" in await refused(client, "profile_kernel", workload="small_silu")
        twice = {"workload": "small_silu", "arguments": ["8x8:float32"]}
        assert "has its own arguments" in await refused(client, "profile_kernel", source=KERNEL, **twice)
        assert "near: nc_matmul" in await refused(client, "look_up", name="nc_matmull")
        assert "nc_matmul(dst, stationary, moving" in (await call(client, "look_up", name="nisa.nc_matmul"))["found"]
        both = await call(client, "compare_kernels", workload="small_silu", first_source=KERNEL, second_source=SLOW)
        assert both["ratio"] > 1
        assert both["result"].startswith("the first is faster (") or both["verdict"] == "tie"
        assert both["why"].startswith("the second takes +")
        bare = await call(client, "profile_kernel", source=KERNEL, arguments=["128x2048:float32"])
        assert (bare["status"], bare["source"]) == ("unchecked", "simulated")
        items = [{"workload": "small_silu", "source": one} for one in (KERNEL, WRONG)] + [{"workload": "nowhere"}]
        many = await call(client, "evaluate_kernels", kernels=items)
        assert [line.split()[0].rstrip(":") for line in many["ranked"]] == ["1", "2", "3"]
        assert (many["passed"], many["of"]) == (1, 3)
        assert "incorrect_numerical" in many["ranked"][1] and "there is no workload" in many["ranked"][2]
        rows = await call(client, "query_history", sql="select 1 as one")
        assert (rows["columns"], rows["rows"]) == (["one"], [[1]])
        assert "can not be changed" in await refused(client, "query_history", sql="delete from runs")


async def test_workloads_pages_and_prompts_are_offered(project: Path) -> None:
    from mcp_types import TextContent, TextResourceContents

    async with sdk_client() as client:
        read = (await client.read_resource("acceld://workloads/silu")).contents[0]
        assert isinstance(read, TextResourceContents)
        assert json.loads(read.text)["outputs"]
        page = (await client.read_resource("acceld://docs/rules")).contents[0]
        assert isinstance(page, TextResourceContents)
        assert page.text.startswith("# ")
        prompt = await client.get_prompt("make_faster", {"path": "mine.py", "workload": "small_silu"})
        assert isinstance(prompt.messages[0].content, TextContent)
        assert "strict=true" in prompt.messages[0].content.text


class PlainClient:
    """A client of JSON-RPC lines over a process's pipes that shares no code with the SDK."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.notices: list[dict[str, Any]] = []
        self._number = 0

    def __enter__(self) -> Self:
        self.request(
            "initialize",
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "plain", "version": "1"}},
        )
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.wait(300) == 0
        self.process.stdout.close()

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def begin(self, method: str, parameters: dict[str, Any]) -> int:
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": parameters})
        return self._number

    def answer(self, number: int) -> dict[str, Any]:
        assert self.process.stdout is not None
        while True:
            message: dict[str, Any] = json.loads(self.process.stdout.readline())
            if message.get("id") == number:
                return message
            self.notices.append(message)

    def request(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        return self.answer(self.begin(method, parameters))

    def call(self, name: str, arguments: Any, **meta: Any) -> dict[str, Any]:
        return self.request("tools/call", {"name": name, "arguments": arguments} | ({"_meta": meta} if meta else {}))


@pytest.mark.slow
def test_a_second_client_profiles_searches_and_receives_progress(project: Path) -> None:
    with PlainClient() as client:
        tools = client.request("tools/list", {})["result"]["tools"]
        assert all(tool["description"] and tool["inputSchema"]["type"] == "object" for tool in tools)
        profiled = client.call("profile_kernel", {"workload": "small_silu", "source": KERNEL})["result"]
        assert json.loads(profiled["content"][0]["text"])["latency_us"] > 0
        searched = client.call("optimize", {"workload": "small_silu", "preset": "quick"}, progressToken="p1")["result"]
        assert json.loads(searched["content"][0]["text"])["state"] == "finished"
        assert any(one.get("method") == "notifications/progress" for one in client.notices)


HUGE = "x = 1\n" * 200_000
DEEP = "(" * 50_000
LONE_SURROGATE = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "\\ud800", "arguments": {}}}\n'
PATHS = (
    "../outside.py",
    "/etc/passwd",
    "link.py",
    "folder/../../outside.py",
    "mine.py\0.txt",
    "~/.ssh/id_rsa",
    "small_silu",
    ".",
    "",
    "//etc//hostname",
    "file:///etc/passwd",
    "a" * 5000,
    "pipe.py",
)
NOT_TEXT: tuple[Any, ...] = (None, 5, 1.5, True, [], {}, ["mine.py"], {"path": "mine.py"})
STATEMENTS = (
    "drop table runs",
    "delete from runs",
    "update runs set best = 1",
    "attach database '/tmp/x.db' as x",
    "pragma journal_mode = delete",
    "select load_extension('x')",
    "insert into runs default values",
    "select 1; drop table runs",
    "vacuum into '/tmp/hostile.db'",
    "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t",
    "select zeroblob(2000000000)",
    "select writefile('/tmp/hostile', 'x')",
    "create table t (a)",
    "",
    "\0",
    "'" * 10_000,
)


def hostile_inputs() -> list[tuple[str, Any]]:
    """Return more than a hundred tool calls that no honest agent makes."""
    found: list[tuple[str, Any]] = [("profile_kernel", {"workload": "small_silu", "path": path}) for path in PATHS]
    found += [("apply_best", {"run": "r1", "path": path}) for path in PATHS]
    found += [("show_workload", {"workload": path}) for path in PATHS if path != "small_silu"]
    found += [("check_kernel", {"workload": "small_silu", "source": value}) for value in NOT_TEXT]
    found += [("check_kernel", {"workload": value, "source": KERNEL}) for value in NOT_TEXT]
    found += [("query_history", {"sql": sql}) for sql in STATEMENTS]
    ids: tuple[Any, ...] = ("r-1", "c" + "9" * 40, "../r1", "e1;drop", "d1\0", "x", 7, None)
    found += [("details", {"id": value}) for value in ids]
    waits: tuple[Any, ...] = (-1, "soon", 1e12, None, [])
    found += [("follow_run", {"run": "r1", "wait_s": value}) for value in waits]
    found += [("optimize", {"workload": "small_silu", "preset": "endless"}), ("optimize", {"workload": "/"})]
    found += [("optimize", {"workload": "small_silu", "path": "../outside.py"}), ("optimize", {"budget_usd": "all"})]
    found += [("suggest_rewrites", {"source": text}) for text in (HUGE, DEEP, "-" * 5000 + "1", "def f(:")]
    found += [("check_kernel", {"workload": "small_silu", "source": text}) for text in (HUGE, DEEP, "while True: pass")]
    found += [("profile_kernel", {"source": KERNEL, "arguments": [one]}) for one in ("0x0:float32", "9" * 99, "a=b=c")]
    many: tuple[Any, ...] = ([], [{}] * 65, "all", [{"workload": 5}], [[]])
    found += [("evaluate_kernels", {"kernels": value}) for value in many]
    found += [("no_such_tool", {}), ("look_up", {"name": "x" * 1000}), ("look_up", {"name": "ok", "more": 1}), ("", {})]
    made = {"folder": "new", "reference": "import os\ndef forward(x): return x", "arguments": ["x=8:float32"]}
    found += [("create_workload", made | {"folder": path}) for path in PATHS]
    found += [("create_workload", made | {"reference": text}) for text in (HUGE, DEEP, "open('/etc/passwd')", "", 5)]
    found += [("create_workload", made | {"arguments": many}) for many in ([], ["x"], ["x=1:f"] * 65, 5, [None])]
    found += [("create_workload", made), ("apply_best", {"path": "mine.py", "source": KERNEL, "workload": "nowhere"})]
    found += [("best_kernel", {"run": "r1; drop"}), ("list_runs", {"limit": 10**9}), ("details", []), ("look_up", "x")]
    return found


def below(pid: int) -> set[int]:
    """Return all processes below one."""
    children = {int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()}
    return children.union(*(below(child) for child in children))


@pytest.mark.slow
def test_a_hundred_hostile_inputs_leave_no_process_no_file_outside_and_no_dead_daemon(
    project: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside.py").write_text(SLOW)
    (project / "link.py").symlink_to(tmp_path / "outside.py")
    os.mkfifo(project / "pipe.py")
    calls = hostile_inputs()
    assert len(calls) >= 100
    with PlainClient() as client:
        assert "result" in client.call("profile_kernel", {"workload": "small_silu", "source": KERNEL})
        home = Home(project / ".acceld")
        daemon = home.daemon()
        assert daemon is not None
        zygotes = below(daemon["pid"])
        files = {path for path in tmp_path.rglob("*") if project / ".acceld" not in path.parents}
        for name, arguments in calls:
            answer = client.call(name, arguments)
            failed = "error" in answer or answer["result"].get("isError")
            evaluated = not failed and json.loads(answer["result"]["content"][0]["text"]).get("status") not in (
                None,
                "passed",
            )
            assert failed or evaluated, (name, str(arguments)[:200], str(answer)[:300])
        for text in (
            "not json\n",
            '{"jsonrpc": "2.0"}\n',
            "[]\n",
            '{"jsonrpc": "2.0", "id": {}, "method": 5}\n',
            LONE_SURROGATE,
        ):
            assert client.process.stdin is not None
            client.process.stdin.write(text)
            client.process.stdin.flush()
        for _ in range(5):
            number = client.begin(
                "tools/call", {"name": "check_kernel", "arguments": {"workload": "small_silu", "source": KERNEL}}
            )
            client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        checked = client.call("check_kernel", {"workload": "small_silu", "source": KERNEL})
        assert json.loads(checked["result"]["content"][0]["text"])["status"] == "passed"
        assert home.daemon() == daemon
        server = client.process.pid
        assert below(server) <= {daemon["pid"], *below(daemon["pid"])}
        deadline = time.monotonic() + 600
        while not below(daemon["pid"]) <= zygotes:  # a judgement whose caller was cancelled ends by itself
            assert time.monotonic() < deadline, below(daemon["pid"]) - zygotes
            time.sleep(0.05)
    assert not Path(f"/proc/{server}").exists()
    assert (tmp_path / "outside.py").read_text() == SLOW
    assert {path for path in tmp_path.rglob("*") if project / ".acceld" not in path.parents} == files
    assert not Path("/tmp/hostile").exists()
    assert not Path("/tmp/hostile.db").exists()


@contextmanager
def over_http() -> Iterator[str]:
    """Serve on a free loopback port. Yield the address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([*SERVER, "--http", f"127.0.0.1:{port}"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        while "serving" not in (line := process.stderr.readline()):
            assert line, "the server ended"
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(300)
        process.stderr.close()


def status_of(url: str, **headers: str) -> int:
    """Return the status of a request; 0 until the server listens."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    accepted = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    asked = urllib.request.Request(url, body, {**accepted, **headers})
    try:
        with urllib.request.urlopen(asked, timeout=300) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return int(error.code)
    except urllib.error.URLError:
        return 0


@pytest.mark.slow
async def test_over_http_the_daemons_token_is_asked_for(project: Path) -> None:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    with over_http() as url:
        async with asyncio.timeout(300):
            while await asyncio.to_thread(status_of, url) == 0:
                pass
        token = Home(project / ".acceld").token()
        assert await asyncio.to_thread(status_of, url) == 401
        assert await asyncio.to_thread(lambda: status_of(url, Authorization="Bearer " + "0" * 64)) == 401
        authorized = {"Authorization": f"Bearer {token}"}
        assert await asyncio.to_thread(lambda: status_of(url, Host="evil.example", **authorized)) == 403
        assert await asyncio.to_thread(lambda: status_of(url, Origin="http://evil.example", **authorized)) == 403
        async with (
            httpx2.AsyncClient(headers=authorized, timeout=60) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            checked = await call(client, "check_kernel", workload="small_silu", source=KERNEL)
            assert checked["status"] == "passed"
