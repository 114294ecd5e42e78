"""A tool server that is written with the official package, over standard input and output."""

import asyncio

from mcp.server.mcpserver import MCPServer

server = MCPServer("official", log_level="CRITICAL")


@server.tool()
async def add(left: int, right: int) -> int:
    """Add two numbers."""
    await asyncio.sleep(0)
    return left + right


server.run("stdio")
