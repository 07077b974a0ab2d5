"""Two agents share a lock through `lockkeeper mcp`, with the client of the protocol's authors (`mcp` on PyPI).

Usage: mcp_client.py PROGRAM DIRECTORY
"""

import asyncio
import os
import sys
from contextlib import asynccontextmanager

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

PROGRAM, DIRECTORY = sys.argv[1:]


@asynccontextmanager
async def agent():
    server = StdioServerParameters(
        command=PROGRAM, args=["mcp"], env={**os.environ, "LOCKKEEPER_URL": f"file:{DIRECTORY}"}
    )
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            yield session


async def result(session, tool, **arguments):
    # As it came over the wire: releases of the client differ in how they spell the fields.
    return (await session.call_tool(tool, arguments)).model_dump(by_alias=True)


async def call(session, tool, **arguments):
    reply = await result(session, tool, **arguments)
    assert not reply["isError"], reply
    return reply["structuredContent"]


async def main():
    async with agent() as one:
        tools = [tool.model_dump(by_alias=True) for tool in (await one.list_tools()).tools]
        assert sorted(tool["name"] for tool in tools) == ["acquire", "list", "release", "renew"], tools
        assert all(tool["description"] and tool["outputSchema"] for tool in tools), tools

        async with agent() as two:
            first = (await call(one, "acquire", name="device/1"))["hold"]
            assert not (await call(two, "acquire", name="device/1", wait_seconds=0))["acquired"]
            waiting = asyncio.create_task(call(two, "acquire", name="device/1", wait_seconds=60))
            while True:
                locks = (await call(one, "list", prefix="device/"))["locks"]
                if len(locks[0]["claims"]) == 2:
                    break
            renewed = await call(one, "renew", hold=first["hold"], hold_seconds=1200)
            assert renewed["until"] > first["until"], (first, renewed)
            await call(one, "release", hold=first["hold"])
            second = (await waiting)["hold"]
            assert second["token"] > first["token"], (first, second)

        # The second agent has gone without a release.
        third = await call(one, "acquire", name="device/1", wait_seconds=30)
        assert third["hold"]["token"] > second["token"], third
        refused = await result(one, "acquire", name="device/1", mode="half")
        assert refused["isError"] and "'exclusive', 'shared'" in refused["content"][0]["text"], refused


asyncio.run(main())
