"""`epochcast mcp`: the answers as tools for agents, over standard input and output."""


def mcp_command() -> None:
    """Serve predictions, comparisons, checks and explanations to agents over the Model Context Protocol."""
    import asyncio

    from epochcast.agent_tools import serve
    from predictor.errors import BackendUnavailableError

    try:
        import mcp  # noqa: F401 - names what is missing before a client waits
    except ModuleNotFoundError as error:
        message = f"{error.name} is not installed, which agents need: pip install 'epochcast[mcp]'."
        raise BackendUnavailableError(message) from None
    asyncio.run(serve())
