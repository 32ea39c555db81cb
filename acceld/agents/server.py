"""Serve the tools over the Model Context Protocol, with the official SDK. Needs the extra ``mcp``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field

from acceld.agents.toolbox import MOST_KERNELS, Json, Report, Toolbox
from acceld.errors import AcceldError
from acceld.resources import docs_folder
from acceld.targets import APIS, CHIPS, TARGETS

INSTRUCTIONS = """\
acceld makes AWS Trainium (NKI) kernels faster and evaluates them. Its simulator answers in about a second and needs no chip.
Start with list_workloads and profile_kernel. check_kernel says if a kernel is right; strict=true is the gate that counts.
suggest_rewrites shows safe changes as diffs; optimize searches for a faster kernel and apply_best writes it over its file.
Latencies are in microseconds; "simulated" ones carry interval_percent, and ratios inside tie_band_percent are ties.
Answers are short: pass an answer's `details` id (or r12, c345) to the tool `details` for the rest."""

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


async def _answered(work: Awaitable[Json]) -> Json:
    """Return the work's answer. An expected failure becomes a tool error that says what to do."""
    try:
        return await work
    except AcceldError as error:
        raise ToolError(f"{error.message}\n{error.hint}".rstrip()) from error


def _reporter(context: Context) -> Report:
    async def report(progress: float, total: float | None, message: str) -> None:
        await context.report_progress(progress, total, message)

    return report


def build(box: Toolbox) -> MCPServer:
    """Return a server of the tools."""
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
    return server


def _kernel_tools(server: MCPServer, box: Toolbox) -> None:
    @server.tool(annotations=READS)
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
    ) -> Json:
        """Predict a kernel's latency (microseconds), what it is bound by and its hottest lines. It is not run on data."""
        return await _answered(
            box.profile_kernel(source=source, path=path, workload=workload, arguments=arguments, chip=chip, api=api)
        )

    @server.tool(annotations=READS)
    async def check_kernel(
        workload: WorkloadName,
        source: Source = "",
        path: Path = "",
        strict: Annotated[
            bool, Field(description="Fresh seeds, all input distributions and the workload's other shapes")
        ] = False,
        chip: Chip = "",
        api: Api = "",
    ) -> Json:
        """Evaluate a kernel: run it on secret inputs against the workload's reference; return its latency if it passes.

        status "passed" means right; else failure has rule, message, line and what to do.
        """
        return await _answered(
            box.check_kernel(source=source, path=path, workload=workload, strict=strict, chip=chip, api=api)
        )

    @server.tool(annotations=READS)
    async def suggest_rewrites(
        source: Source = "",
        path: Path = "",
        workload: WorkloadName = "",
        rule: Annotated[str, Field(description="Only this rule", max_length=100)] = "",
        api: Api = "",
    ) -> Json:
        """List rewrites that keep a kernel's results, best first, with diffs and expected gain in percent of its time."""
        return await _answered(box.suggest_rewrites(source=source, path=path, workload=workload, rule=rule, api=api))

    @server.tool(annotations=READS)
    async def compare_kernels(
        workload: WorkloadName,
        first_source: Source = "",
        first_path: Path = "",
        second_source: Source = "",
        second_path: Path = "",
        chip: Chip = "",
        api: Api = "",
    ) -> Json:
        """Evaluate two kernels of one workload and compare them; ratio above 1 means that the first is faster."""
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

    @server.tool(annotations=READS)
    async def evaluate_kernels(
        kernels: Annotated[list[KernelItem], Field(description="1 to 64 kernels", max_length=MOST_KERNELS)],
        context: Context,
        strict: bool = False,
        chip: Chip = "",
    ) -> Json:
        """Evaluate many kernels; short results in their order, with progress."""
        items = [one.model_dump() for one in kernels]
        return await _answered(box.evaluate_kernels(kernels=items, strict=strict, chip=chip, report=_reporter(context)))


def _run_tools(server: MCPServer, box: Toolbox) -> None:
    @server.tool(annotations=WRITES)
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
    ) -> Json:
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

    @server.tool(annotations=READS)
    async def follow_run(run: RunId, context: Context, wait_s: WaitS = 600.0) -> Json:
        """Wait for a run's end, with progress. Return its state if it has not ended after wait_s seconds."""
        return await _answered(box.follow_run(run=run, wait_s=wait_s, report=_reporter(context)))

    @server.tool(annotations=WRITES)
    async def resume_run(run: RunId, context: Context, wait_s: WaitS = 600.0) -> Json:
        """Continue a run that is paused or has failed. No candidate is evaluated twice."""
        return await _answered(box.resume_run(run=run, wait_s=wait_s, report=_reporter(context)))

    @server.tool(annotations=WRITES)
    async def cancel_run(run: RunId) -> Json:
        """End a run for good once its current evaluations are done. Its results are kept."""
        return await _answered(box.cancel_run(run=run))

    @server.tool(annotations=READS)
    async def list_runs(workload: WorkloadName = "", limit: Annotated[int, Field(ge=1, le=100)] = 20) -> Json:
        """List the newest runs."""
        return await _answered(box.list_runs(workload=workload, limit=limit))

    @server.tool(annotations=READS)
    async def best_kernel(
        run: Annotated[str, Field(pattern=r"^(r?[0-9]{1,15})?$")] = "", workload: WorkloadName = "", chip: Chip = ""
    ) -> Json:
        """Get the best kernel of a run, or of a workload's fastest run: text, latency and diff from the baseline."""
        return await _answered(box.best_kernel(run=run, workload=workload, chip=chip))

    @server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False))
    async def apply_best(run: RunId, path: Path, even_if_tied: bool = False) -> Json:
        """Write a run's best kernel over the file it came from; a copy of what was there stays beside it.

        Refused unless it passed the strict gate, is a drop-in for the file, passes again now, and is faster beyond a tie.
        even_if_tied: write a tie too, if the user asked for that.
        """
        return await _answered(box.apply_best(run=run, path=path, even_if_tied=even_if_tied))


def _reading_tools(server: MCPServer, box: Toolbox) -> None:
    @server.tool(annotations=READS)
    async def list_workloads(contains: Annotated[str, Field(max_length=200)] = "") -> Json:
        """List the operators that have references, by name; contains: words of the name or description."""
        return await _answered(box.list_workloads(contains=contains))

    @server.tool(annotations=READS)
    async def show_workload(workload: WorkloadName) -> Json:
        """Show a workload: shapes, dtypes, tolerance (relative L2), least times (microseconds) and numpy reference."""
        return await _answered(box.show_workload(workload=workload))

    @server.tool(annotations=READS)
    async def look_up(name: Annotated[str, Field(description="Such as nc_matmul or nl.load", max_length=200)]) -> Json:
        """Look up an NKI call: its parameters in each API, and whether the simulator supports it."""
        return await _answered(box.look_up(name=name))

    @server.tool(annotations=READS)
    async def query_history(
        sql: Annotated[str, Field(description="One SELECT; views: history, rewrites, ...", max_length=20_000)] = "",
        saved: Annotated[str, Field(description="A saved query: best, failures, rules, ...", max_length=100)] = "",
        words: Annotated[str, Field(description="Full-text search of plans, insights, failures", max_length=1000)] = "",
        limit: Annotated[int, Field(ge=1, le=200)] = 50,
    ) -> Json:
        """Query the history of all runs, read-only: give one of sql, saved and words."""
        return await _answered(box.query_history(sql=sql, saved=saved, words=words, limit=limit))

    @server.tool(annotations=READS)
    async def details(
        id: Annotated[str, Field(description="r12, c345, e901, i38, or an answer's details id", max_length=40)],
        offset: Annotated[int, Field(ge=0, description="Characters to skip: next_offset of the part before")] = 0,
    ) -> Json:
        """Get the full record behind a short answer, a part at a time."""
        return await _answered(box.details(id=id, offset=offset))


def _resources(server: MCPServer, box: Toolbox) -> None:
    async def answered(work: Awaitable[Json]) -> str:
        try:
            return json.dumps(await work, ensure_ascii=False, indent=1)
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
            "Look at profile_kernel for what bounds it, then optimize with preset=quick. If improved is true, show the diff "
            "of best_kernel and apply_best it. Report latencies with their uncertainty and call simulated ones simulated."
        )

    @server.prompt()
    def explain_profile(path: str, workload: str) -> str:
        """Explain where a kernel spends its time."""
        return (
            f"profile_kernel {path} with workload {workload}. Explain which engine or transfer bounds it, what its hottest "
            "lines do, how far it is from floor_us, and which of suggest_rewrites would help, without changing anything."
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
    """Serve on a loopback port behind the daemon's token, until interrupted."""
    import uvicorn

    from acceld.agents.web import guarded

    app = guarded(build(box).streamable_http_app(host=host), box.home, f"{host}:{port}")
    settings = uvicorn.Config(app, host=host, port=port, log_level="warning", access_log=False)
    try:
        await uvicorn.Server(settings).serve()
    finally:
        await box.close()
