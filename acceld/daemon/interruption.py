"""Wait for EC2's notice that it will take back a spot instance."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp

METADATA = "http://169.254.169.254"
"""Address of the EC2 instance metadata service."""
VENDOR = Path("/sys/devices/virtual/dmi/id/sys_vendor")
PERIOD_S = 5.0
"""Seconds between two requests. AWS advises five; the notice comes two minutes before the end."""
_ANSWER_S = 2.0


def on_ec2() -> bool:
    """Return True on an EC2 instance. Only EC2 has a metadata service that answers."""
    try:
        return VENDOR.read_text(encoding="ascii").strip() == "Amazon EC2"
    except OSError:
        return False


async def notice(base_url: str = METADATA, *, period_s: float = PERIOD_S) -> str:
    """Wait until EC2 gives notice that it takes the instance back. Return the notice as text: the action and its time."""
    timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        while True:
            try:
                reported = await _ask(session, base_url)
            except (aiohttp.ClientError, TimeoutError, ValueError):
                reported = None
            if reported:
                return reported
            await asyncio.sleep(period_s)


async def _ask(session: aiohttp.ClientSession, base_url: str) -> str | None:
    """Return the notice of an interruption as text; None as long as there is none."""
    asking = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    async with session.put(f"{base_url}/latest/api/token", headers=asking) as answer:
        token = await answer.text() if answer.status == 200 else ""
    headers = {"X-aws-ec2-metadata-token": token} if token else {}
    async with session.get(f"{base_url}/latest/meta-data/spot/instance-action", headers=headers) as answer:
        if answer.status != 200:
            return None
        reported = json.loads(await answer.text())
    if not isinstance(reported, dict) or "action" not in reported:
        return None
    return f"EC2 will {reported['action']} this spot instance at {reported.get('time', 'a time it does not tell')}"
