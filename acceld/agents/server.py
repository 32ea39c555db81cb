"""Serve the tools over the Model Context Protocol, with the official SDK. Needs the extra ``mcp``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field

from acceld.agents.toolbox import ANSWER_CHARS, MOST_KERNELS, Json, Report, Toolbox, fitted
from acceld.errors import AcceldError
from acceld.gains import RULE
from acceld.resources import docs_folder
from acceld.targets import APIS, CHIPS, TARGETS

INSTRUCTIONS = (
    """\
acceld makes AWS Trainium (NKI) kernels faster and evaluates them. Its simulator answers in about a second and needs no chip.
Start with list_workloads, or create_workload from a numpy reference: it also makes a first kernel. look_up is the manual of NKI.
check_kernel says if a kernel is right; strict=true is the gate that counts. profile_kernel says what binds it, line by line.
optimize searches for a faster kernel; apply_best writes it, or a kernel of yours, over its file.
Latencies are in microseconds and simulated unless source says measured. """
    + RULE
    + """
Answers are short: pass an answer's `details` id (or r12, c345) to the tool `details` for the rest."""
)

Source = Annotated[str, Field(description="The kernel's whole source text; or give path", max_length=1_000_000)]
Path = Annotated[
    str, Field(description="Path of the kernel's file, below an opened folder; or give source", max_length=4096)
]
WorkloadName = Annotated[
    str, Field(description="A workload's name, or the path of a folder with workload.toml", max_length=4096)
]
if TYPE_CHECKING:
    ChipName: TypeAlias = str
    ApiName: TypeAlias = str
    BackendName: TypeAlias = str
else:  # plug-ins add names; checked like any other Literal
    ChipName, ApiName, BackendName = Literal[("", *CHIPS)], Literal[("", *APIS)], Literal[("", *TARGETS)]
Chip = Annotated[ChipName, Field(description="Chip to evaluate for; default: as configured")]
Api = Annotated[ApiName, Field(description="API the kernel is written in; default: by its imports")]
MaybeRun = Annotated[str, Field(pattern=r"^(r?[0-9]{1,15})?$")]
RunId = Annotated[str, Field(description="A run, such as r12", pattern=r"^r?[0-9]{1,15}$")]
WaitS = Annotated[float, Field(description="Seconds this call waits; the run itself continues", ge=0, le=86_400)]
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)


class KernelItem(BaseModel):
    """One of many kernels to evaluate."""

    model_config = ConfigDict(extra="forbid")
    workload: WorkloadName
    source: Source = ""
    path: Path = ""
    api: Api = ""


async def _answered(work: Awaitable[Json]) -> list[str]:
    """Return a tool's answer as texts: its JSON, and behind it the source text, unchanged, if the answer has one.

    An AcceldError becomes a tool error that says what to do.
    """
    try:
        answer = await work
    except AcceldError as error:
        raise ToolError(f"{error.message}\n{error.hint}".rstrip()[: ANSWER_CHARS - 100]) from error
    text = answer.pop("text", None)
    return [fitted(answer), *([] if text is None else [text])]


def _reporter(context: Context) -> Report:
    async def report(progress: float, total: float | None, message: str) -> None:
        await context.report_progress(progress, total, message)

    return report


def build(box: Toolbox) -> MCPServer:
    """Return an MCP server that offers the tools of ``box``."""
    server = MCPServer("acceld", instructions=INSTRUCTIONS, version=version("acceld"), log_level="WARNING")
    _kernel_tools(server, box)
    _run_tools(server, box)
    _reading_tools(server, box)
    _resources(server, box)
    _prompts(server)
    for tool in server._tool_manager.list_tools():  # so that an unknown argument is an error and not ignored
        tool.fn_metadata.arg_model.model_config["extra"] = "forbid"
        tool.fn_metadata.arg_model.model_rebuild(force=True)
        tool.parameters["additionalProperties"] = False
        _untitle(tool.parameters)
    return server


def _untitle(schema: Any) -> None:
    """Remove from a schema the titles that pydantic adds. They repeat the names, and cost every client tokens."""
    if isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        for part in schema.values():
            _untitle(part)


def _kernel_tools(server: MCPServer, box: Toolbox) -> None:
    @server.tool(annotations=READS, structured_output=False)
    async def profile_kernel(
        source: Source = "",
        path: Path = "",
        workload: WorkloadName = "",
        arguments: Annotated[
            list[str],
            Field(
                description="Without a workload: the kernel's arguments in order, such as 128x512:float32 or eps=1e-6",
                max_length=64,
            ),
        ] = [],  # noqa: B006  the SDK copies defaults
        chip: Chip = "",
        api: Api = "",
    ) -> list[str]:
        """Predict a kernel's latency and what binds it: percent of the floor, waits by line, start-up, peaks.

        The kernel is not run on data.
        """
        return await _answered(
            box.profile_kernel(source=source, path=path, workload=workload, arguments=arguments, chip=chip, api=api)
        )

    @server.tool(annotations=READS, structured_output=False)
    async def check_kernel(
        workload: WorkloadName,
        source: Source = "",
        path: Path = "",
        strict: Annotated[
            bool, Field(description="Fresh seeds, all input distributions and the workload's other shapes")
        ] = False,
        chip: Chip = "",
        api: Api = "",
    ) -> list[str]:
        """Evaluate a kernel: run it on secret inputs against the workload's reference; return its latency if it passes.

        status "passed" means that it is right; otherwise failure has rule, message, line and what to do.
        """
        return await _answered(
            box.check_kernel(source=source, path=path, workload=workload, strict=strict, chip=chip, api=api)
        )

    @server.tool(annotations=READS, structured_output=False)
    async def suggest_rewrites(
        source: Source = "",
        path: Path = "",
        workload: WorkloadName = "",
        rule: Annotated[str, Field(description="List only this rule's rewrites, with diffs", max_length=100)] = "",
        chip: Annotated[
            ChipName, Field(description="Predict the rewrites' latencies on this chip; needs a workload")
        ] = "",
        api: Api = "",
    ) -> list[str]:
        """List rewrites that keep a kernel's results, best first, a line each."""
        return await _answered(
            box.suggest_rewrites(source=source, path=path, workload=workload, rule=rule, chip=chip, api=api)
        )

    @server.tool(annotations=READS, structured_output=False)
    async def compare_kernels(
        workload: WorkloadName,
        first_source: Source = "",
        first_path: Path = "",
        second_source: Source = "",
        second_path: Path = "",
        chip: Chip = "",
        api: Api = "",
    ) -> list[str]:
        """Evaluate two kernels and compare them: verdict, and why the slower one is slower.

        A ratio above 1 means that the first kernel is faster.
        """
        return await _answered(
            box.compare_kernels(
                workload=workload,
                first_source=first_source,
                first_path=first_path,
                second_source=second_source,
                second_path=second_path,
                chip=chip,
                api=api,
            )
        )

    @server.tool(annotations=READS, structured_output=False)
    async def evaluate_kernels(
        kernels: Annotated[list[KernelItem], Field(description="1 to 64 kernels", max_length=MOST_KERNELS)],
        context: Context,
        strict: bool = False,
        chip: Chip = "",
    ) -> list[str]:
        """Evaluate many kernels: a line each, fastest first, with its number, path and details id."""
        items = [one.model_dump() for one in kernels]
        return await _answered(box.evaluate_kernels(kernels=items, strict=strict, chip=chip, report=_reporter(context)))


def _run_tools(server: MCPServer, box: Toolbox) -> None:
    @server.tool(annotations=WRITES, structured_output=False)
    async def optimize(
        workload: WorkloadName,
        context: Context,
        source: Source = "",
        path: Path = "",
        proposer: Annotated[
            Literal["", "rules", "llm", "both", "command"],
            Field(description="rules are free; llm and command spend their user's money"),
        ] = "",
        preset: Annotated[Literal["", "quick", "standard", "paper"], Field(description="How long to search")] = "",
        backend: Annotated[BackendName, Field(description="Default: as configured")] = "",
        seed: Annotated[int | None, Field(ge=0, lt=2**31)] = None,
        budget_usd: Annotated[float | None, Field(description="Cap on the cost of models, in USD", ge=0)] = None,
        time_limit_s: Annotated[float | None, Field(description="End the search after so many seconds", gt=0)] = None,
        wait_s: WaitS = 600.0,
        chip: Chip = "",
        api: Api = "",
    ) -> list[str]:
        """Search for a faster version of a kernel (default: the workload's baseline). Takes seconds to hours.

        Reports progress. Cancelling the call pauses the run; resume_run continues it. A new best kernel has passed
        the strict gate.
        """
        return await _answered(
            box.optimize(
                workload=workload,
                source=source,
                path=path,
                proposer=proposer,
                preset=preset,
                backend=backend,
                seed=seed,
                budget_usd=budget_usd,
                time_limit_s=time_limit_s,
                wait_s=wait_s,
                chip=chip,
                api=api,
                report=_reporter(context),
            )
        )

    @server.tool(annotations=READS, structured_output=False)
    async def follow_run(run: RunId, context: Context, wait_s: WaitS = 600.0) -> list[str]:
        """Wait for a run's end, with progress. Return its state if it has not ended after wait_s seconds."""
        return await _answered(box.follow_run(run=run, wait_s=wait_s, report=_reporter(context)))

    @server.tool(annotations=WRITES, structured_output=False)
    async def resume_run(run: RunId, context: Context, wait_s: WaitS = 600.0) -> list[str]:
        """Continue a run that is paused or has failed. No candidate is evaluated twice."""
        return await _answered(box.resume_run(run=run, wait_s=wait_s, report=_reporter(context)))

    @server.tool(annotations=WRITES, structured_output=False)
    async def cancel_run(run: RunId) -> list[str]:
        """End a run for good once its current evaluations are done. Its results are kept."""
        return await _answered(box.cancel_run(run=run))

    @server.tool(annotations=READS, structured_output=False)
    async def list_runs(workload: WorkloadName = "", limit: Annotated[int, Field(ge=1, le=100)] = 20) -> list[str]:
        """List the newest runs."""
        return await _answered(box.list_runs(workload=workload, limit=limit))

    @server.tool(annotations=READS, structured_output=False)
    async def best_kernel(
        run: MaybeRun = "", workload: WorkloadName = "", chip: Chip = "", show: Literal["text", "diff"] = "text"
    ) -> list[str]:
        """Get the best kernel of a run, or of a workload's fastest run: its text, or its diff from the baseline."""
        return await _answered(box.best_kernel(run=run, workload=workload, chip=chip, show=show))

    @server.tool(
        annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False),
        structured_output=False,
    )
    async def apply_best(
        path: Path, run: MaybeRun = "", source: Source = "", workload: WorkloadName = "", even_if_tied: bool = False
    ) -> list[str]:
        """Write a run's best kernel over the file it came from, or your own source over a file; the old file is copied.

        Refused unless the kernel passes the strict gate, is a drop-in replacement, and is a certain or likely gain (of a
        source: over the file's present kernel). even_if_tied writes a tie too: set it only if the user asked for that.
        """
        return await _answered(
            box.apply_best(path=path, run=run, source=source, workload=workload, even_if_tied=even_if_tied)
        )


def _reading_tools(server: MCPServer, box: Toolbox) -> None:
    @server.tool(annotations=READS, structured_output=False)
    async def list_workloads(contains: Annotated[str, Field(max_length=200)] = "") -> list[str]:
        """List your workloads and the known ones; contains selects by words of a name or description."""
        return await _answered(box.list_workloads(contains=contains))

    @server.tool(annotations=READS, structured_output=False)
    async def show_workload(
        workload: WorkloadName, show: Literal["facts", "reference", "kernel"] = "facts"
    ) -> list[str]:
        """Show a workload's shapes, precision, tolerance and floor, or the text of its reference or first kernel."""
        return await _answered(box.show_workload(workload=workload, show=show))

    @server.tool(annotations=WRITES, structured_output=False)
    async def create_workload(
        folder: Annotated[str, Field(description="New folder, below an opened folder", max_length=4096)],
        reference: Annotated[str, Field(description="Python source: numpy, forward(...)", max_length=100_000)],
        arguments: Annotated[
            list[str],
            Field(description="forward's arguments, in order, such as x=128x512:float32 or eps=1e-6", max_length=64),
        ],
        precision: Annotated[
            Literal["", "fp32_strict", "split_ok", "any_within_tolerance"],
            Field(
                description="float32 must be kept, or products may be split into bfloat16 parts, or anything may pass (default)"
            ),
        ] = "",
        chip: Chip = "",
        api: Api = "",
    ) -> list[str]:
        """Make a workload from a formula, with a first kernel if it can be lowered. An error lists all that is wrong."""
        return await _answered(
            box.create_workload(
                folder=folder, reference=reference, arguments=arguments, precision=precision, chip=chip, api=api
            )
        )

    @server.tool(annotations=READS, structured_output=False)
    async def look_up(
        name: Annotated[str, Field(description="A call, a name of nl, or a topic", max_length=200)],
    ) -> list[str]:
        """Look up NKI: a call's parameters, or dtypes, buffers, engines, limits, costs, tensor methods, example."""
        return await _answered(box.look_up(name=name))

    @server.tool(annotations=READS, structured_output=False)
    async def query_history(
        sql: Annotated[str, Field(description="One SELECT; views: history, rewrites, ...", max_length=20_000)] = "",
        saved: Annotated[str, Field(description="A saved query: best, failures, rules, ...", max_length=100)] = "",
        words: Annotated[str, Field(description="Full-text search of plans, insights, failures", max_length=1000)] = "",
        limit: Annotated[int, Field(ge=1, le=200)] = 50,
    ) -> list[str]:
        """Query the history of all runs, read-only: give one of sql, saved and words."""
        return await _answered(box.query_history(sql=sql, saved=saved, words=words, limit=limit))

    @server.tool(annotations=READS, structured_output=False)
    async def details(
        id: Annotated[str, Field(description="r12, c345, e901, i38, or an answer's details id", max_length=40)],
        offset: Annotated[int, Field(ge=0, description="Characters to skip: next_offset of the part before")] = 0,
    ) -> list[str]:
        """Get the full record behind a short answer, a part at a time."""
        return await _answered(box.details(id=id, offset=offset))


def _resources(server: MCPServer, box: Toolbox) -> None:
    async def answered(work: Awaitable[Json]) -> str:
        try:
            return json.dumps(await work, ensure_ascii=False, indent=1, default=str)
        except AcceldError as error:
            raise ResourceNotFoundError(str(error)) from error

    @server.resource("acceld://workloads", mime_type="application/json")
    async def workloads() -> str:
        """Return all workloads."""
        return await answered(box.list_workloads())

    @server.resource("acceld://workloads/{name}", mime_type="application/json")
    async def workload(name: str) -> str:
        """Return one workload, such as acceld://workloads/silu."""
        return await answered(box.show_workload(workload=name))

    @server.resource("acceld://best/{run}", mime_type="application/json")
    async def best(run: str) -> str:
        """Return the best kernel of a run, such as acceld://best/r12."""
        return await answered(box.best_kernel(run=run))

    @server.resource("acceld://docs", mime_type="application/json")
    async def pages() -> str:
        """Return the names of the documentation pages."""
        return json.dumps(sorted(page.stem for page in docs_folder().glob("*.md")))

    @server.resource("acceld://docs/{page}", mime_type="text/markdown")
    async def document(page: str) -> str:
        """Return one page of documentation, such as acceld://docs/rules."""
        known = {one.stem: one for one in docs_folder().glob("*.md")}
        if page not in known:
            raise ResourceNotFoundError(f"there is no page {page!r}; acceld://docs lists them")
        return await asyncio.to_thread(known[page].read_text, "utf-8")


def _prompts(server: MCPServer) -> None:
    @server.prompt()
    def make_faster(path: str, workload: str) -> str:
        """Make a kernel file faster and replace it by the winner, which has passed the strict gate."""
        return (
            f"Make the kernel in {path} faster; it is evaluated by workload {workload}. check_kernel it first with strict=true. "
            "Look at profile_kernel for what bounds it, then optimize with preset=quick. If the verdict is certain or likely, "
            "show the diff of best_kernel, apply_best it, and say which it is; a tie stays out. If not, edit by hand where "
            "the waits and hot_lines of profile_kernel point, and apply_best the source. Call simulated latencies simulated."
        )

    @server.prompt()
    def explain_profile(path: str, workload: str) -> str:
        """Explain where a kernel spends its time."""
        return (
            f"profile_kernel {path} with workload {workload}. Explain which engine or transfer bounds it, what its hottest "
            "lines do and wait for, what percent_of_floor it reaches, and which of suggest_rewrites would help, without changing anything."
        )

    @server.prompt()
    def write_kernel(workload: str) -> str:
        """Write a first kernel for a workload."""
        return (
            f"show_workload {workload}, look_up the calls you need, and write an NKI kernel for it. check_kernel it, correct "
            "what its failure names, and repeat until check_kernel with strict=true passes. Then profile_kernel it."
        )


async def serve_stdio(box: Toolbox) -> None:
    """Serve one client over standard input and output until it disconnects."""
    try:
        await build(box).run_stdio_async()
    finally:
        await box.close()


async def serve_http(box: Toolbox, host: str, port: int) -> None:
    """Serve on a loopback port until interrupted. Requests need the daemon's token."""
    import uvicorn

    from acceld.agents.web import guarded

    app = guarded(build(box).streamable_http_app(host=host), box.home, f"{host}:{port}")
    settings = uvicorn.Config(app, host=host, port=port, log_level="warning", access_log=False)
    try:
        await uvicorn.Server(settings).serve()
    finally:
        await box.close()
